"""The logins "shared-password" and "pam" in a browser, each on a real Hub with the guide's block of hub.toml."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hub.hub_process import INSTRUCTORS_PASSWORD, STUDENTS_PASSWORD, Hub, needs_hub
from tests.hub.login_form import LOGINS, log_in, log_out, page_of

pytestmark = [needs_hub, pytest.mark.browser, pytest.mark.xdist_group("own-hub"), pytest.mark.timeout(900)]

WRONG = "Invalid username or password"
NOT_LISTED = "is not on the class list. Ask your instructor to add you, or log in with another account."


# ---------------------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    with Hub(tmp_path_factory.mktemp("shared"), students=("ada", "bob"), more=LOGINS["shared-password"]) as made:
        yield made


def test_the_class_logs_in_with_the_shared_password(shared: Hub, browser: Any) -> None:
    page = page_of(browser)
    assert log_in(page, shared, "ada", "not-the-password") == WRONG
    assert "Your instructor tells you the password" in page.inner_text("#login-main")
    assert log_in(page, shared, "mallory", STUDENTS_PASSWORD) == f"mallory {NOT_LISTED}"
    assert log_in(page, shared, "mallory", "not-the-password") == WRONG  # tells strangers nothing about the list
    assert "cannot be a name here" in log_in(page, shared, "../ada", STUDENTS_PASSWORD)
    assert log_in(page, shared, "ada", STUDENTS_PASSWORD) == ""
    assert page.inner_text("h1") == "mlsys"
    log_out(page, shared)


def test_an_instructor_needs_the_other_password(shared: Hub, browser: Any) -> None:
    page = page_of(browser)
    for name in ("grace", "GRACE", " grace "):
        assert log_in(page, shared, name, STUDENTS_PASSWORD) == WRONG
    assert log_in(page, shared, "grace", INSTRUCTORS_PASSWORD) == ""
    assert page.locator("text=Grade: the course's own server").count() == 1
    log_out(page, shared)


# ---------------------------------------------------------------------------------------------------------------------
def why_no_accounts() -> str:
    """Return the reason why no local account can be made here; "" if one can."""
    if os.geteuid() != 0:
        return "PAM checks passwords for root alone; run the tests as root"
    missing = [name for name in ("useradd", "chpasswd") if not shutil.which(name)]
    return f"needs {missing[0]}; install the package passwd" if missing else ""


# Accounts in a copy of /etc that this Hub alone sees: the machine keeps its own, even if the test is killed.
WITH_ACCOUNTS = """set -eu
made=$1; shift
cp -a /etc/. $made
mount --bind $made /etc
for name in labtest-ada labtest-grace labtest-bob Labtest-Grace; do
  useradd --badname --no-create-home --shell /bin/bash $name 2>/dev/null || useradd --badname --no-create-home $name
  echo "$name:the-password-of-$name" | chpasswd
done
exec "$@"
"""


@pytest.fixture(scope="module")
def pam(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """Yield a Hub on a machine with four more accounts. Two differ in case alone, and one is not on the class list."""
    if why := why_no_accounts():
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("pam")
    (folder / "etc").mkdir()
    jupyterhub = [sys.executable, "-m", "jupyterhub", "-f", str(folder / "jupyterhub_config.py")]
    command = ["unshare", "--mount", "sh", "-c", WITH_ACCOUNTS, "sh", str(folder / "etc"), *jupyterhub]
    people: Any = {"students": ("labtest-ada",), "instructors": ("labtest-grace",)}
    with Hub(folder, more=LOGINS["pam"], command=command, **people) as made:
        yield made


def test_accounts_of_the_machine_log_in(pam: Hub, browser: Any) -> None:
    page = page_of(browser)
    assert log_in(page, pam, "labtest-ada", "the-password-of-labtest-bob") == WRONG
    assert "Use the name and the password of your account on this machine" in page.inner_text("#login-main")
    assert log_in(page, pam, "labtest-bob", "the-password-of-labtest-bob") == f"labtest-bob {NOT_LISTED}"
    assert log_in(page, pam, "nobody-here", "the-password-of-labtest-bob") == WRONG
    assert log_in(page, pam, "labtest-ada", "the-password-of-labtest-ada") == ""
    assert page.inner_text("h1") == "mlsys"
    log_out(page, pam)


def test_an_account_does_not_become_another_by_its_case(pam: Hub, browser: Any) -> None:
    page = page_of(browser)
    told = log_in(page, pam, "Labtest-Grace", "the-password-of-Labtest-Grace")
    assert told.startswith("'Labtest-Grace' cannot be a name here. Names have lower-case letters")
    assert log_in(page, pam, "labtest-grace", "the-password-of-Labtest-Grace") == WRONG
    assert log_in(page, pam, "labtest-grace", "the-password-of-labtest-grace") == ""


def test_the_machine_has_kept_its_accounts(pam: Hub) -> None:
    assert "labtest-ada" in (pam.folder / "etc/passwd").read_text()
    assert "labtest-" not in Path("/etc/passwd").read_text()
