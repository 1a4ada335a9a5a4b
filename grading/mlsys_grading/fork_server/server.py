"""The fork server: ``python -m mlsys_grading.fork_server.server SOCKET MODULE...`` imports, listens, and forks.

It reads no request itself and runs no tensor operation: each connection is handed to a fork, so that a later submission
finds nothing of an earlier one in the memory it is forked from, and no thread pool that would hang in a fork. A fork is
the keeper of a confined process, or a clone: one more server, without the seconds that its imports took.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import linecache
import os
import select
import signal
import socket
import struct
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from functools import partial
from typing import NoReturn

from mlsys_grading.fork_server.pages import enlarge_pages
from mlsys_grading.fork_server.request import CLONE, ForkRequest
from mlsys_grading.fork_server.waiting import named
from mlsys_grading.sandbox import cgroup, confine, guard, kernel, proc, unconfined, watch
from mlsys_grading.sandbox.limits import SandboxLimits

_MOST_SOCKETS = 4
_LOOK_SECONDS = 0.1
# Of every stack that a cell prints or torch.manual_seed keeps: reading their lines takes longer than most cells.
_IN_STACKS: tuple[str, ...] = (
    "IPython.core.interactiveshell",
    "IPython.core.async_helpers",
    "ipykernel.ipkernel",
    "ipykernel.zmqshell",
)
_IN_STACKS += ("asyncio.base_events", "asyncio.events", "torch.random", "torch.cuda", "torch.cuda.random")
_MOST_IN_FLIGHT, _LOOKS_IN_FLIGHT = 8, 20
_FILLED_BYTES_A_SECOND = 10e9  # by one processor: the kernel clears each new page, the program writes it


def main() -> None:
    """Serve until the process that started this one has ended."""
    path, *modules = sys.argv[1:]
    kernel.prctl(kernel.SET_PDEATHSIG, signal.SIGKILL)
    guard.start()
    proc.prepare()
    _import(modules)
    listener = _listen_at(path)
    try:
        print("ready", flush=True)
    except BrokenPipeError:
        os._exit(1)  # the process that started this one has closed the pipe
    _accept_from(listener)


def _import(modules: Sequence[str]) -> None:
    for name in modules:
        with contextlib.suppress(Exception):  # the cell that imports the module will report the error
            importlib.import_module(name)
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)  # a pool of threads would not survive the fork
    for module in filter(None, map(sys.modules.get, _IN_STACKS)):
        linecache.getlines(str(module.__file__))
    gc.collect()
    gc.freeze()  # so that a collection in a fork does not write to, and thereby copy, every shared page
    enlarge_pages()


def _listen_at(path: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    os.chmod(path, 0o600)
    listener.listen(64)
    return listener


def _accept_from(listener: socket.socket) -> NoReturn:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    me = os.getpid()
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            _serve(connection, me)
        connection.close()


def _serve(connection: socket.socket, parent: int) -> None:
    """Read the request in a fork, and become the keeper of a process or one more server."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        kernel.prctl(kernel.SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            return  # the parent died before the line above took effect; the client sees the connection end
        data, sockets = receive(connection)
        if data.startswith(CLONE):
            _be_a_server(json.loads(data.removeprefix(CLONE)), connection)
        request = ForkRequest.from_bytes(data)
        oversight = _Oversight(connection, request, frozenset(os.fstat(each.fileno()).st_ino for each in sockets))
        work = partial(run, request, sockets)
        descriptors = tuple(each.fileno() for each in sockets)
        if request.sandbox is None:
            unconfined.keep_unconfined(work, descriptors, oversight.oversee)
        confine.keep_confined(request.sandbox, work, descriptors, oversight.oversee)
    except (EOFError, ConnectionError):
        pass  # the client has ended: there is no process to report to
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def _be_a_server(arguments: Sequence[str], connection: socket.socket) -> NoReturn:
    path, *modules = arguments
    if modules:
        _import(modules)
    listener = _listen_at(path)
    connection.sendall(f"pid {os.getpid()}\n".encode())
    connection.close()
    _accept_from(listener)


def receive(connection: socket.socket) -> tuple[bytes, list[socket.socket]]:
    """Read a request's bytes, and the sockets that came with it."""
    head, descriptors, _, _ = socket.recv_fds(connection, 4, _MOST_SOCKETS)
    if len(head) < 4:
        raise EOFError("no request came")
    (length,) = struct.unpack("<I", head)
    data = bytearray()
    while len(data) < length:
        part = connection.recv(length - len(data))
        if not part:
            raise EOFError("the request ended too soon")
        data += part
    for each in descriptors:
        os.set_inheritable(each, False)  # forks keep them, programs that they start do not
    return bytes(data), [socket.socket(fileno=each) for each in descriptors]


