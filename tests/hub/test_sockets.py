"""The Hub's parts reach one another by sockets that nobody else can take, at any moment: start, stop, kill, restart."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests_unixsocket

from mlsys_grading.hub import sockets
from mlsys_grading.hub.settings import read_settings
from mlsys_grading.hub.sockets import Sockets
from mlsys_labkit.errors import LabkitError
from tests.hub.hub_process import PATIENCE_SECONDS, STUDENTS_PASSWORD, Hub, Person, needs_hub, until

pytestmark = [needs_hub, pytest.mark.xdist_group("hub"), pytest.mark.timeout(900)]

# What a person of the machine can try against the sockets of the Hub. It prints the attempts that succeeded.
TAKE_OVER = """
import os, socket
folder = {folder!r}
def listen(path):
    made = socket.socket(socket.AF_UNIX)
    made.bind(path)
    made.listen()
def connect(path):
    socket.socket(socket.AF_UNIX).connect(path)
own = os.path.join(folder, "own")
attempts = {{
    "list": lambda: os.listdir(own),
    "enter": lambda: os.chdir(own),
    "remove the Hub's": lambda: os.unlink(os.path.join(folder, "hub")),
    "replace the Hub's": lambda: os.rename(os.path.join(folder, "hub"), os.path.join(folder, "old")),
    "listen as the Hub": lambda: listen(os.path.join(folder, "hub")),
    "listen beside the Hub": lambda: listen(os.path.join(folder, "mine")),
    "move the folder": lambda: os.rename(folder, folder + "-old"),
    "chmod": lambda: os.chmod(own, 0o777),
    "reach the proxy": lambda: connect(os.path.join(own, "proxy")),
    **{{f"listen as {{uid}}": lambda uid=uid: listen(os.path.join(own, str(uid))) for uid in {uids}}},
    **{{f"connect to {{uid}}": lambda uid=uid: connect(os.path.join(own, str(uid))) for uid in {uids}}},
}}
for name, attempt in attempts.items():
    try:
        attempt()
    except (PermissionError, FileNotFoundError, OSError):
        continue
    print(name)
"""


def _of(hub: Hub) -> Sockets:
    return Sockets.of(hub.state)


def _uids(hub: Hub) -> list[int]:
    return [each.stat().st_uid for each in (hub.state / "homes").iterdir()]


def test_the_public_port_is_the_only_one(hub: Hub, ada: Person, bob: Person) -> None:
    ada.run("pass")
    assert hub.ports() == {hub.port}


def test_a_person_takes_no_socket(hub: Hub, ada: Person, bob: Person) -> None:
    attack = TAKE_OVER.format(folder=str(_of(hub).folder), uids=_uids(hub))
    assert bob.run(attack) == ""
    assert ada.get("api/contents").ok, "they are where they were"
    assert hub.log_in("grace").session.get(f"{hub.url}/services/mlsys/lab", timeout=PATIENCE_SECONDS).ok


def test_a_person_holds_few_connections_to_the_hub(hub: Hub, ada: Person, bob: Person) -> None:
    """Open many, of which the Hub would keep each as an open file. Only the last is closed at bob's end, too."""
    assert hub.process is not None
    code = f"""
import socket
links = []
for _ in range(500):
    links.append(socket.socket(socket.AF_UNIX))
    links[-1].connect({str(_of(hub).hub)!r})
links[-1].settimeout({PATIENCE_SECONDS})
print(links[-1].recv(1) == b"")
"""
    before = psutil.Process(hub.process.pid).num_fds()
    kernel = bob.request("POST", "api/kernels", json={"name": "python3"}).json()["id"]
    assert bob.run_in(kernel, code).strip() == "True", "the last was closed by the Hub"
    assert psutil.Process(hub.process.pid).num_fds() < before + 200
    assert hub.log_in("ada").is_logged_in
    bob.request("DELETE", f"api/kernels/{kernel}")
    assert bob.get("api/contents").ok


