"""Accounts that people make themselves: sign-up by the class list or by admission, and the page that admits.

nativeauthenticator keeps names and hashes of passwords and shows the forms. The answers to the forms are ours: its
login does not run under JupyterHub 6, it admits by a link that any page could open in an admin's browser, and it hashes
each password in the Hub's event loop, which answers no one else for the quarter of a second that this takes.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import bcrypt
from jupyterhub.handlers.login import LoginHandler
from nativeauthenticator import NativeAuthenticator, handlers as native
from nativeauthenticator.orm import UserInfo
from tornado import web
from tornado.escape import url_escape
from traitlets import Set, Unicode

from mlsys_grading.hub.accounts import belongs_to_the_machine
from mlsys_grading.hub.class_list import LogOut
from mlsys_grading.hub.settings import NAME
from mlsys_labkit._base.limits import usable_cores

_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"  # none that is taken for another when read out
# Threads of their own: a flood of wrong passwords delays other logins, and neither the Hub's pages nor its servers.
_HASHING = ThreadPoolExecutor(max(1, int(usable_cores() / 2)), "labkit-password")


async def hashed(password: str, salt: bytes = b"") -> bytes:
    """Return bcrypt's hash of a password, computed in a thread; ``salt`` may be an earlier hash, to compare with."""
    return await asyncio.get_running_loop().run_in_executor(_HASHING, _hash, password, salt)


def _hash(password: str, salt: bytes = b"") -> bytes:
    made: bytes = bcrypt.hashpw(password.encode()[:72], salt or bcrypt.gensalt())  # bcrypt takes no more letters
    return made


class LoginPage(native.LoginHandler):  # type: ignore[misc]
    """nativeauthenticator's login page, whose form JupyterHub itself reads.

    nativeauthenticator 1.3.0 measures the login with a timer that JupyterHub 6 no longer has. JupyterHub's own reader
    also renders an error, such as an expired form, as this page with a message.
    """

    post = LoginHandler.post

    def _render(self, login_error: str | None = None, username: str | None = None, **error: Any) -> Any:
        """Return the page: awaitable, but a string where JupyterHub renders an error with ``sync=True``."""
        page = {"custom_html": self.authenticator.custom_html, "login_url": self.settings["login_url"]}
        page |= {"next": url_escape(self.get_argument("next", "")), "xsrf": self.xsrf_token.decode()}
        page |= {"enable_signup": self.authenticator.enable_signup, "two_factor_auth": self.authenticator.allow_2fa}
        return self.render_template(
            "native-login.html", **{**error, **page, "login_error": login_error, "username": username}
        )


class SignUpPage(native.SignUpHandler):  # type: ignore[misc]
    """nativeauthenticator's form, which tells a person whom no list names who has to admit them."""

    def get_result_message(self, user: UserInfo | None, *others: Any) -> tuple[str, str]:
        """Return the kind of the message and the message."""
        if user is not None and not user.is_authorized:
            return "alert-info", f"You can log in as {user.username} once an instructor has admitted you."
        kind, message = super().get_result_message(user, *others)
        return str(kind), str(message)

    async def post(self) -> None:
        """Make the account that the form asks for."""
        accounts = self.authenticator
        fields = ("username", "signup_password", "signup_password_confirmation")
        name, password, again = (self.get_body_argument(field, strip=False) for field in fields)
        taken, person = accounts.user_exists(name), None
        if not taken and password == again and accounts.may_sign_up(name, password):
            person = accounts.create_user(name, password, await hashed(password))
        kind, message = self.get_result_message(person, True, taken, password == again, False)
        page = {"alert": kind, "result_message": message, "tos": accounts.tos}
        self.finish(await self.render_template("signup.html", **page))


class ChangePasswordPage(native.ChangePasswordHandler):  # type: ignore[misc]
    """nativeauthenticator's form by which people change their own password."""

    @web.authenticated
    async def post(self) -> None:
        """Change the password, if the form has the old one."""
        accounts, name = self.authenticator, self.current_user.name
        fields = ("old_password", "new_password", "new_password_confirmation")
        old, new, again = (self.get_body_argument(field, strip=False) for field in fields)
        kind = "alert-danger"
        if not await accounts.is_password_of(name, old):
            message = "Your current password was incorrect. Please try again."
        elif new != again:
            message = "Your new password didn't match the confirmation. Please try again."
        elif not accounts.is_password_strong(new):
            least = accounts.minimum_password_length
            message = f"Your new password needs at least {least} characters, and must not be too common."
        else:
            accounts.set_hash(name, await hashed(new))
            kind, message = "alert-success", "Your password has been changed successfully!"
        page = {"user_name": name, "alert": kind, "result_message": message}
        self.finish(await self.render_template("change-password.html", **page))


