"""A name for each server: no page of a person's notebook has the origin of the Hub, in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from tests.hub.hub_process import PATIENCE_SECONDS, STUDENTS_PASSWORD, Hub, free_ports, needs_hub, send_login

pytestmark = [needs_hub, pytest.mark.xdist_group("own-hub"), pytest.mark.timeout(900)]

# What a script in a notebook's output can try. Each answer is the status, or the name of the exception.
ASK = """async (address) => {
    try { return (await fetch(address, {credentials: "include"})).status } catch (error) { return error.name }
}"""


@pytest.mark.browser
def test_a_page_of_a_server_has_not_the_origin_of_the_hub(browser: Any, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    public = f"http://hub.localhost:{port}"  # browsers resolve names below localhost by themselves
    more = f'[hub]\nstate = "{tmp_path}/home/state"\nport = {port}\nhost = "hub.localhost"\nsubdomains = true\n'
    hub = Hub(tmp_path, more=more)
    hub.port = port
    with hub:
        page = browser.new_context().new_page()
        page.set_default_timeout(1e3 * PATIENCE_SECONDS)
        page.goto(f"{public}/hub/login?next=/hub/home")
        send_login(page, "ada", STUDENTS_PASSWORD)
        assert page.url.endswith("/hub/home")
        assert page.evaluate(ASK, f"{public}/hub/token") == 200, "the Hub's own page may ask"
        page.goto(f"{public}/hub/spawn/ada")
        page.wait_for_url("**/user/ada/lab**")
        assert urlsplit(page.url).hostname == "ada.hub.localhost"
        page.wait_for_selector(".jp-Launcher, .jp-NotebookPanel")
        assert page.evaluate(ASK, f"{public}/hub/token") == "TypeError", "the browser keeps the answer"
        assert page.evaluate("document.cookie").count("jupyterhub-session-id") == 0
        page.context.close()


def test_a_page_of_a_server_cannot_replace_the_login(tmp_path: Path) -> None:
    """Log in by HTTPS. Browsers accept a cookie with this prefix from the host itself alone (RFC 6265bis, 4.1.3.2)."""
    (port,) = free_ports(1)
    hub = Hub(
        tmp_path,
        more=f'[hub]\nstate = "{tmp_path}/home/state"\nport = {port}\nhost = "hub.example.edu"\nsubdomains = true\n',
    )
    hub.port = port
    with hub:
        headers = {"Host": "hub.example.edu", "X-Forwarded-Proto": "https"}
        address, more = f"{hub.url}/hub/login", {"timeout": PATIENCE_SECONDS, "allow_redirects": False}
        page = requests.get(address, headers=headers, **more)
        token = next(each.value for each in page.cookies if each.name.endswith("_xsrf"))
        name = next(each.name for each in page.cookies if each.name.endswith("_xsrf"))
        data = {"username": "ada", "password": STUDENTS_PASSWORD, "_xsrf": token}
        answer = requests.post(address, headers=headers | {"Cookie": f"{name}={token}"}, data=data, **more)
        assert answer.status_code == 302, answer.text
        (login,) = [each for each in answer.cookies if "hub-login" in each.name]
        assert login.name.startswith("__Host-")
        assert (login.secure, login.path) == (True, "/")
        cookies = {"Cookie": f"{login.name}={login.value}"}
        assert requests.get(f"{hub.url}/hub/home", headers=headers | cookies, **more).status_code == 200
        tossed = {"Cookie": f"{login.name.removeprefix('__Host-')}={login.value}"}
        assert requests.get(f"{hub.url}/hub/home", headers=headers | tossed, **more).status_code == 302
