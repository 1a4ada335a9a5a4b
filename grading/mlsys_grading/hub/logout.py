"""Log-out that ends every session of a person: JupyterHub's own only asks the browser to forget its cookie.

A copy of the cookie, taken from a shared computer, would open the Hub for two weeks more.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from jupyterhub.handlers.login import LogoutHandler
from jupyterhub.orm import new_token


class _EndSessions:
    """Part of a log-out page: the secret that the person's cookies hold is replaced."""

    current_user: Any
    db: Any

    async def handle_logout(self) -> None:
        if user := self.current_user:
            user.orm_user.cookie_id = new_token()
            self.db.commit()
        await super().handle_logout()  # type: ignore[misc]


def ending_sessions(authenticator: str | type) -> type:
    """Return a class like ``authenticator``, a class or its name in JupyterHub, whose log-out ends all sessions."""
    if isinstance(authenticator, str):
        (point,) = entry_points(group="jupyterhub.authenticators", name=authenticator)
        authenticator = point.load()
    kind: Any = authenticator

    def get_handlers(self: Any, app: Any) -> list[tuple[Any, ...]]:
        given = kind.get_handlers(self, app)
        page = next((handler for path, handler, *_ in given if path == r"/logout"), LogoutHandler)
        return [(r"/logout", type("LogOut", (_EndSessions, page), {})), *given]

    return type(kind.__name__, (kind,), {"get_handlers": get_handlers})
