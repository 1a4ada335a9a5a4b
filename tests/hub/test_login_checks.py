"""Tests of the checks of each login: what it lacks is named, and a login that works has no finding."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nativeauthenticator")

from mlsys_grading.hub import login_checks
from mlsys_grading.hub.login_checks import login
from mlsys_grading.hub.settings import CourseTable, HubSettings, LoginTable, read_settings
from mlsys_labkit._frontends.doctor import CheckResult
from tests.hub.login_form import LOGINS

GRACE = CourseTable(instructors=("grace",))


def check(folder: Path, table: LoginTable, course: CourseTable = GRACE) -> dict[str, CheckResult]:
    return {each.name: each for each in login(HubSettings(folder / "hub.toml", login=table, course=course))}


def test_native_tells_where_the_first_passwords_are(tmp_path: Path) -> None:
    found = check(tmp_path, LoginTable("native"))
    assert {each.status for each in found.values()} == {"ok"}
    assert f"will be in {tmp_path}/build/hub/first-passwords" in found["login"].detail
    assert found["class list"].detail == "none: an instructor admits each person"
    assert list(tmp_path.iterdir()) == []


def test_native_finds_that_nobody_can_log_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nativeauthenticator.orm import UserInfo

    monkeypatch.setattr(UserInfo, "is_valid_password", lambda self, password: False)
    found = check(tmp_path, LoginTable("native"))
    assert (found["login"].status, found["login"].detail) == ("broken", "grace cannot log in with a new password")


def test_a_file_of_passwords_that_others_may_read_is_found(tmp_path: Path) -> None:
    (tmp_path / "words").write_text("for-students\n" + "i" * 32 + "\n")
    (tmp_path / "words").chmod(0o640)
    found = check(tmp_path, LoginTable("shared-password", password_file="words"))
    assert found["login"].status == "broken"
    assert found["login"].mend == f"chmod 600 {tmp_path}/words"
    (tmp_path / "words").chmod(0o600)
    assert check(tmp_path, LoginTable("shared-password", password_file="words"))["login"].status == "ok"


# ---------------------------------------------------------------------------------------------------------------------
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="PAM checks passwords for root alone")


@as_root
def test_pam_is_asked_and_missing_accounts_are_named(tmp_path: Path) -> None:
    pytest.importorskip("pamela")
    found = check(tmp_path, LoginTable("pam"), CourseTable(instructors=("grace-labtest",), students=("ada-labtest",)))
    assert found["login"].status == "ok"
    assert found["accounts"].status == "absent"
    assert "none here for grace-labtest, ada-labtest" in found["accounts"].detail


@as_root
@pytest.mark.parametrize(("errno", "status"), [(0, "broken"), (4, "broken"), (7, "ok"), (10, "ok"), (28, "broken")])
def test_pam_that_fails_otherwise_is_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, errno: int, status: str
) -> None:
    pamela = pytest.importorskip("pamela")

    def answer(*_: Any, **__: Any) -> None:
        if errno:
            raise pamela.PAMError(errno=errno)

    monkeypatch.setattr(pamela, "authenticate", answer)
    assert check(tmp_path, LoginTable("pam"))["login"].status == status


# ---------------------------------------------------------------------------------------------------------------------
@pytest.fixture
def site() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://localhost:{listener.getsockname()[1]}"


def oauth(folder: Path, site: str, **more: str) -> dict[str, CheckResult]:
    """Check the guide's block, with the site ``site`` and some texts in it replaced."""
    text = LOGINS["generic-oauth"].replace("https://login.example.edu", site)
    for old, new in more.items():
        assert old in text
        text = text.replace(old, new)
    (folder / "hub.toml").write_text(text + '[course]\ninstructors = ["grace"]\n')
    return {each.name: each for each in login(read_settings(folder / "hub.toml"))}


def test_oauth_with_all_that_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site: str) -> None:
    monkeypatch.setenv("OAUTH_CLIENT_SECRET", "secret")
    found = oauth(tmp_path, site, scope="allow_all = true\nscope")
    assert {each.status for each in found.values()} == {"ok"}, found
    assert found["class list"].detail == "none: allow_all"
    assert "secret" not in str([each.detail for each in found.values()])


def test_oauth_without_its_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site: str) -> None:
    monkeypatch.delenv("OAUTH_CLIENT_SECRET", raising=False)
    found = oauth(tmp_path, site, **{"/hub/oauth_callback": "/callback", "userdata_url": "logout_redirect_url"})
    assert "no client_secret" in found["login"].detail
    assert "OAUTH_CLIENT_SECRET" in found["login"].mend
    assert found["login callback"].status == "broken"
    assert found["login.oauth.userdata_url"].detail == "not set"
    assert found["class list"].status == "absent"
    assert "nobody but instructors" in found["class list"].detail


def test_oauth_with_an_address_that_is_not_safe_or_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site: str
) -> None:
    asked = []
    monkeypatch.setattr(login_checks, "_unreachable", lambda *place: asked.append(place) or "no route to host")
    found = oauth(tmp_path, "http://login.example.edu")["login.oauth.token_url"]
    assert (found.status, asked) == ("broken", [])
    found = oauth(tmp_path, "https://login.example.edu")["login.oauth.token_url"]
    assert (found.status, asked[0]) == ("absent", ("login.example.edu", 443, "https"))
    assert "does not answer (no route to host)" in found.detail
    monkeypatch.undo()
    assert oauth(tmp_path, site.replace("http", "https"))["login.oauth.token_url"].status == "absent"


def test_oauth_with_a_setting_of_a_wrong_type(tmp_path: Path, site: str) -> None:
    found = oauth(tmp_path, site, **{'["openid", "profile"]': '"openid"'})
    assert found["login"].status == "broken"
    assert "\n" not in found["login"].detail
