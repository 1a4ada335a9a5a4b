"""Tests of sign-up by the class list, on the authenticator itself with a database of its own."""

from __future__ import annotations

import asyncio
import stat
import threading
from pathlib import Path

import pytest

pytest.importorskip("nativeauthenticator")

from jupyterhub import orm
from tornado.web import HTTPError
from traitlets.config import Config

from mlsys_grading.hub import signup
from mlsys_grading.hub.login import configure_login
from mlsys_grading.hub.settings import CourseTable, HubSettings, LoginTable, read_settings
from mlsys_grading.hub.signup import ClassAuthenticator
from mlsys_labkit.errors import LabkitError
from tests.hub import run
from tests.hub.hub_process import ROOT
from tests.hub.login_form import LOGINS

LTI = "ltiauthenticator.lti13.auth.LTI13Authenticator"


def _authenticator(tmp_path: Path, students: tuple[str, ...] = ("ada",)):  # type: ignore[no-untyped-def]
    config = Config()
    settings = HubSettings(tmp_path / "hub.toml", course=CourseTable(instructors=("grace",), students=students))
    settings.state.mkdir(parents=True, exist_ok=True)
    configure_login(config, settings)
    database = orm.new_session_factory(f"sqlite:///{tmp_path / 'hub.sqlite'}")()
    return ClassAuthenticator(config=config, db=database), settings.state / "first-passwords"


def _may_log_in(authenticator, name: str, password: str) -> bool:  # type: ignore[no-untyped-def]
    told = authenticator.get_authenticated_user(None, {"username": name, "password": password})
    return run(told) is not None


def test_sign_up_as_an_instructor_is_refused(tmp_path: Path) -> None:
    authenticator, first = _authenticator(tmp_path)
    assert authenticator.create_user("grace", "a-password-of-mallory") is None
    assert not _may_log_in(authenticator, "grace", "a-password-of-mallory")
    name, password = first.read_text().split()
    assert name == "grace"
    assert stat.S_IMODE(first.stat().st_mode) == 0o600
    assert _may_log_in(authenticator, "grace", password)


def test_first_password_is_made_once(tmp_path: Path) -> None:
    _, first = _authenticator(tmp_path)
    before = first.read_text()
    _authenticator(tmp_path)
    assert first.read_text() == before


def test_class_list_signs_up_once(tmp_path: Path) -> None:
    authenticator, _ = _authenticator(tmp_path)
    assert authenticator.create_user("ada", "difference-engine")
    assert _may_log_in(authenticator, "ada", "difference-engine")
    assert not authenticator.create_user("ada", "another-password")
    assert not _may_log_in(authenticator, "ada", "another-password")
    assert not authenticator.create_user("mallory", "difference-engine")
    assert not _may_log_in(authenticator, "mallory", "difference-engine")


def test_passwords_are_hashed_beside_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authenticator, _ = _authenticator(tmp_path)
    authenticator.create_user("ada", "difference-engine")
    begun, may_end, hash_ = threading.Event(), threading.Event(), signup._hash

    def waiting(password: str, salt: bytes = b"") -> bytes:
        begun.set()
        assert may_end.wait(60), "the event loop waits for the hash"
        return hash_(password, salt)

    async def log_in() -> str | None:
        told = asyncio.create_task(
            authenticator.authenticate(None, {"username": "ada", "password": "difference-engine"})
        )
        while not begun.is_set():
            await asyncio.sleep(0.01)
        may_end.set()
        return await told

    monkeypatch.setattr(signup, "_hash", waiting)
    assert run(log_in()) == "ada"


def test_requests_at_once_try_no_more_passwords_than_one_after_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authenticator, _ = _authenticator(tmp_path)
    authenticator.create_user("ada", "difference-engine")
    tried = []
    monkeypatch.setattr(signup, "_hash", lambda password, salt=b"": tried.append(password) or b"")

    async def flood() -> list[str | None]:
        words = [{"username": "ada", "password": f"guess-{number}"} for number in range(30)]
        return await asyncio.gather(*(authenticator.authenticate(None, each) for each in words))

    assert run(flood()) == [None] * 30
    assert len(tried) == 10


def test_long_password_logs_in(tmp_path: Path) -> None:
    authenticator, _ = _authenticator(tmp_path)
    authenticator.create_user("ada", 40 * "long")
    assert _may_log_in(authenticator, "ada", 40 * "long")
    assert not _may_log_in(authenticator, "ada", 10 * "long")