class AdmissionPage(native.LocalBase):  # type: ignore[misc]
    """Page on which instructors admit people who signed up, and give a new password to a person who forgot theirs."""

    @web.authenticated
    async def get(self) -> None:
        self._require_staff()
        await self._show("")

    @web.authenticated
    async def post(self) -> None:
        """Do what the form asks: ``action`` is "admit", "refuse" or "reset", ``name`` is the person."""
        self._require_staff()
        name, action = self.get_body_argument("name"), self.get_body_argument("action")
        person = self.authenticator.get_user(name)
        if person is None or person.username in self.authenticator.staff:
            raise web.HTTPError(400, f"{name} is nobody who signed up")
        if action == "admit":
            person.is_authorized = True
            said = f"{person.username} may log in."
        elif action == "refuse" and not person.is_authorized:
            self.db.delete(person)
            said = f"{person.username} was refused."
        elif action == "reset":
            word = new_password()
            self.authenticator.set_hash(person.username, await hashed(word))
            said = f"{person.username} now has the password {word}, to be changed at {self.hub.base_url}change-password"
        else:
            raise web.HTTPError(400, f"{action} is no action for {person.username}")
        self.db.commit()
        await self._show(said)

    def _require_staff(self) -> None:
        if self.current_user.name not in self.authenticator.staff:
            raise web.HTTPError(403, "Only instructors admit people.")

    async def _show(self, said: str) -> None:
        people = [each for each in UserInfo.all_users(self.db) if each.username not in self.authenticator.staff]
        waiting = sorted(each.username for each in people if not each.is_authorized)
        admitted = sorted(each.username for each in people if each.is_authorized)
        self.finish(await self.render_template("admission.html", waiting=waiting, admitted=admitted, said=said))


class ClassAuthenticator(NativeAuthenticator):  # type: ignore[misc]
    """Authenticator in which no one else can sign up as an instructor before the instructor does.

    Instructors and admins have accounts from the start. Their first passwords are in a file that only the operator can
    read; they change them at ``/hub/change-password``. People on the class list sign up once; a taken name is refused.
    Without a class list, an instructor admits each person.
    """

    first_passwords = Unicode(config=True, help="the file in which instructors find their first passwords")
    staff = Set(Unicode(), config=True, help="names of instructors and admins: they admit others")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in sorted(self.staff):
            if not self.user_exists(name):
                password = new_password()
                file = os.open(self.first_passwords, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
                with open(file, "w") as passwords:  # before the account: after a crash, no password is missing
                    passwords.write(f"{name} {password}\n")
                if person := self.create_user(name, password):
                    person.is_authorized = True
                    self.db.commit()

    async def authenticate(self, handler: Any, data: dict[str, str]) -> str | None:
        """Return the name of a person who may log in. Tell a person who signed up and was not admitted yet to wait."""
        name = str(self.normalize_username(data["username"]))
        person = self.get_user(name)
        if person is None or self.is_blocked(name):
            return None
        self.add_login_attempt(name)  # before the hash: requests at the same time may not try more than ten passwords
        if not await self.is_password_of(name, data["password"]):
            return None
        self.successful_login(name)
        if not person.is_authorized:
            raise web.HTTPError(403, f"{name}: wait until an instructor admits you")
        return name

    async def is_password_of(self, name: str, password: str) -> bool:
        """Compare a password with the person's."""
        kept: bytes = self.get_user(name).password
        return secrets.compare_digest(await hashed(password, kept), kept)

    def set_hash(self, name: str, password_hash: bytes) -> None:
        self.get_user(name).password = password_hash
        self.db.commit()

    def may_sign_up(self, username: str, password: str) -> bool:
        """Return whether a new account may have this name and this password."""
        name = self.normalize_username(username)
        is_free = not self.user_exists(name) and self.validate_username(name)
        return bool(is_free and self.is_password_strong(password))

    def create_user(self, username: str, password: str, password_hash: bytes = b"") -> UserInfo | None:
        """Make an account, and return it; None if it may not have this name or this password."""
        if not self.may_sign_up(username, password):
            return None
        name = self.normalize_username(username)
        kept = password_hash or _hash(password)
        person = UserInfo(username=name, password=kept, is_authorized=self.open_signup)
        self.db.add(person)
        self.db.commit()
        return person

    def get_handlers(self, app: Any) -> list[tuple[str, type]]:
        """Return the pages. Whatever changes another person's account is on the admission page alone."""
        return [
            (r"/login", LoginPage),
            (r"/logout", LogOut),
            (r"/signup", SignUpPage),
            (r"/authorize", AdmissionPage),
            (r"/change-password", ChangePasswordPage),
        ]

    def validate_username(self, username: str) -> bool:
        on_the_list = not self.allowed_users or username in self.allowed_users
        is_free = bool(NAME.fullmatch(username)) and not belongs_to_the_machine(username)
        return on_the_list and is_free and bool(super().validate_username(username))


def new_password() -> str:
    """Return a random password of 79 bits that can be read out."""
    return "-".join("".join(secrets.choice(_LETTERS) for _ in range(4)) for _ in range(4))
