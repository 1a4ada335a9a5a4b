"""Headers of every kind of page that people reach: of the Hub, of a person's server and of the course's service."""

from __future__ import annotations

import re

import pytest
import requests
import requests_unixsocket

from mlsys_grading.hub.sockets import Sockets, url
from tests.hub.hub_process import PATIENCE_SECONDS, Hub, Person, needs_hub

pytestmark = [needs_hub, pytest.mark.xdist_group("hub"), pytest.mark.timeout(900)]

# person, path, status of the answer
DOORS = [
    ("", "/hub/login", 200),
    ("", "/hub/home", 302),
    ("", "/hub/no-such-page", 404),
    ("", "/hub/api/user", 403),
    ("", "/hub/static/css/style.min.css", 200),
    ("", "/hub/static/no-such-file", 404),
    ("", "/hub/logo", 200),
    ("", "/hub/health", 200),
    ("", "/user/ada/lab", 302),
    ("", "/user/ada/static/favicon.ico", 200),
    ("", "/services/mlsys/lab", 302),
    ("ada", "/hub/home", 200),
    ("ada", "/hub/spawn/ada", 302),
    ("ada", "/hub/token", 200),
    ("ada", "/hub/admin", 403),
    ("ada", "/hub/api/user", 200),
    ("ada", "/user/ada/lab", 200),
    ("ada", "/user/ada/no-such-page", 404),
    ("ada", "/user/ada/api/contents", 200),
    ("ada", "/hub/user/cleo/lab", 404),
    ("ada", "/services/mlsys/lab", 302),
    ("cleo", "/hub/user/cleo/lab", 424),
    ("grace", "/services/mlsys/lab", 200),
    ("grace", "/services/mlsys/formgrader/manage_assignments", 200),
    ("grace", "/services/mlsys/no-such-page", 404),
]


@pytest.fixture(scope="module")
def grace(hub: Hub) -> Person:
    return hub.log_in("grace")


def answer(hub: Hub, person: Person | None, path: str, proto: str = "") -> requests.Response:
    session = person.session if person else requests.Session()
    headers = {"Referer": f"{hub.url}/hub/home", "X-XSRFToken": person.token("/hub/") if person else ""}
    if proto:
        headers["X-Forwarded-Proto"] = proto
    if person and path.startswith("/services/"):  # whose login leads over the Hub
        session.get(hub.url + path, timeout=PATIENCE_SECONDS)
    return session.get(hub.url + path, headers=headers, allow_redirects=False, timeout=PATIENCE_SECONDS)


def test_every_page_has_safe_headers(hub: Hub, ada: Person, grace: Person) -> None:
    people = {"": None, "ada": ada, "grace": grace, "cleo": hub.log_in("cleo")}
    found = {}
    for name, path, status in DOORS:
        got = answer(hub, people[name], path)
        where = f"{name or 'nobody'} at {path}: {got.status_code}"
        wrong = [] if got.status_code == status else [f"status {got.status_code} for {status}"]
        if got.headers.get("X-Content-Type-Options") != "nosniff":
            wrong.append("X-Content-Type-Options")
        if got.headers.get("Referrer-Policy") != "same-origin":
            wrong.append("Referrer-Policy")
        if not re.search(r"frame-ancestors '(self|none)'", got.headers.get("Content-Security-Policy", "")):
            wrong.append("frame-ancestors")
        wrong += [key for key in ("Server", "X-JupyterHub-Version", "X-Powered-By") if key in got.headers]
        wrong += ["HSTS without TLS"] if "Strict-Transport-Security" in got.headers else []
        if wrong:
            found[where] = wrong
    assert not found, "\n".join(f"{where}: {', '.join(wrong)}" for where, wrong in found.items())


def test_browsers_are_told_to_keep_to_tls_only_behind_tls(hub: Hub, ada: Person, grace: Person) -> None:
    for person, path in ((None, "/hub/login"), (ada, "/user/ada/lab"), (grace, "/services/mlsys/lab")):
        for proto, expected in (("https", "max-age=31536000"), ("http", None), ("", None)):
            got = answer(hub, person, path, proto).headers.get("Strict-Transport-Security")
            assert got == expected, (path, proto)


def test_the_hub_still_compares_versions(hub: Hub, ada: Person) -> None:
    """Ask the Hub as a server of it does, without the proxy, and look for its complaint about versions in the log."""
    straight = requests_unixsocket.get(f"{url(Sockets.of(hub.state).hub)}/hub/api", timeout=PATIENCE_SECONDS)
    assert straight.headers["X-JupyterHub-Version"] == straight.json()["version"]
    assert "has no version header" not in hub.log + ada.log
