"""Soak test of ``labkit hub install`` under a real systemd: a Debian made by debootstrap, booted by systemd-nspawn.

It needs root, the packages debootstrap and systemd-container, and a mirror of Debian's packages. The container has a
network of its own, without a way out. ``LABKIT_SOAK_DEBIAN`` names a folder that keeps the Debian for the next run.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.conftest import ROOT
from tests.hub.hub_process import INSTRUCTORS_PASSWORD, PATIENCE_SECONDS, STUDENTS_PASSWORD, labkit, until

PROGRAMS = ("debootstrap", "systemd-nspawn", "nsenter")
MISSING = [name for name in PROGRAMS if not shutil.which(name)] if os.geteuid() == 0 else ["root"]
pytestmark = [
    pytest.mark.soak,
    pytest.mark.xdist_group("hub"),
    pytest.mark.timeout(3600),
    pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}; apt install debootstrap systemd-container"),
]
PACKAGES = "systemd,systemd-sysv,dbus,ca-certificates,procps,curl,caddy,logrotate,g++,libssl3,libffi8,libreadline8"
SOCKET = "/run/mlsys.sock"
SETTINGS = f"""
[hub]
host = "localhost"
address = "{SOCKET}"
state = "state"
[login]
kind = "shared-password"
password_file = "passwords"
[course]
labs = "{ROOT}/labs"
students = ["ada"]
[backup]
folder = "/srv/backups"
keep = 2
"""
UNITS = ("mlsys-hub.service", "mlsys-hub-backup.timer", "mlsys-hub-tls.service")
# A student who uses the Hub through the TLS server, with its certificate checked.
STUDENT = """
import sys, types
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from tests.hub.hub_process import Hub, Person
Hub.__post_init__ = lambda self: None
Hub.url = "https://localhost"
hub = Hub(Path("/srv/hub"))
"""
# A start of the server, which prints the user id in a kernel.
START = "ada = hub.log_in('ada'); ada.start_server(); print(ada.run('import os; print(os.getuid())'))"
# A login, which prints the cookies that are for HTTPS alone.
LOG_IN = "print(sorted(cookie.name for cookie in hub.log_in('ada').session.cookies if cookie.secure))"
CERTIFICATE = "/var/lib/private/mlsys-hub-tls/caddy/pki/authorities/local/root.crt"
BUNDLES = [f"{name}={CERTIFICATE}" for name in ("REQUESTS_CA_BUNDLE", "WEBSOCKET_CLIENT_CA_BUNDLE")]


@dataclass
class Machine:
    """A booted Debian; ``init`` is its process 1, as seen from here."""

    root: Path
    init: int

    def run(self, *words: str, check: bool = True) -> str:
        """Run a program in the container, and return its output."""
        done = subprocess.run(
            ["nsenter", f"--target={self.init}", "--all", "--wdns=/srv/hub", *words],
            capture_output=True, text=True, timeout=PATIENCE_SECONDS,
        )  # fmt: skip
        assert not check or done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def show(self, unit: str, key: str) -> str:
        return self.run("systemctl", "show", "--property", key, "--value", unit).strip()

    def is_up(self) -> bool:
        """Return True if the Hub's login page answers."""
        page = ["curl", "-sk", "-o", "/dev/null", "-w", "%{http_code}", "https://localhost/hub/login"]
        return self.run(*page, check=False) == "200"

    def processes(self) -> dict[int, str]:
        """Return pid -> command of all processes of a Hub, its proxy and its servers, as seen from inside."""
        lines = self.run("ps", "-wweo", "pid,uid,args", "--no-headers").splitlines()
        rows = [line.split(None, 2) for line in lines]
        ours = ("jupyterhub", "mlsys_grading", "configurable-http-proxy", "ipykernel")
        return {
            int(pid): words for pid, uid, words in rows if any(o in words for o in ours) or int(uid) >= 1_900_000_000
        }

    def proxy(self) -> int:
        [pid] = [pid for pid, words in self.processes().items() if "configurable-http-proxy" in words]
        return pid