@pytest.mark.parametrize("password", ["short", "password1"])
def test_weak_password_is_refused(tmp_path: Path, password: str) -> None:
    authenticator, _ = _authenticator(tmp_path)
    assert not authenticator.create_user("ada", password)


def test_without_a_list_every_valid_name_signs_up_and_waits(tmp_path: Path) -> None:
    authenticator, _ = _authenticator(tmp_path, students=())
    assert not authenticator.create_user("zoe", "difference-engine").is_authorized
    with pytest.raises(HTTPError, match="zoe: wait until an instructor admits you"):
        _may_log_in(authenticator, "zoe", "difference-engine")
    assert not _may_log_in(authenticator, "zoe", "another-password")
    for name in ("../zoe", "zoe:0", "a" * 33):
        assert not authenticator.create_user(name, "difference-engine")


@pytest.mark.parametrize(
    ("login", "told"),
    [
        (LoginTable("oauth", provider="nobody"), "no authenticator 'nobody'"),
        (LoginTable("oauth", provider="dummy"), "no authenticator 'dummy'"),  # it admits everybody
        (LoginTable("oauth", provider="no.such.Class"), "no authenticator 'no.such.Class'"),
        (LoginTable("oauth", provider="github", oauth={"client_secret": "x"}), "is a secret"),
        (LoginTable("oauth", provider="github", oauth={"colour": "x"}), "no setting login.oauth.colour"),
        (LoginTable("oauth", provider=LTI, domain="example.edu"), "does not know login.domain"),
        (LoginTable("shared-password", password_file="missing"), "cannot be read"),
    ],
)
def test_impossible_login_is_refused(tmp_path: Path, login: LoginTable, told: str) -> None:
    with pytest.raises(LabkitError, match=told) as raised:
        configure_login(Config(), HubSettings(tmp_path / "hub.toml", login=login))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("kind", ["native", "pam", "shared-password"])
def test_a_class_list_has_no_account_of_the_system(tmp_path: Path, kind: str) -> None:
    settings = HubSettings(tmp_path / "hub.toml", login=LoginTable(kind), course=CourseTable(students=("daemon",)))
    with pytest.raises(LabkitError, match="'daemon' is an account of this machine itself"):
        configure_login(Config(), settings)


def test_the_class_password_opens_no_instructors_account(tmp_path: Path) -> None:
    settings = HubSettings(tmp_path / "hub.toml", login=LoginTable("shared-password", password_file="words"))
    (tmp_path / "words").write_text("for-students\n" + "i" * 32 + "\n")
    config = Config()
    configure_login(config, settings)
    authenticator = config.JupyterHub.authenticator_class(config=config)
    assert _may_log_in(authenticator, "zoe", "for-students")
    assert not _may_log_in(authenticator, "instructor", "for-students")
    assert not _may_log_in(authenticator, "INSTRUCTOR", "for-students")
    assert _may_log_in(authenticator, "instructor", "i" * 32)


def test_shared_passwords(tmp_path: Path) -> None:
    settings = HubSettings(tmp_path / "hub.toml", login=LoginTable("shared-password", password_file="words"))
    (tmp_path / "words").write_text("too-short\nshort\n")
    with pytest.raises(LabkitError, match="two lines"):
        configure_login(Config(), settings)
    (tmp_path / "words").write_text("for-students\n" + "i" * 32 + "\n")
    config = Config()
    configure_login(config, settings)
    assert config.SharedPasswords.user_password == "for-students"


# ---------------------------------------------------------------------------------------------------------------------
def _site(tmp_path: Path, login: str, students: tuple[str, ...] = ()):  # type: ignore[no-untyped-def]
    """Return the authenticator that the guide's block ``login`` makes."""
    file = tmp_path / "hub.toml"
    file.write_text(f'{LOGINS[login]}\n[course]\nstudents = {list(students)}\ninstructors = ["grace"]\n')
    config = Config()
    configure_login(config, read_settings(file))
    return config.JupyterHub.authenticator_class(config=config)


def _names(authenticator, **claims: object) -> str:  # type: ignore[no-untyped-def]
    return str(authenticator.normalize_username(authenticator.user_info_to_username(claims)))


SITES = {
    "microsoft": {"preferred_username": "Ada@Example.edu", "name": "grace"},
    "google": {"email": "ada@example.edu", "verified_email": True, "hd": "example.edu"},
    "github": {"login": "Ada", "name": "grace"},
    "cilogon": {"eppn": "ada@example.edu", "idp": "https://idp.example.edu/shibboleth"},
    "generic-oauth": {"preferred_username": "ada", "email": "grace@example.edu"},
}


