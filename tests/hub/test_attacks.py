"""Attacks of one student on the Hub and on another student: none succeeds, and each fails for the right reason."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests
from nbgrader.api import Gradebook
from websocket import create_connection

import mlsys_labkit
from mlsys_grading.hub.sockets import Sockets
from tests.hub.attacks import ALLOWED, HELPERS, INSIDE, OUTSIDE
from tests.hub.hub_process import PATIENCE_SECONDS, ROOT, Hub, Person, needs_hub, until

pytestmark = [needs_hub, pytest.mark.xdist_group("hub"), pytest.mark.timeout(900)]

LAB = "lab01_linear_algebra"
_RUN = """
attacks = {attacks}
{helpers}
def attempt(code):
    try:
        exec(code, dict(globals()))
    except (OSError, AssertionError, subprocess.CalledProcessError) as error:
        return "there is no such program" if getattr(error, "returncode", 0) == 127 else ""
    except BaseException as error:
        return f"{{type(error).__name__}}: {{error}}"
    return "succeeded"
import json
print(json.dumps({{name: told for name, code in attacks.items() if (told := attempt(code))}}))
"""


def _inside(hub: Hub, ada: Person, bob: Person, attacks: dict[str, str]) -> dict[str, str]:
    """Run ``attacks`` in bob's kernel. Return those that did not fail as they should, with what happened."""
    uid = (hub.state / "homes" / "ada").stat().st_uid
    site = next(path for path in sys.path if path.endswith("site-packages"))
    names = {
        "ADA_UID": uid, "PORT": hub.port, "STATE": hub.state, "SOCKETS": Sockets.of(hub.state).folder, "LAB": LAB,
        "EXCHANGE": hub.state / "exchange", "ROOT": ROOT, "KIT": Path(mlsys_labkit.__file__).parent, "SITE": site,
        "SINGLEUSER": hub.folder / "singleuser", "LABS": ROOT / "labs", "PASSWORDS": hub.folder / "passwords",
        "PYTHON": sys.prefix, "HIDDEN": hub.state, "PARENT": hub.state.parent,
    }  # fmt: skip
    words = re.compile(rf"(?<![A-Z_])({'|'.join(sorted(map(re.escape, names), key=len, reverse=True))})(?![A-Z_])")
    told = {name: words.sub(lambda found: str(names[found[0]]), code) for name, code in attacks.items()}
    return dict(json.loads(bob.run(_RUN.format(attacks=repr(told), helpers=HELPERS)).splitlines()[-1]))


def test_no_attack_from_inside_succeeds(hub: Hub, ada: Person, bob: Person) -> None:
    ada.run("[open(name, 'w').write('secret') for name in ('diary', '/tmp/ada-note', '/dev/shm/ada-note')]")
    assert set(_inside(hub, ada, bob, ALLOWED).values()) == {"succeeded"}, "the same code, where nothing is forbidden"
    assert len(_inside(hub, ada, bob, ALLOWED)) == len(ALLOWED)
    assert _inside(hub, ada, bob, INSIDE) == {}
    assert ada.run("print(open('diary').read())").strip() == "secret"
    assert ada.get("api/contents/diary").ok


def test_no_request_reaches_another_person(hub: Hub, ada: Person, bob: Person) -> None:
    ada.run("open('diary', 'w').write('secret')")
    bob.session.get(f"{hub.url}/user/bob/lab", timeout=PATIENCE_SECONDS)
    succeeded = [f"{verb} {path}: {told}" for verb, path in OUTSIDE if (told := _request(hub, bob, verb, path))]
    assert succeeded == []
    assert ada.get("api/contents/diary").ok
    assert _request(hub, bob, "GET", "hub/home") == "200"
    assert _request(hub, bob, "GET", "user/bob/api/contents") == "200"


def _request(hub: Hub, person: Person, verb: str, path: str) -> str:
    """Return the status of the answer if it gives something, else "". The path is sent as it is written."""
    cookies = {each.name: each.value for each in person.session.cookies if each.name != "_xsrf"}
    scope = "/hub/" if path.startswith("hub/") else f"/user/{person.name}/"
    token = person.token(scope)
    text = "; ".join(f"{name}={value}" for name, value in [*cookies.items(), ("_xsrf", token)])
    headers = {"Cookie": text, "X-XSRFToken": token, "Referer": f"{hub.url}/hub/home", "Sec-Fetch-Site": "same-origin"}
    with requests.Session() as session:
        ready = session.prepare_request(requests.Request(verb, hub.url, headers=headers, json={}))
        ready.url = f"{hub.url}/{path}"
        answer = session.send(ready, timeout=PATIENCE_SECONDS, allow_redirects=False)
    to = urlsplit(answer.headers.get("Location", "")).path
    # An answer without a body, or a way to the login, gives nothing.
    is_refusal = answer.status_code >= 400 or to.startswith(("/hub/api/oauth2/authorize", "/hub/login", "/hub/user/"))
    return "" if is_refusal else f"{answer.status_code} {to}".strip()


