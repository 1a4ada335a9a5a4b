"""Login to the Hub: the authenticator for the table ``[login]`` of the settings."""

from __future__ import annotations

import os
import secrets
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from nativeauthenticator import NativeAuthenticator
from traitlets import Unicode

from mlsys_grading.hub.settings import NAME, HubSettings
from mlsys_labkit.errors import LabkitError

_SECRETS = ("client_secret", "password", "secret_key")
_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"  # none that is taken for another when read out


class ClassAuthenticator(NativeAuthenticator):  # type: ignore[misc]
    """Authenticator in which no one else can sign up as an instructor before the instructor does.

    Each instructor has an account from the start. Its first password is in a file that only the operator can read; the
    instructor changes it at ``/hub/change-password``. People on the class list sign up once; a taken name is refused.
    """

    first_passwords = Unicode(config=True, help="the file in which instructors find their first passwords")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in sorted(self.admin_users):
            if not self.user_exists(name):
                password = "-".join("".join(secrets.choice(_LETTERS) for _ in range(4)) for _ in range(4))
                file = os.open(self.first_passwords, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
                with open(file, "w") as passwords:  # before the account: after a crash, no password is missing
                    passwords.write(f"{name} {password}\n")
                self.create_user(name, password)

    def validate_username(self, username: str) -> bool:
        on_the_list = not self.allowed_users or username in self.allowed_users
        return on_the_list and bool(NAME.fullmatch(username)) and bool(super().validate_username(username))


def configure_login(c: Any, settings: HubSettings) -> None:
    """Choose and configure the authenticator. Raises LabkitError if it cannot work on this machine."""
    course = settings.course
    c.Authenticator.admin_users = set(course.instructors)
    if course.students:
        c.Authenticator.allowed_users = {*course.students, *course.instructors}
        c.Authenticator.allow_existing_users = False  # people who leave the class list lose access
    else:
        c.Authenticator.allow_all = True
    {"native": _native, "pam": _pam, "shared-password": _shared, "oauth": _oauth}[settings.login.kind](c, settings)


def _native(c: Any, settings: HubSettings) -> None:
    c.JupyterHub.authenticator_class = ClassAuthenticator
    c.ClassAuthenticator.first_passwords = str(settings.state / "first-passwords")
    c.ClassAuthenticator.open_signup = True
    c.ClassAuthenticator.minimum_password_length = 8
    c.ClassAuthenticator.check_common_password = True
    c.ClassAuthenticator.allowed_failed_logins = 10


def _pam(c: Any, settings: HubSettings) -> None:
    rows = Path("/proc/self/uid_map").read_text().split()
    if os.geteuid() != 0 or rows[:2] != ["0", "0"]:
        raise LabkitError("login.kind 'pam' asks this machine for passwords, which root alone may; start as root")
    c.JupyterHub.authenticator_class = "pam"


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
    c.JupyterHub.authenticator_class = "shared-password"
    c.SharedPasswordAuthenticator.user_password, c.SharedPasswordAuthenticator.admin_password = words


def _oauth(c: Any, settings: HubSettings) -> None:
    login, file = settings.login, settings.file
    found = {each.name: each for each in entry_points(group="jupyterhub.authenticators")}
    try:
        kind = found[login.provider].load()
    except (KeyError, ImportError):
        known = ", ".join(sorted(found))
        raise LabkitError(
            f"{file}: there is no authenticator {login.provider!r}; pip install oauthenticator, or take one of {known}"
        ) from None
    for name, value in login.oauth.items():
        if name in _SECRETS:
            raise LabkitError(f"{file}: login.oauth.{name} is a secret; put it into the environment instead")
        if name not in kind.class_trait_names(config=True):
            raise LabkitError(f"{file}: {kind.__name__} has no setting login.oauth.{name}")
        is_set = isinstance(kind.class_traits()[name].default_value, set)
        c[kind.__name__][name] = set(value) if type(value) is list and is_set else value
    c.JupyterHub.authenticator_class = kind
