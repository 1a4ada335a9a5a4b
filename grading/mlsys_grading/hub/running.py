"""Processes of a Hub at work: the Hub itself, its proxy, and the servers that its database lists."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import psutil

from mlsys_grading import processes
from mlsys_grading.hub.proxy import running
from mlsys_grading.hub.sockets import Sockets
from mlsys_labkit.errors import LabkitError

_claimed: dict[Path, IO[str]] = {}


def claim(state: Path) -> None:
    """Make this process the one Hub of the state folder until it ends. Raises LabkitError if another process is."""
    path = state / "hub.pid"
    if path in _claimed:
        return
    file = open(path, "a+")  # noqa: SIM115 - held open: the lock lasts as long
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        pid = file.read().strip()
        line = f"process {pid} is a Hub with the state folder {state}; end it, or set another hub.state"
        raise LabkitError(line) from None
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()
    _claimed[path] = file


def stop(state: Path, seconds: float) -> str:
    """End the Hub, its servers and its proxy, by force after ``seconds`` each; return how many there were."""
    hub = list(_hub(state))
    _end(hub, seconds)  # before its servers: it would have started none anew, but marked them as failed
    servers = list(_servers(state))
    _end(servers, seconds)
    kept = running(state / "proxy.pid")
    proxy = [kept] if kept else []
    _end(proxy, seconds)
    shutil.rmtree(Sockets.of(state).folder, ignore_errors=True)
    return f"{len(hub)} Hub, {len(servers)} servers, {len(proxy)} proxy"


def at_work(state: Path) -> str:
    """Describe what runs on the state folder, such as "a Hub (process 12), its proxy (process 13)"; "" if nothing."""
    kept = running(state / "proxy.pid")
    found = [f"a Hub (process {hub.pid})" for hub in _hub(state)]
    found += [f"its proxy (process {kept.pid})"] if kept else []
    servers = [str(server.pid) for server in _servers(state)]
    found += [f"{len(servers)} servers (processes {', '.join(servers)})"] if servers else []
    return ", ".join(found)


def other_hubs(state: Path) -> list[str]:
    """Describe the Hubs of this machine with another state folder: process, state folder, and how to end each."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):  # another user's process, or one that has just ended
            if not any("jupyterhub" in word for word in process.cmdline()):
                continue
            for folder in {
                Path(file.path).parent for file in process.open_files() if Path(file.path).name == "hub.pid"
            }:
                if folder != state:
                    settings = process.environ().get("MLSYS_HUB_SETTINGS", "FILE")
                    line = f"a Hub (process {process.pid}) with the state folder {folder}"
                    found.append(f"{line}; to end it: labkit hub --stop {settings}")
    return found


def _hub(state: Path) -> Iterator[psutil.Process]:
    with contextlib.suppress(OSError, ValueError, psutil.NoSuchProcess), open(state / "hub.pid") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:  # a process holds it: the number is that of a living Hub
            yield psutil.Process(int(file.read()))


def _servers(state: Path) -> Iterator[psutil.Process]:
    database = state / "jupyterhub.sqlite"
    if not database.exists():
        return
    with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as link:
        rows = link.execute("select state from spawners where server_id is not null").fetchall()
    for (text,) in rows:
        plain = json.loads(text or "{}")
        plain = plain.get("child_state") or plain
        if plain.get("pid") and processes.birth(plain["pid"]) == plain.get("born"):
            with contextlib.suppress(psutil.NoSuchProcess):
                yield psutil.Process(plain["pid"])


def _end(left: list[psutil.Process], seconds: float) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        _, left = psutil.wait_procs(left, timeout=seconds)
