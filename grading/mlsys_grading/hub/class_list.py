"""Admission at the login, for accounts that the Hub does not keep: names, the class list, and the log-out.

PAM, the shared passwords and other sites' accounts have these rules in common. The Hub's own accounts are in signup.py.
"""

from __future__ import annotations

from typing import Any

from jupyterhub.auth import Authenticator
from jupyterhub.handlers.login import LogoutHandler
from jupyterhub.orm import new_token
from jupyterhub.utils import maybe_future
from tornado import web

from mlsys_grading.hub.accounts import belongs_to_the_machine
from mlsys_grading.hub.settings import NAME, NAMED

_NAMES = f"Names have {NAMED}, and are no system account's."


class LogOut(LogoutHandler):  # type: ignore[misc]
    """Log-out that ends the login cookie itself. JupyterHub only asks the browser to forget it: a copy stays valid.

    The person is logged out in all browsers, because all of them have the same value in their cookie.
    """

    def _backend_logout_cleanup(self, name: str) -> None:
        super()._backend_logout_cleanup(name)
        self.current_user.orm_user.cookie_id = new_token()
        self.db.commit()


class ClassList(Authenticator):  # type: ignore[misc]
    """Base of authenticators that admit the people on the class list and tell the others why they are refused.

    A name is never made to fit. JupyterHub writes names in lower case: where GRACE and grace are two accounts, one
    would become the other. ``any_case`` is for logins in which both are the same account.
    """

    any_case = False
    advice = "Ask your instructor which account to use."  # for a person whose name cannot be one here
    logout_handler: type = LogOut

    def normalize_username(self, username: str) -> str:
        """Return the name here. Raises HTTPError with a reason for the page if there can be no such name."""
        found = str(self.username_map.get(username, username))
        name = found.lower() if self.any_case else found
        if NAME.fullmatch(name) and not belongs_to_the_machine(name):
            return name
        shown = found if len(found) <= 40 else f"{found[:40]}…"
        raise web.HTTPError(403, f"{shown!r} cannot be a name here. {_NAMES} {self.advice}")

    async def check_allowed(self, username: str, authentication: dict[str, Any] | None = None) -> bool:
        """Return True for people who may log in. Raises HTTPError that tells the others what to do."""
        if await maybe_future(super().check_allowed(username, authentication)):
            return True
        raise web.HTTPError(
            403, f"{username} is not on the class list. Ask your instructor to add you, or log in with another account."
        )

    def get_handlers(self, app: Any) -> list[tuple[str, type]]:
        return [(r"/logout", self.logout_handler), *super().get_handlers(app)]