def test_a_cookie_ends_with_its_session(hub: Hub) -> None:
    """Replay the cookies of a session after its log-out, and those of one server at another."""
    cleo = hub.log_in("cleo")
    cookies = "; ".join(f"{each.name}={each.value}" for each in cleo.session.cookies)
    page = f"{hub.url}/hub/home"
    assert requests.get(page, headers={"Cookie": cookies}, timeout=PATIENCE_SECONDS).url == page
    cleo.session.get(f"{hub.url}/hub/logout", timeout=PATIENCE_SECONDS)
    told = requests.get(f"{hub.url}/hub/api/user", headers={"Cookie": cookies}, timeout=PATIENCE_SECONDS)
    assert told.status_code == 403


@pytest.mark.parametrize(
    "next_url", ["//evil.example", "https://evil.example/", "/\\evil.example", "http:evil.example"]
)
def test_a_login_leads_nowhere_else(hub: Hub, next_url: str) -> None:
    person = Person(hub, "bob")
    address = f"{hub.url}/hub/login"
    person.session.get(address, params={"next": next_url}, timeout=PATIENCE_SECONDS)
    data = {"username": "bob", "password": "a-password-for-all-students", "_xsrf": person.token("/hub/")}
    answer = person.session.post(
        address, params={"next": next_url}, data=data, timeout=PATIENCE_SECONDS, allow_redirects=False
    )
    assert answer.status_code == 302
    assert urlsplit(answer.headers["Location"]).netloc in ("", urlsplit(hub.url).netloc)
    assert "evil" not in urlsplit(answer.headers["Location"]).netloc


@pytest.mark.parametrize("path", ["..%2F..%2F..%2Fsubmitted%2Fbob%2Fpage%2Fpage.html", "page%2Ehtml", "page.html"])
def test_formgrader_serves_no_page_of_a_student(hub: Hub, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Open a link as bob could write it in a notebook: relative to the address at which formgrader shows it."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")  # nbgrader: alembic
    grader = (hub.state / "course").stat()
    with Gradebook(f"sqlite:///{hub.state}/course/gradebook.db") as book:
        book.update_or_create_assignment("page")
        book.update_or_create_notebook("page", "page")
        book.update_or_create_student("bob")
        shown = book.update_or_create_submission("page", "bob").notebooks[0].id
    address = f"services/mlsys/formgrader/submissions/{shown}"
    os.chown(hub.state / "course/gradebook.db", grader.st_uid, grader.st_gid)
    for step in ("submitted", "autograded"):
        page = hub.state / "course" / step / "bob/page/page.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text("<script>alert(1)</script>")
    page.with_suffix(".ipynb").write_text('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')
    grace = hub.log_in("grace")
    assert grace.session.get(f"{hub.url}/services/mlsys/formgrader/", timeout=PATIENCE_SECONDS).ok
    assert grace.session.get(f"{hub.url}/{address}/", timeout=PATIENCE_SECONDS).ok, "the notebook itself is shown"
    answer = grace.session.get(f"{hub.url}/{address}/{path}", timeout=PATIENCE_SECONDS)
    assert answer.status_code == 404
    assert "alert(1)" not in answer.text


def test_a_submission_that_is_opened_runs_nothing(hub: Hub) -> None:
    """Open a notebook in the course's JupyterLab, which starts a kernel for it, beside a module of the student's."""
    folder, ran = hub.state / "course/submitted/bob/module", hub.state / "tmp/grader-mlsys/ran"
    folder.mkdir(parents=True)
    (folder / "importlib.py").write_text("open('/tmp/ran', 'w')\n")
    grace = hub.log_in("grace")
    course = f"{hub.url}/services/mlsys/"
    assert grace.session.get(f"{course}lab", timeout=PATIENCE_SECONDS).ok
    asked = {"path": "submitted/bob/module/module.ipynb", "type": "notebook", "kernel": {"name": "python3"}}
    more: dict[str, Any] = {"headers": {"X-XSRFToken": grace.token("/services/mlsys/")}, "timeout": PATIENCE_SECONDS}
    made = grace.session.post(f"{course}api/sessions", json={"name": "module", **asked}, **more)
    kernel = f"{course}api/kernels/{made.json()['kernel']['id']}"
    cookies = "; ".join(f"{each.name}={each.value}" for each in grace.session.cookies if each.path != "/hub/")

    def has_started() -> bool:
        return ran.exists() or grace.session.get(kernel, **more).json().get("execution_state") == "idle"

    channels = f"{kernel.replace('http', 'ws', 1)}/channels"
    with contextlib.closing(create_connection(channels, cookie=cookies, origin=hub.url, timeout=PATIENCE_SECONDS)):
        until("the kernel is idle", has_started)
    grace.session.delete(kernel, **more)
    assert not ran.exists()


@pytest.mark.parametrize(
    "where", ["hub/login?username={}", "hub/error/404?url={}", "hub/{}", "user/{}/lab", "services/{}/"]
)
def test_no_page_repeats_a_script(hub: Hub, where: str) -> None:
    script = "<script>alert(1)</script>"
    for text in (script, requests.utils.quote(script)):
        with socket.create_connection(("127.0.0.1", hub.port), timeout=PATIENCE_SECONDS) as link:
            link.sendall(f"GET /{where.format(text)} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n".encode())
            page = b"".join(iter(lambda link=link: link.recv(1 << 16), b""))
        assert script.encode() not in page
