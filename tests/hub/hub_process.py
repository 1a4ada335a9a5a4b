"""Real Hub on free ports with its state in a temporary folder, and people who use it by HTTP or in a browser.

``Hub(folder)`` starts JupyterHub with binder/hub/jupyterhub_config.py; as a context manager it ends it, its proxy and
every server. Each wait is for a condition, with a deadline that a machine with twenty times its work meets.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest
import requests

from mlsys_grading.hub.sockets import Sockets

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "binder" / "hub" / "jupyterhub_config.py"
STUDENTS_PASSWORD = "a-password-for-all-students"
INSTRUCTORS_PASSWORD = "a-password-for-all-instructors-of-the-course"
PATIENCE_SECONDS = 600.0  # more than any step takes on a machine with twenty times its work; no test waits it out

# The kernel hands out ports from here on. Reference: Linux, Documentation/networking/ip-sysctl.rst.
_HANDED_OUT = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])

_T = TypeVar("_T")


AS_ROOT = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "true"]
LENT_IDS = ["--user", "--map-root-user", "--map-auto", "--setgroups", "allow"]


def why_not() -> str:
    """Return the reason why no Hub can be started here; "" if one can."""
    if not _has_proxy():
        return "needs configurable-http-proxy; make hub installs it"
    tried = AS_ROOT if os.geteuid() == 0 else ["unshare", *LENT_IDS, *AS_ROOT[1:]]
    made = subprocess.run(tried, capture_output=True, text=True)
    return f"no mount namespace can be made ({made.stderr.strip()})" if made.returncode else ""


def _has_proxy() -> bool:
    local = Path(sys.prefix, "lib/node_modules/configurable-http-proxy")
    return local.is_dir() or shutil.which("configurable-http-proxy") is not None


def labkit(*words: str) -> list[str]:
    return [sys.executable, str(Path(sys.executable).parent / "labkit"), *words]


# Every Hub of this process, and a mark that its children inherit, for the check that no process is left.
FOLDERS: list[Path] = []
MARK = secrets.token_hex(16)
# Ends the Hub that the folder's tests share: when the session ends, or in the test that looks for what is left.
SHARED = contextlib.ExitStack()
os.environ["MLSYS_HUB_TESTS"] = MARK

needs_hub = pytest.mark.skipif(bool(why_not()), reason=why_not() or "a Hub can be started")


def free_ports(count: int) -> list[int]:
    """Return ports that no process listens to, outside the range that the system hands out: they stay free."""
    found: set[int] = set()
    while len(found) < count:
        with socket.socket() as trial, contextlib.suppress(OSError):
            trial.bind(("127.0.0.1", random.SystemRandom().randrange(10_000, _HANDED_OUT)))
            found.add(int(trial.getsockname()[1]))
    return list(found)


def until(what: str, ask: Callable[[], _T], seconds: float = PATIENCE_SECONDS) -> _T:
    """Call ``ask`` until its answer is true, and return the answer."""
    end, pause = time.monotonic() + seconds, 0.02
    while not (answer := ask()):
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        time.sleep(pause)
        pause = min(1.5 * pause, 0.5)  # a question costs a busy Hub as much as a page
    return answer


@dataclass
class Hub:
    """One Hub. ``more`` is appended to its settings, or replaces a table of them; ``config`` to JupyterHub's own.

    Example:
        with Hub(tmp_path) as hub:
            ada = hub.log_in("ada")
            ada.start_server()
            assert ada.get("api/contents/mlsys").json()["content"]
    """

    folder: Path
    students: tuple[str, ...] = ("ada", "bob")
    instructors: tuple[str, ...] = ("grace",)
    more: str = ""
    config: str = ""
    labs: Path = ROOT / "labs"
    command: list[str] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None
    port: int = 0

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        FOLDERS.append(self.folder)
        beside = self.folder / "jupyterhub_config.py"
        patient = f"c.Spawner.start_timeout = c.Spawner.http_timeout = {PATIENCE_SECONDS:.0f}"
        beside.write_text(f"{self.config}\nload_subconfig({str(CONFIG)!r})\nc = get_config()\n{patient}\n")
        if not self.command:
            as_root = [sys.executable, "-m", "jupyterhub", "-f", str(beside)]
            self.command = as_root if os.geteuid() == 0 else labkit("hub", str(self.settings))
        (self.port,) = free_ports(1)
        passwords = self.folder / "passwords"
        passwords.write_text(f"{STUDENTS_PASSWORD}\n{INSTRUCTORS_PASSWORD}\n")
        passwords.chmod(0o600)
        tables = {
            "hub": f'port = {self.port}\nstate = "{self.state}"\n',
            "login": f'kind = "shared-password"\npassword_file = "{passwords}"\n',
            "course": f"students = {list(self.students)}\ninstructors = {list(self.instructors)}\n"
            f'labs = "{self.labs}"\n',
        }
        plain = "".join(f"[{name}]\n{text}" for name, text in tables.items() if f"[{name}]" not in self.more)
        self.settings.write_text(plain + self.more)
        if not (self.folder / "singleuser").exists():
            shutil.copytree(ROOT / "binder/hub/singleuser", self.folder / "singleuser")

    @property
    def settings(self) -> Path:
        return self.folder / "hub.toml"

    @property
    def state(self) -> Path:
        """The state folder, in the home of the ordinary user of ``as_a_user``."""
        return self.folder / "home" / "state"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        path = self.folder / "hub.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def __enter__(self) -> Hub:
        try:
            self.start()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def start(self) -> None:
        """Start the Hub, and wait for its login page and the course's service."""
        environment = os.environ | {"MLSYS_HUB_SETTINGS": str(self.settings), "PYTHONUNBUFFERED": "1"}
        with open(self.folder / "hub.log", "ab") as log:
            self.process = subprocess.Popen(
                self.command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        until("a login page and the course", self._is_up)

    def _is_up(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError(f"the Hub ended with status {self.process.returncode}:\n{self.log[-4000:]}")
        try:
            course = requests.get(f"{self.url}/services/mlsys/", timeout=30, allow_redirects=False)
            return course.status_code != 503 and requests.get(f"{self.url}/hub/login", timeout=30).status_code == 200
        except requests.RequestException:
            return False

    def kill(self) -> None:
        """Send SIGKILL to the Hub alone: its servers and its proxy go on."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(PATIENCE_SECONDS)

    def end(self) -> None:
        """End the Hub, and every process that it has left."""
        left = self.servers()
        if self.process is not None and self.process.poll() is None:
            left += psutil.Process(self.process.pid).children(recursive=True)
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(30)
            self.process.kill()
            self.process.wait(PATIENCE_SECONDS)
        with contextlib.suppress(OSError, ValueError, psutil.NoSuchProcess):
            left.append(psutil.Process(int((self.state / "proxy.pid").read_text())))
        left += self.servers()
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=PATIENCE_SECONDS)
        shutil.rmtree(Sockets.of(self.state).folder, ignore_errors=True)

    def servers(self) -> list[psutil.Process]:
        """Return the outermost process of each server, people's and the course's, also of an earlier Hub."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                about = " ".join(process.cmdline())
                mine = str(self.state) in process.environ().get("HOME", "") and "mlsys_grading.hub.enter" in about
                parent = process.parent()
                if mine and not (parent and "mlsys_grading.hub.enter" in " ".join(parent.cmdline())):
                    found.append(process)
        return found

    def ports(self) -> set[int]:
        """Return the TCP ports to which the Hub, its proxy, a server, or anything that they have started listens.

        Kernels are left out: for the output of forks, ipykernel listens to a port of its own, which takes only messages
        that begin with a secret (ipykernel/iostream.py).
        """
        assert self.process is not None
        roots = [psutil.Process(self.process.pid), psutil.Process(int((self.state / "proxy.pid").read_text()))]
        found = set()
        for root in (*roots, *self.servers()):
            for process in (root, *root.children(recursive=True)):
                if "ipykernel_launcher" in process.cmdline():
                    continue
                listening = [each for each in process.net_connections("inet") if each.status == psutil.CONN_LISTEN]
                found |= {each.laddr.port for each in listening}
        return found

    def log_in(self, name: str, password: str | None = None) -> Person:
        """Return a session of ``name`` after a login in the form of the page."""
        if password is None:
            password = INSTRUCTORS_PASSWORD if name in self.instructors else STUDENTS_PASSWORD
        person = Person(self, name)
        page = person.session.get(f"{self.url}/hub/login", timeout=PATIENCE_SECONDS)
        page.raise_for_status()
        data = {"username": name, "password": password, "_xsrf": person.token("/hub/")}
        person.answer = person.session.post(f"{self.url}/hub/login?next=/hub/home", data=data, timeout=PATIENCE_SECONDS)
        return person

    def open_page(self, browser: Any, name: str, **context: Any) -> Any:
        """Return the Hub's home page in Playwright's ``browser``, in which ``name`` has logged in."""
        page = browser.new_context(**context).new_page()
        page.set_default_timeout(1e3 * PATIENCE_SECONDS)
        page.goto(f"{self.url}/hub/login?next=/hub/home")
        send_login(page, name, INSTRUCTORS_PASSWORD if name in self.instructors else STUDENTS_PASSWORD)
        assert page.url.endswith("/hub/home"), page.inner_text("body")
        return page


def send_login(page: Any, name: str, password: str) -> None:
    """Fill in the login form, send it by the Enter key, and wait for the page that answers."""
    page.fill("#username_input", name)
    page.fill("#password_input", password)
    with page.expect_navigation():
        page.press("#password_input", "Enter")


@dataclass
class Person:
    """A person who has logged in, with the cookies of a browser."""

    hub: Hub
    name: str
    session: requests.Session = field(default_factory=requests.Session)
    answer: requests.Response | None = None

    def token(self, path: str) -> str:
        """Return the XSRF token of pages below ``path``."""
        return next((str(each.value) for each in self.session.cookies if (each.name, each.path) == ("_xsrf", path)), "")

    @property
    def is_logged_in(self) -> bool:
        return self.session.get(f"{self.hub.url}/hub/home", timeout=PATIENCE_SECONDS).url.endswith("/hub/home")

    def start_server(self, **options: str) -> None:
        """Start the server, unless it runs, and wait until Lab answers; ``options`` fill in the form."""
        if not self.server.get("ready"):
            self._spawn(options)
        elif self.token(f"/user/{self.name}/"):
            return
        lab = self.session.get(f"{self.hub.url}/user/{self.name}/lab", timeout=PATIENCE_SECONDS)  # and its cookies
        assert lab.status_code == 200, lab.url

    def _spawn(self, options: dict[str, str]) -> None:
        answer = self.session.get(f"{self.hub.url}/hub/spawn/{self.name}", timeout=PATIENCE_SECONDS)
        if options or f"/hub/spawn/{self.name}" in answer.url:
            data = options | {"_xsrf": self.token("/hub/")}
            answer = self.session.post(f"{self.hub.url}/hub/spawn/{self.name}", data=data, timeout=PATIENCE_SECONDS)
        assert answer.ok, f"{answer.url}: {answer.status_code}; the Hub's log: {self.hub.log[-4000:]}"
        until(f"the server of {self.name}", self._has_started)

    def _has_started(self) -> bool:
        """Return True if the server is ready. Raise AssertionError with the logs if its start has failed."""
        server = self.server
        failed = not server.get("ready") and not server.get("pending")
        assert not failed, f"{self.name} has no server: {server}\n{self.log[-2000:]}\n{self.hub.log[-2000:]}"
        return bool(server["ready"])

    @property
    def server(self) -> dict[str, Any]:
        """The Hub's record of this person's server; empty if there is none."""
        headers = {"X-XSRFToken": self.token("/hub/"), "Referer": f"{self.hub.url}/hub/home"}
        address = f"{self.hub.url}/hub/api/users/{self.name}"
        user = self.session.get(address, headers=headers, timeout=PATIENCE_SECONDS).json()
        return dict(user.get("servers", {}).get("", {}))

    @property
    def log(self) -> str:
        path = self.hub.state / "logs" / f"{self.name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def request(self, method: str, path: str, whose: str = "", **more: Any) -> requests.Response:
        """Send a request to the API of a server: this person's, or that of ``whose``."""
        prefix = f"/user/{whose or self.name}/"
        headers = {"X-XSRFToken": self.token(prefix)}
        url = f"{self.hub.url}{prefix}{path}"
        return self.session.request(method, url, headers=headers, timeout=PATIENCE_SECONDS, **more)

    def get(self, path: str, **more: Any) -> requests.Response:
        return self.request("GET", path, **more)

    def stop_server(self) -> None:
        address = f"{self.hub.url}/hub/api/users/{self.name}/server"
        headers = {"X-XSRFToken": self.token("/hub/"), "Referer": f"{self.hub.url}/hub/home"}

        def stop() -> requests.Response:
            return self.session.delete(address, headers=headers, timeout=PATIENCE_SECONDS)

        stop().raise_for_status()
        until("the server has stopped", lambda: stop().status_code == 204)

    def run(self, code: str, seconds: float = PATIENCE_SECONDS) -> str:
        """Run Python ``code`` in a new kernel of this person's server, and return its standard output."""
        kernel = self.request("POST", "api/kernels", json={"name": "python3"})
        kernel.raise_for_status()
        try:
            return self.run_in(kernel.json()["id"], code, seconds)
        finally:
            self.request("DELETE", f"api/kernels/{kernel.json()['id']}")

    def run_in(self, kernel: str, code: str, seconds: float = PATIENCE_SECONDS) -> str:
        """Run ``code`` in a kernel that already runs."""
        from websocket import create_connection

        cookies = "; ".join(
            f"{each.name}={each.value}"
            for each in self.session.cookies
            if each.path in ("/", f"/user/{self.name}/") and each.name
        )
        socket_url = f"{self.hub.url.replace('http', 'ws', 1)}/user/{self.name}/api/kernels/{kernel}/channels"
        link = create_connection(socket_url, cookie=cookies, origin=self.hub.url, timeout=seconds)
        try:
            header = {"msg_id": uuid.uuid4().hex, "msg_type": "execute_request", "version": "5.3", "session": "test"}
            content = {"code": code, "silent": False, "store_history": False, "allow_stdin": False}
            asked = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
            link.send(json.dumps(asked))
            return "".join(_outputs(link, header["msg_id"]))
        finally:
            link.close()


def _outputs(link: Any, asked: str) -> Iterator[str]:
    while True:
        message = json.loads(link.recv())
        if message["parent_header"].get("msg_id") != asked:
            continue
        kind, content = message["msg_type"], message["content"]
        if kind == "stream":
            yield content["text"]
        elif kind == "error":
            raise AssertionError(f"{content['ename']}: {content['evalue']}")
        elif kind == "status" and content["execution_state"] == "idle":
            return
