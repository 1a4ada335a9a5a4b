"""Logins in a browser: the form, the way out, and what is left of a login after it."""

from __future__ import annotations

import re
from typing import Any

import requests

from tests.hub.hub_process import PATIENCE_SECONDS, ROOT, Hub, send_login

GUIDE = (ROOT / "binder/hub/OPERATORS.md").read_text(encoding="utf-8")
LOGINS = dict(re.findall(r"<!-- login: (\S+) -->\n```(?:toml|yaml)\n(.*?)```", GUIDE, re.DOTALL))


def page_of(browser: Any) -> Any:
    """Return a page of somebody who has not been here before."""
    page = browser.new_context().new_page()
    page.set_default_timeout(1e3 * PATIENCE_SECONDS)
    return page


def log_in(page: Any, hub: Hub, name: str, password: str) -> str:
    """Fill in the form, and return the message of the page, "" after a login."""
    page.goto(f"{hub.url}/hub/login?next=/hub/home")
    send_login(page, name, password)
    if page.url.endswith("/hub/home"):
        return ""
    assert page.locator(".login_error").count() == 1, f"neither home nor a reason:\n{page.inner_text('body')}"
    return str(page.inner_text(".login_error"))


def opened(hub: Hub, cookies: dict[str, str]) -> list[str]:
    """Return the pages that answer to these cookies, of all for which one has to log in."""
    paths = ["/hub/home", "/hub/token", "/hub/spawn", "/hub/api/user", "/services/mlsys/", "/hub/user-redirect/lab"]
    found = []
    for path in paths:
        headers = {"Referer": f"{hub.url}/hub/home", "X-XSRFToken": cookies.get("_xsrf", "")}
        answer = requests.get(hub.url + path, cookies=cookies, headers=headers, timeout=PATIENCE_SECONDS)
        if answer.status_code == 200 and "/login" not in answer.url:
            found.append(path)
    return found


def log_out(page: Any, hub: Hub) -> None:
    """Log out, and check that neither the browser nor a copy of its cookies opens a page."""
    kept = {each["name"]: each["value"] for each in page.context.cookies()}
    assert "/hub/home" in opened(hub, kept)
    page.click("#logout")
    page.wait_for_url("**/hub/login*")
    page.goto(f"{hub.url}/hub/home")
    assert "/hub/login" in page.url
    assert opened(hub, kept) == []
