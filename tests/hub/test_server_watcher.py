"""Thread that watches servers: no error ends the watching, and none of one server keeps another from being watched."""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from mlsys_grading.hub.server_watcher import ServerWatcher
from mlsys_grading.processes import birth
from tests.hub.hub_process import until


@dataclass(frozen=True)
class _Server:
    pid: int
    born: int


class _Watcher(ServerWatcher[_Server]):
    """Watcher that counts its looks at each server, and fails at some."""

    def __init__(self) -> None:
        super().__init__()
        self.looks: dict[int, int] = {}
        self.fails: dict[int, type[BaseException]] = {}

    def add(self, pid: int) -> None:
        self._watch(_Server(pid, birth(pid)))

    def seconds(self) -> float:
        return 0.01

    def look_at(self, server: _Server) -> None:
        self.looks[server.pid] = self.looks.get(server.pid, 0) + 1
        if server.pid in self.fails:
            raise self.fails[server.pid]("planted")


@pytest.fixture
def servers() -> Iterator[list[int]]:
    """Yield the pids of three processes."""
    started = [subprocess.Popen(["sleep", "600"]) for _ in range(3)]
    try:
        yield [each.pid for each in started]
    finally:
        for each in started:
            each.kill()
            each.wait()


def test_error_at_one_server_is_logged_once_and_hides_no_other(
    servers: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    watcher = _Watcher()
    watcher.fails[servers[0]] = OSError
    with caplog.at_level(logging.ERROR, "tornado.application"):
        for pid in servers:
            watcher.add(pid)
        until("twenty looks at each", lambda: all(watcher.looks.get(pid, 0) > 20 for pid in servers))
    assert [record.getMessage() for record in caplog.records] == [f"cannot enforce the limits of server {servers[0]}"]
    for pid in servers:
        watcher.remove(pid)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_thread_that_has_ended_is_replaced(servers: list[int]) -> None:
    watcher = _Watcher()
    watcher.fails[servers[0]] = SystemExit
    watcher.add(servers[0])
    until("the thread has ended", lambda: watcher.looks and not _is_alive(watcher))
    del watcher.fails[servers[0]]
    watcher.add(servers[1])
    until("looks at both", lambda: watcher.looks[servers[0]] > 1 and watcher.looks.get(servers[1], 0) > 1)
    for pid in servers:
        watcher.remove(pid)


def _is_alive(watcher: _Watcher) -> bool:
    name = f"labkit-{type(watcher).__name__}"
    return any(thread.name == name for thread in threading.enumerate())


def test_too_many_open_files_end_no_watching(servers: list[int]) -> None:
    """Leave the process no file to open: it can learn nothing of a server, and must not take it for ended."""
    watcher = _Watcher()
    born = birth(servers[0])
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    with _no_files_left(limit), pytest.raises(OSError, match="Too many open files"):
        birth(servers[0])
    watcher._servers[servers[0]] = _Server(servers[0], born)
    with _no_files_left(limit):
        watcher.look()
    assert not watcher.looks
    watcher.look()
    assert watcher.looks == {servers[0]: 1}


@contextlib.contextmanager
def _no_files_left(limit: tuple[int, int]) -> Iterator[None]:
    lowest = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, limit[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