def run(request: ForkRequest, sockets: list[socket.socket]) -> None:
    tempfile.tempdir = None  # the server's imports may have set it, and a sandbox has another
    named(request.function)(request.job, sockets)


class _Oversight:
    """A supervisor that ends an unwanted, slow or too large confined tree, and reports how it ended.

    Lines on the connection: ``pid N`` (of the confined process, as seen from outside), then ``ended STATUS WHY``.
    """

    def __init__(self, connection: socket.socket, request: ForkRequest, given: frozenset[int]) -> None:
        self._connection, self._request, self._given = connection, request, given
        self._looks_in_flight = 0
        cpus = request.sandbox.cpus if request.sandbox else ()
        self._fill_rate = _FILLED_BYTES_A_SECOND * len(cpus or os.sched_getaffinity(0))
        self._may_be_full_at = 0.0

    def oversee(self, pid: int, group: cgroup.Cgroup | None) -> int:
        self._say(f"pid {pid}")
        why = self._watch(pid, group)
        if why:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)  # the first process of a pid namespace takes all others with it
        _, status = os.waitpid(pid, 0)
        if group and status and not why:
            why = group.excess()
        self._say(f"ended {os.waitstatus_to_exitcode(status)} {why}".rstrip())
        return status

    def _watch(self, pid: int, group: cgroup.Cgroup | None) -> str:
        """Wait for the end of ``pid``; returns a reason to end it now, or "" once it has ended."""
        limits = self._request.sandbox.limits if self._request.sandbox else None
        handle = os.pidfd_open(pid)
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        poll.register(self._connection, select.POLLIN | select.POLLRDHUP | select.POLLHUP)
        waits, until = self._request.waits, time.monotonic() + self._request.wall_seconds
        try:
            while True:
                ready = {descriptor for descriptor, _ in poll.poll(None if waits else _LOOK_SECONDS * 1000)}
                if handle in ready:
                    return ""
                if ready and self._is_told_to_begin():
                    waits, until = False, time.monotonic() + self._request.wall_seconds
                elif ready:
                    # A grader also hangs up when it sees the sockets of a killed process close.
                    if not watch.is_ending(pid):
                        return "abandoned"
                    poll.unregister(self._connection)
                if waits:
                    continue
                if time.monotonic() > until:
                    return "wall"
                if group and limits:  # the kernel enforces the other limits of the group
                    if group.processes() > limits.children:
                        return "processes"
                elif limits and (excess := self._excess(pid, limits)):
                    return excess
        finally:
            os.close(handle)

    def _is_told_to_begin(self) -> bool:
        """Read what the client has sent: a byte, when a process that waited gets its work; nothing, when it hung up."""
        try:
            return bool(self._connection.recv(1))
        except OSError:
            return False

    def _excess(self, pid: int, limits: SandboxLimits) -> str:
        """Return "processes" or "memory" if the tree has too much of it, else ""."""
        # Files in memory are not counted while they are queued in a socket; honest code queues few, and briefly.
        pids = watch.tree(pid)
        if len(pids) > limits.children:
            return "processes"
        opened = watch.open_files(pid, self._given)
        self._looks_in_flight = self._looks_in_flight + 1 if opened.in_flight else 0
        if opened.in_flight > _MOST_IN_FLIGHT or self._looks_in_flight > _LOOKS_IN_FLIGHT:
            return "memory"
        if time.monotonic() < self._may_be_full_at:
            return ""
        # To count exactly, the kernel walks over every page of torch: 10 ms a look, longer than most cells take.
        much = watch.may_hold_bytes(pids) + opened.nbytes
        if much > limits.memory_bytes / 2:
            return "memory" if watch.held_bytes(pid) + opened.nbytes > limits.memory_bytes else ""
        # Even this takes milliseconds, because it reads all maps.
        self._may_be_full_at = time.monotonic() + (limits.memory_bytes - much) / self._fill_rate
        return ""

    def _say(self, line: str) -> None:
        with contextlib.suppress(OSError):
            self._connection.sendall(line.encode() + b"\n")


if __name__ == "__main__":
    main()