def first_of(nspawn: int) -> psutil.Process | None:
    """Return the container's systemd. Before it, systemd-nspawn has other children, which end."""
    for child in psutil.Process(nspawn).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess, OSError):
            numbers = Path(f"/proc/{child.pid}/status").read_text().split("NSpid:")[1].splitlines()[0].split()
            if numbers[-1] == "1" and child.name() == "systemd":
                return child
    return None


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    kept = os.environ.get("LABKIT_SOAK_DEBIAN")
    root = Path(kept) if kept else tmp_path_factory.mktemp("debian") / "root"
    if not (root / "usr/bin/caddy").exists():
        made = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(root)]
        subprocess.run(made, check=True, stdout=subprocess.DEVNULL, timeout=1800)
    subprocess.run(["chroot", str(root), "systemctl", "disable", "caddy"], check=True, capture_output=True)
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n")  # debootstrap makes none
    folder = root / "srv" / "hub"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "binder/hub/singleuser", folder / "singleuser")
    shutil.copy(ROOT / "binder/hub/jupyterhub_config.py", folder)
    (folder / "hub.toml").write_text(SETTINGS)
    (folder / "passwords").touch(0o600)
    (folder / "passwords").write_text(f"{STUDENTS_PASSWORD}\n{INSTRUCTORS_PASSWORD}\n")
    binds = [f"--bind-ro={place}" for place in {str(ROOT), sys.base_prefix, sys.prefix}]
    words = [f"--directory={root}", "--boot", "--register=no", "--keep-unit", "--private-network", *binds]
    with open(root.parent / "boot.log", "wb") as log:
        nspawn = subprocess.Popen(["systemd-nspawn", *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        init = until("process 1 of the container", lambda: first_of(nspawn.pid))
        booted = Machine(root, init.pid)
        states = ("running", "degraded")
        until("a system that runs", lambda: booted.run("systemctl", "is-system-running", check=False).strip() in states)
        yield booted
        init.send_signal(signal.SIGRTMIN + 4)  # systemd's word for: power off
        nspawn.wait(PATIENCE_SECONDS)
    finally:
        nspawn.kill()
        nspawn.wait(PATIENCE_SECONDS)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(root / "srv/backups", ignore_errors=True)


def test_hub_under_systemd(machine: Machine) -> None:
    machine.run(*labkit("hub", "install", "--remove"))  # of a run that failed
    told = machine.run(*labkit("hub", "install", "hub.toml"))
    assert "6 files changed" in told, told
    assert "0 files changed" in machine.run(*labkit("hub", "install", "hub.toml"))
    machine.run("systemctl", "enable", "--now", *UNITS)
    until("the login page", machine.is_up)
    # A hardened Hub still starts servers of other users, whose kernels compute.
    assert int(machine.run("env", *BUNDLES, sys.executable, "-c", STUDENT + START, str(ROOT))) >= 1_900_000_000
    assert ":1F40 " not in machine.run("cat", "/proc/net/tcp", "/proc/net/tcp6"), "nobody listens to port 8000"

    hub, proxy = int(machine.show("mlsys-hub", "MainPID")), machine.proxy()
    servers = {pid for pid, words in machine.processes().items() if "hub.enter" in words}
    machine.run("kill", "-KILL", str(hub))
    until("another Hub", lambda: int(machine.show("mlsys-hub", "MainPID")) not in (0, hub))
    until("its login page", machine.is_up)
    assert machine.proxy() == proxy
    students = {pid for pid in servers if pid in machine.processes()}
    assert len(students) >= 2, "the student's server has ended with the Hub"
    assert machine.show("mlsys-hub", "NRestarts") == "1"

    hub = int(machine.show("mlsys-hub", "MainPID"))
    machine.run("systemctl", "reload", "mlsys-hub")
    until("a reloaded Hub", lambda: int(machine.show("mlsys-hub", "MainPID")) not in (0, hub))
    until("its login page", machine.is_up)
    assert machine.proxy() == proxy
    assert students <= machine.processes().keys()

    head = machine.run("curl", "-sk", "-D", "-", "-o", "/dev/null", "https://localhost/hub/login").lower()
    assert "strict-transport-security: max-age=31536000" in head
    assert " 200" in head.splitlines()[0]
    cookies = machine.run("env", *BUNDLES, sys.executable, "-c", STUDENT + LOG_IN, str(ROOT))
    assert "jupyterhub-hub-login" in cookies
    assert "jupyterhub-session-id" in cookies

    for _ in range(3):
        machine.run("systemctl", "start", "mlsys-hub-backup.service")
    assert machine.show("mlsys-hub-backup", "Result") == "success"
    assert 1 <= len(list((machine.root / "srv/backups").iterdir())) <= 2
    assert machine.show("mlsys-hub-backup.timer", "ActiveState") == "active"
    machine.run("logrotate", "--force", "/etc/logrotate.d/mlsys-hub")
    assert list((machine.root / "srv/hub/state/logs").glob("proxy.log.1*"))

    machine.run("systemctl", "stop", "mlsys-hub")
    assert machine.processes() == {}
    machine.run("systemctl", "start", "mlsys-hub")  # --remove stops it
    until("the login page", machine.is_up)
    told = machine.run(*labkit("hub", "install", "--remove"))
    assert machine.processes() == {}
    assert "mlsys" not in machine.run("systemctl", "list-unit-files")
    left = [path for path in (machine.root / "etc").rglob("*") if "mlsys" in path.name]
    assert left == [], told
    assert (machine.root / "srv/hub/state/jupyterhub.sqlite").exists()
