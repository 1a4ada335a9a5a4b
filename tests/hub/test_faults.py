"""A full disk loses nothing that was saved or handed in. A Hub that is killed leaves no server without an owner."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
import requests

from mlsys_grading.hub.command import _make_sources
from tests.hub.hub_process import PATIENCE_SECONDS, ROOT, Hub, needs_hub, until

pytestmark = [needs_hub, pytest.mark.xdist_group("own-hub"), pytest.mark.timeout(900)]

LAB = "lab00_your_machine"
NOTEBOOK = f"mlsys/{LAB}/{LAB}.ipynb"
SUBMIT = f"""
import subprocess
done = subprocess.run(["nbgrader", "submit", "{LAB}", "--course", "mlsys"], capture_output=True, text=True)
print(done.returncode)
"""


@pytest.fixture
def small_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield a folder for a Hub whose state is on a file system of 60 MB."""
    folder = tmp_path_factory.mktemp("small")
    shutil.copytree(ROOT / "solutions" / LAB, folder / "solutions" / LAB)
    _make_sources(folder)
    state = folder / "home" / "state"
    state.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=60m", "none", str(state)], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", str(state)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small disk")
def test_a_full_disk_ends_no_notebook_and_loses_no_submission(small_disk: Path) -> None:
    with Hub(small_disk) as hub:
        inbox = hub.state / "exchange/mlsys/inbound"
        ada = hub.log_in("ada")
        ada.start_server()
        kernel = ada.request("POST", "api/kernels", json={"name": "python3"}).json()["id"]
        ada.run_in(kernel, "kept = 6 * 7")
        model = ada.get(f"api/contents/{NOTEBOOK}").json()
        assert ada.run_in(kernel, SUBMIT).strip() == "0"
        (first,) = inbox.iterdir()
        before = {path.name: path.read_bytes() for path in (hub.state / "homes/ada" / NOTEBOOK, first / f"{LAB}.ipynb")}
        filling = hub.state / "filling"
        _fill(filling)

        model["content"]["cells"].append({"cell_type": "markdown", "metadata": {}, "source": 100_000 * "x", "id": "x"})
        new = {"type": "notebook", "format": "json", "content": model["content"]}
        assert ada.request("PUT", f"api/contents/{NOTEBOOK}", json=new).status_code == 500
        assert ada.run_in(kernel, "print(kept)").strip() == "42"
        assert ada.run_in(kernel, SUBMIT).strip() != "0", "it says so"
        assert requests.get(f"{hub.url}/hub/login", timeout=PATIENCE_SECONDS).status_code == 200
        after = {path.name: path.read_bytes() for path in (hub.state / "homes/ada" / NOTEBOOK, first / f"{LAB}.ipynb")}
        assert after == before

        filling.unlink()
        ada.request("PUT", f"api/contents/{NOTEBOOK}", json=new).raise_for_status()
        assert ada.run_in(kernel, SUBMIT).strip() == "0"
        whole = [_is_whole(folder / f"{LAB}.ipynb") for folder in inbox.iterdir()]
        assert whole.count(True) == 2
        # The mark by which a submission that broke off is known when it is collected.
        assert whole == [_has_content(folder / "submission_secret.txt") for folder in inbox.iterdir()]


def test_hub_killed_during_a_start_finds_the_server_again(tmp_path_factory: pytest.TempPathFactory) -> None:
    with Hub(tmp_path_factory.mktemp("killed")) as hub, ThreadPoolExecutor(1) as pool:
        ada = hub.log_in("ada")
        pool.submit(ada.session.get, f"{hub.url}/hub/spawn/ada", timeout=PATIENCE_SECONDS)
        started = until("ada's server, which its process has begun", lambda: _begun(hub, "ada"))
        hub.kill()
        hub.start()
        ada = hub.log_in("ada")
        until("the server is ready", lambda: ada.server.get("ready"))
        ada.start_server()
        assert ada.run("print(6 * 7)").strip() == "42"
        assert _servers_of(hub, "ada") == started


# Kills the Hub once, in the moment before ada's process is told what to run. It waits for that, so it cannot begin.
KILLED_EARLY = """
import os, signal
from pathlib import Path
from mlsys_grading.hub.spawner import LabSpawner

remember, mark = LabSpawner._remember, Path({mark!r})

def remember_and_die(self, address):
    if mark.exists() or {remembered}:
        remember(self, address)
    if not mark.exists():
        mark.write_text(str(self.pid))
        os.kill(os.getpid(), signal.SIGKILL)

LabSpawner._remember = remember_and_die
"""


@pytest.mark.parametrize("remembered", [False, True], ids=["before", "after"])
def test_hub_killed_as_it_remembers_a_process_leaves_none(
    tmp_path_factory: pytest.TempPathFactory, remembered: bool
) -> None:
    folder = tmp_path_factory.mktemp("early")
    mark = folder / "killed"
    config = KILLED_EARLY.format(mark=str(mark), remembered=remembered)
    with Hub(folder, config=config) as hub, ThreadPoolExecutor(1) as pool:
        ada = hub.log_in("ada")
        pool.submit(ada.session.get, f"{hub.url}/hub/spawn/ada", timeout=PATIENCE_SECONDS)
        until("the Hub is killed", lambda: hub.process and hub.process.poll() is not None)
        assert mark.exists(), hub.log[-2000:]
        hub.start()
        until("the process has ended", lambda: not psutil.pid_exists(int(mark.read_text())))
        assert "the Hub ended before it said what to start" in ada.log
        ada = hub.log_in("ada")
        until("the Hub knows of no server", lambda: not ada.server.get("pending"))
        ada.start_server()
        assert ada.run("print(6 * 7)").strip() == "42"


def _begun(hub: Hub, name: str) -> list[int]:
    """Return ``name``'s server once its process has been told what to run, and has started it."""
    return [pid for pid in _servers_of(hub, name) if psutil.Process(pid).children()]


def _servers_of(hub: Hub, name: str) -> list[int]:
    return [each.pid for each in hub.servers() if each.environ()["HOME"].endswith(f"/homes/{name}")]


def _is_whole(notebook: Path) -> bool:
    try:
        return bool(json.loads(notebook.read_text())["cells"])
    except (OSError, ValueError):
        return False


def _has_content(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def _fill(path: Path) -> None:
    """Write to ``path`` until not one byte more fits."""
    size = 1 << 20
    with open(path, "wb", buffering=0) as file:
        while size:
            try:
                file.write(bytes(size))
            except OSError:
                size //= 2