@pytest.mark.parametrize("site", SITES)
def test_a_block_of_the_guide_gives_the_name(tmp_path: Path, site: str) -> None:
    authenticator = _site(tmp_path, site)
    assert _names(authenticator, **SITES[site]) == "ada"
    assert authenticator.client_id
    assert authenticator.authorize_url.startswith("https://")
    assert authenticator.token_url.startswith("https://")
    assert authenticator.userdata_url.startswith("https://") != authenticator.userdata_from_id_token
    assert not authenticator.allow_all


@pytest.mark.parametrize("name", ["grace@evil.example", "grace", "grace@example.edu@evil.example", "@example.edu", "@"])
def test_a_name_of_another_domain_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(HTTPError) as raised:
        _names(_site(tmp_path, "microsoft"), preferred_username=name)
    assert raised.value.status_code == 403


def test_an_address_that_is_not_verified_is_no_name(tmp_path: Path) -> None:
    authenticator = _site(tmp_path, "microsoft")
    authenticator.username_claim = "email"
    for claims in ({}, {"email_verified": False}, {"email_verified": "no"}, {"email_verified": None}):
        with pytest.raises(HTTPError, match="has not verified your address"):
            _names(authenticator, email="grace@example.edu", **claims)
    assert _names(authenticator, email="grace@example.edu", email_verified=True) == "grace"


def test_a_name_is_mapped_exactly(tmp_path: Path) -> None:
    authenticator = _site(tmp_path, "generic-oauth")
    authenticator.username_map = {"Ada+Lovelace": "ada"}
    assert _names(authenticator, preferred_username="Ada+Lovelace") == "ada"
    with pytest.raises(HTTPError, match="cannot be a name here"):
        _names(authenticator, preferred_username="ada+lovelace")


def test_without_a_class_list_another_site_admits_instructors_alone(tmp_path: Path) -> None:
    authenticator = _site(tmp_path, "generic-oauth")
    assert run(authenticator.check_allowed("grace", {"name": "grace", "admin": None, "auth_state": {}}))
    with pytest.raises(HTTPError, match="ada is not on the class list"):
        run(authenticator.check_allowed("ada", {"name": "ada", "admin": None, "auth_state": {}}))


def test_the_block_for_a_learning_platform_makes_its_authenticator(tmp_path: Path) -> None:
    pytest.importorskip("ltiauthenticator")
    authenticator = _site(tmp_path, "lti")
    assert authenticator.issuer == "https://lms.example.edu"
    assert authenticator.client_id == {"CLIENT"}
    claims = {"sub": "7", "https://purl.imsglobal.org/spec/lti/claim/custom": {"username": "ada"}}
    assert run(authenticator.get_authenticated_user(None, claims))["name"] == "ada"
    claims["https://purl.imsglobal.org/spec/lti/claim/custom"] = {"username": "GRACE"}  # type: ignore[assignment]
    with pytest.raises(HTTPError, match="'GRACE' cannot be a name here"):
        run(authenticator.get_authenticated_user(None, claims))


def test_the_block_for_kubernetes_changes_no_names() -> None:
    import yaml
    from oauthenticator.generic import GenericOAuthenticator

    defaults = yaml.safe_load((ROOT / "binder/hub/values.yaml").read_text())["hub"]
    hub = yaml.safe_load(LOGINS["kubernetes"])["hub"]
    merged: dict[str, dict[str, object]] = {}
    for table in (defaults["config"], hub["config"]):  # as helm merges them
        for section, values in table.items():
            merged.setdefault(section, {}).update(values)
    del merged["JupyterHub"], merged["NativeAuthenticator"]
    config = Config(merged)
    for snippet in hub["extraConfig"].values():
        exec(snippet, {"c": config})
    authenticator = GenericOAuthenticator(config=config)
    assert _names(authenticator, preferred_username="instructor") == "instructor"
    for name in ("INSTRUCTOR", "instructor@example.edu", "../ada", "ada ", "", None, ["ada"], "a" * 33):
        with pytest.raises(HTTPError, match="cannot be a name here"):
            _names(authenticator, preferred_username=name)
    people = {name: {"name": name, "admin": None, "auth_state": {}} for name in ("ada", "mallory")}
    assert [run(authenticator.check_allowed(*each)) for each in people.items()] == [True, False]