def test_a_server_that_was_killed_leaves_its_visitors_to_the_hub(hub: Hub, ada: Person, bob: Person) -> None:
    (uid,) = [int(word) for word in ada.run("import os; print(os.getuid())").split()]
    for server in hub.servers():
        if server.environ().get("JUPYTERHUB_USER") == "ada" and "homes/ada" in server.environ()["HOME"]:
            server.kill()
            psutil.wait_procs([server], timeout=PATIENCE_SECONDS)
    attack = TAKE_OVER.format(folder=str(_of(hub).folder), uids=[uid])
    assert bob.run(attack) == ""
    page, patient = f"{hub.url}/user/ada/lab", {"timeout": PATIENCE_SECONDS, "allow_redirects": False}
    until("the Hub offers a new server", lambda: ada.session.get(page, **patient).status_code == 302)


def test_nobody_answers_for_a_hub_that_was_killed(hub: Hub, bob: Person) -> None:
    """Kill the Hub, and with it the course's service. Bob listens wherever he can; an instructor comes by."""
    grace = hub.log_in("grace")
    assert grace.session.get(f"{hub.url}/services/mlsys/lab", timeout=PATIENCE_SECONDS).ok
    kernel = bob.request("POST", "api/kernels", json={"name": "python3"}).json()["id"]
    hub.kill()
    course = f"{hub.url}/services/mlsys/"
    until("the course has ended", lambda: grace.session.get(course, timeout=PATIENCE_SECONDS).status_code == 503)
    assert bob.run_in(kernel, TAKE_OVER.format(folder=str(_of(hub).folder), uids=_uids(hub))) == ""
    for address in (course, f"{hub.url}/hub/login", f"{hub.url}/hub/api", f"{hub.url}/user/cleo/"):
        answer = grace.session.get(address, timeout=PATIENCE_SECONDS)
        assert answer.status_code == 503, address
        assert "Set-Cookie" not in answer.headers
    hub.start()
    assert bob.run_in(kernel, "print('here')").strip() == "here", "his server went on"
    assert hub.log_in("grace").session.get(f"{course}lab", timeout=PATIENCE_SECONDS).ok


def test_a_killed_course_comes_back(hub: Hub) -> None:
    grace = hub.log_in("grace")
    address = f"{hub.url}/services/mlsys/lab"
    assert grace.session.get(address, timeout=PATIENCE_SECONDS).status_code == 200
    (server,) = [each for each in hub.servers() if each.environ()["HOME"].endswith("homes/grader-mlsys")]
    server.kill()
    psutil.wait_procs([server], timeout=PATIENCE_SECONDS)
    answers = {grace.session.get(address, timeout=PATIENCE_SECONDS).status_code}
    assert answers <= {503, 200}, "it says that the course is not there, unless it is back already"
    until("the course is back", lambda: grace.session.get(address, timeout=PATIENCE_SECONDS).status_code == 200)
    assert server not in hub.servers()


def test_a_killed_proxy_comes_back_to_the_same_servers(hub: Hub, ada: Person) -> None:
    kept = psutil.Process(int((hub.state / "proxy.pid").read_text()))
    kept.kill()
    psutil.wait_procs([kept], timeout=PATIENCE_SECONDS)

    def again() -> bool:
        try:
            return ada.get("api/contents").ok
        except OSError:
            return False

    until("the proxy is back", again)


