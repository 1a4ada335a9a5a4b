"""Tests of sign-up by the class list, on the authenticator itself with a database of its own."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

pytest.importorskip("nativeauthenticator")

from jupyterhub import orm
from tornado.web import HTTPError
from traitlets.config import Config

from mlsys_grading.hub.login import configure_login
from mlsys_grading.hub.settings import CourseTable, HubSettings, LoginTable
from mlsys_grading.hub.signup import ClassAuthenticator
from mlsys_labkit.errors import LabkitError
from tests.hub import run


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
        (LoginTable("oauth", provider="dummy", oauth={"client_secret": "x"}), "is a secret"),
        (LoginTable("oauth", provider="dummy", oauth={"colour": "x"}), "no setting login.oauth.colour"),
        (LoginTable("shared-password", password_file="missing"), "cannot be read"),
    ],
)
def test_impossible_login_is_refused(tmp_path: Path, login: LoginTable, told: str) -> None:
    with pytest.raises(LabkitError, match=told) as raised:
        configure_login(Config(), HubSettings(tmp_path / "hub.toml", login=login))
    assert "\n" not in str(raised.value)


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
