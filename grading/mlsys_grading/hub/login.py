"""Login to the Hub: the authenticator for the table ``[login]`` of the settings."""

from __future__ import annotations

import os
from pathlib import Path
from secrets import compare_digest
from typing import Any

from jupyterhub.auth import PAMAuthenticator
from jupyterhub.authenticators.shared import SharedPasswordAuthenticator
from nativeauthenticator.handlers import TEMPLATE_DIR
from traitlets import Set, Unicode

from mlsys_grading.hub.accounts import belongs_to_the_machine
from mlsys_grading.hub.class_list import ClassList
from mlsys_grading.hub.settings import HubSettings
from mlsys_grading.hub.signup import ClassAuthenticator
from mlsys_grading.hub.site_accounts import configure_site_accounts
from mlsys_labkit.errors import LabkitError

_TEMPLATES = str(Path(__file__).with_name("templates"))
_HINTS = {
    "native": "Your instructor can give you a new password.",
    "pam": "Use the name and the password of your account on this machine. Its operator can give you a new password.",
    "shared-password": "Choose a name. Your instructor tells you the password.",
}


class PamAccounts(ClassList, PAMAuthenticator):  # type: ignore[misc]
    """Authenticator for accounts of this machine."""


class SharedPasswords(ClassList, SharedPasswordAuthenticator):  # type: ignore[misc]
    """JupyterHub's authenticator with one password for the class, and one for instructors, who are no admins here."""

    staff = Set(Unicode(), config=True, help="names of the people who need the instructors' password")
    any_case = True  # a name is not an account here
    advice = "Choose another."

    async def authenticate(self, handler: Any, data: dict[str, str]) -> str | None:
        name = str(self.normalize_username(data["username"]))
        expected = self.admin_password if name in self.staff else self.user_password
        return name if compare_digest(data["password"].encode(), expected.encode()) else None


def configure_login(c: Any, settings: HubSettings) -> None:
    """Choose and configure the authenticator. Raises LabkitError if it cannot work on this machine."""
    course = settings.course
    if taken := sorted(filter(belongs_to_the_machine, {*course.students, *settings.staff})):
        raise LabkitError(
            f"{settings.file}: {taken[0]!r} is an account of this machine itself; give the person another"
        )
    c.JupyterHub.template_paths = [_TEMPLATES]
    kind = settings.login.kind
    c.JupyterHub.template_vars = {"staff": sorted(settings.staff), "has_passwords": kind == "native"}
    c.JupyterHub.template_vars["login_hint"] = _HINTS.get(kind, "")
    c.Authenticator.admin_users = set(settings.hub.admins)
    if course.students:
        c.Authenticator.allowed_users = {*course.students, *settings.staff}
        c.Authenticator.allow_existing_users = False  # people who leave the class list lose access
    elif kind == "oauth":  # where anyone can have an account; login.oauth may allow more people
        c.Authenticator.allowed_users = set(settings.staff)
    else:
        c.Authenticator.allow_all = True
    {"native": _native, "pam": _pam, "shared-password": _shared, "oauth": configure_site_accounts}[kind](c, settings)


def _native(c: Any, settings: HubSettings) -> None:
    c.JupyterHub.authenticator_class = ClassAuthenticator
    # nativeauthenticator's pages, also where JupyterHub renders errors; ours extend them as templates/NAME.html.
    c.JupyterHub.template_paths = [_TEMPLATES, TEMPLATE_DIR, str(Path(TEMPLATE_DIR).parent)]
    c.ClassAuthenticator.first_passwords = str(settings.state / "first-passwords")
    c.ClassAuthenticator.staff = set(settings.staff)
    c.ClassAuthenticator.open_signup = bool(settings.course.students)  # without a class list, staff admits each person
    c.ClassAuthenticator.minimum_password_length = 8
    c.ClassAuthenticator.check_common_password = True
    c.ClassAuthenticator.allowed_failed_logins = 10


def _pam(c: Any, settings: HubSettings) -> None:
    rows = Path("/proc/self/uid_map").read_text().split()
    if os.geteuid() != 0 or rows[:2] != ["0", "0"]:
        raise LabkitError("login.kind 'pam' asks this machine for passwords, which root alone may; start as root")
    c.JupyterHub.authenticator_class = PamAccounts


def _shared(c: Any, settings: HubSettings) -> None:
    path = settings.base / settings.login.password_file
    try:
        words = path.read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise LabkitError(f"login.password_file {path} cannot be read ({getattr(error, 'strerror', error)})") from None
    if len(words) != 2 or len(words[0]) < 8 or len(words[1]) < 32 or words[0] == words[1]:
        raise LabkitError(
            f"{path}: expected two lines, the students' password (8 letters or more) and the instructors' (32 or more)"
        )
    c.JupyterHub.authenticator_class = SharedPasswords
    c.SharedPasswords.staff = set(settings.staff)
    c.SharedPasswords.user_password, c.SharedPasswords.admin_password = words