def test_a_hub_without_any_port(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Serve the public address, too, at a socket, to which another user of the machine may connect."""
    folder = tmp_path_factory.mktemp("portless")
    public = Path(tempfile.mkdtemp(prefix="Hub-")) / "public"  # short: man 7 unix
    public.parent.chmod(0o755)
    hub = _PortlessHub(folder, more=f'[hub]\nstate = "{folder}/home/state"\naddress = "{public}"\n')
    ask = f"""
import os, socket
os.setresuid(65534, 65534, 65534)
link = socket.socket(socket.AF_UNIX)
link.connect({str(public)!r})
link.sendall(b"GET /hub/login HTTP/1.0\\r\\nHost: hub.example.edu\\r\\n\\r\\n")
print(link.recv(12).decode())
"""
    with hub:
        asked = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True)
        assert asked.stdout.split() == ["HTTP/1.1", "200"], asked.stderr
        assert _login_cookies(hub, "https") == {True}
        assert _login_cookies(hub, "http") == {False}
        assert hub.ports() == set()
        kept = psutil.Process(int((hub.state / "proxy.pid").read_text()))
        kept.kill()
        psutil.wait_procs([kept], timeout=PATIENCE_SECONDS)
        until("the proxy is back", hub._is_up)
    shutil.rmtree(public.parent)


def _login_cookies(hub: Hub, protocol: str) -> set[bool]:
    """Log in behind a server that speaks ``protocol``. Return True for cookies that browsers send by HTTPS alone."""
    with requests_unixsocket.Session() as session:
        session.headers["X-Forwarded-Proto"] = protocol
        page = session.get(f"{hub.url}/hub/login", timeout=PATIENCE_SECONDS)
        token = page.cookies["_xsrf"]
        data = {"username": "ada", "password": STUDENTS_PASSWORD, "_xsrf": token}
        more: dict[str, Any] = {"headers": {"Cookie": f"_xsrf={token}"}, "timeout": PATIENCE_SECONDS}
        answer = session.post(f"{hub.url}/hub/login", data=data, allow_redirects=False, **more)
        assert answer.status_code == 302
        return {each.secure for each in answer.cookies if each.name != "_xsrf"}


class _PortlessHub(Hub):
    @property
    def url(self) -> str:
        return sockets.url(read_settings(self.settings).hub.socket or Path())

    def _is_up(self) -> bool:
        with requests_unixsocket.monkeypatch():
            return super()._is_up()


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = Sockets(tmp_path / "hub")
    mine.prepare()
    mine.prepare()
    assert [path.stat().st_mode & 0o777 for path in (mine.folder, mine.folder / "own")] == [0o755, 0o700]
    (tmp_path / "link").symlink_to(mine.folder)
    with pytest.raises(LabkitError, match="remove it"):
        Sockets(tmp_path / "link").prepare()
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    with pytest.raises(LabkitError, match="belongs to somebody else"):
        mine.prepare()


def test_states_have_folders_of_their_own() -> None:
    names = {Sockets.of(Path(state)).folder for state in ("/srv/a", "/srv/b", "/srv/../srv/a")}
    assert len(names) == 2
    longest = max(str(Sockets(name).server(2**32 - 2)) + ":80" for name in names)
    assert len(longest) < 108, "man 7 unix: sun_path"
    assert longest == longest.lower(), "JupyterHub reads a host's name in lower case"


def test_a_program_without_a_socket_says_who_starts_it() -> None:
    code = "from mlsys_grading.hub.sockets import handed_down; handed_down()"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode != 0
    assert "the Hub starts it" in ended.stderr


def test_nobody_waits_at_the_socket_of_a_server_that_ended(tmp_path: Path) -> None:
    """Listen twice at one name: who comes reaches the second, and nobody once both have ended."""
    path = tmp_path / "s"
    first = sockets.listen(path)
    second = sockets.listen(path)
    for name in (path, Path(f"{path}:80")):
        with socket.socket(socket.AF_UNIX) as visitor:
            visitor.connect(str(name))
            second.accept()[0].close()
    first.close()
    second.close()
    with socket.socket(socket.AF_UNIX) as visitor, pytest.raises(ConnectionRefusedError):
        visitor.connect(str(path))


def test_a_server_ends_after_its_most_hours(hub: Hub, ada: Person) -> None:
    """Send the signal of the timer, which hours of waiting would send."""
    (server,) = [each for each in hub.servers() if "homes/ada" in each.environ()["HOME"]]
    server.send_signal(signal.SIGALRM)
    assert not psutil.wait_procs([server], timeout=PATIENCE_SECONDS)[1]
