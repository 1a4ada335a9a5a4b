"""Accounts that people make themselves: sign-up by the class list or by admission, and the page that admits.

nativeauthenticator keeps names and hashes of passwords and shows the forms. The login form and the admission are ours:
its login does not run under JupyterHub 6, and it admits by a link that any page could open in an admin's browser.
"""

from __future__ import annotations

import os
import secrets
from typing import Any

from jupyterhub.handlers.login import LoginHandler
from nativeauthenticator import NativeAuthenticator, handlers as native
from nativeauthenticator.orm import UserInfo
from tornado import web
from tornado.escape import url_escape
from traitlets import Set, Unicode

from mlsys_grading.hub.accounts import belongs_to_the_machine
from mlsys_grading.hub.class_list import LogOut
from mlsys_grading.hub.settings import NAME

_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"  # none that is taken for another when read out


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
            self.authenticator.change_password(person.username, word)
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
                self.create_user(name, password).is_authorized = True
                self.db.commit()

    async def authenticate(self, handler: Any, data: dict[str, str]) -> str | None:
        """Return the name of a person who may log in. Tell a person who signed up and was not admitted yet to wait."""
        name: str | None = await super().authenticate(handler, data)
        waiting = None if name else self.get_user(data["username"])
        if waiting and not waiting.is_authorized and waiting.is_valid_password(data["password"]):
            raise web.HTTPError(403, f"{waiting.username}: wait until an instructor admits you")
        return name

    def get_handlers(self, app: Any) -> list[tuple[str, type]]:
        """Return the pages. Whatever changes another person's account is on the admission page alone."""
        return [
            (r"/login", LoginPage),
            (r"/logout", LogOut),
            (r"/signup", SignUpPage),
            (r"/authorize", AdmissionPage),
            (r"/change-password", native.ChangePasswordHandler),
        ]

    def validate_username(self, username: str) -> bool:
        on_the_list = not self.allowed_users or username in self.allowed_users
        is_free = bool(NAME.fullmatch(username)) and not belongs_to_the_machine(username)
        return on_the_list and is_free and bool(super().validate_username(username))


def new_password() -> str:
    """Return a random password of 79 bits that can be read out."""
    return "-".join("".join(secrets.choice(_LETTERS) for _ in range(4)) for _ in range(4))
