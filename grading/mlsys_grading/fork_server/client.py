"""The client's side: starting a fork server, and requesting forks from it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlsys_grading.fork_server.request import CLONE, ForkRequest
from mlsys_grading.processes import high_water_bytes, thread_variables
from mlsys_grading.sandbox import cgroup
from mlsys_grading.scratch import scratch_folder
from mlsys_labkit.errors import LabkitError

_KEPT: tuple[str, ...] = ("PATH", "HOME", "LANG", "LC_", "TZ", "TMPDIR", "XDG_CACHE_HOME", "LD_LIBRARY_PATH")
_KEPT += (
    "PYTHON",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "CUDA",
    "NVIDIA",
    "LABKIT_",
    "TRITON_",
    "TORCH",
    "CXX",
    "HF_HUB_OFFLINE",
)
_SECRET = re.compile("KEY|TOKEN|SECRET|PASS|CREDENTIAL")


class ForkServerError(LabkitError):
    """An error: the fork server could not start, or has ended."""


@dataclass(frozen=True)
class Ended:
    """The end of a forked process: its exit code (negative: the signal), and why the server ended it, if it did.

    ``why`` is "memory", "processes" (too many), "wall" (its time was over), "abandoned" (the client ended it or hung
    up), "lost" (its keeper has ended), or empty.
    """

    code: int
    why: str = ""


class Forked:
    """A process that a fork server forked. Leaving the ``with`` block ends it and all its descendants."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._unread = b""
        self._pid = 0

    def wait_until_there(self) -> Forked:
        """Wait until the process has started. Raises ForkServerError when it cannot be made."""
        if not self._pid:
            try:
                word, _, number = self._line().partition(" ")
            except OSError:  # a server that was killed resets its connections
                word = ""
            if word != "pid":
                self._connection.close()
                raise ForkServerError("the fork server forked nothing; its own error output says why")
            self._pid = int(number)
        return self

    @property
    def pid(self) -> int:
        """The pid as seen from outside its pid namespace."""
        return self.wait_until_there()._pid

    @property
    def pid_if_started(self) -> int:
        """The same, or 0 as long as nobody has waited for the start: for another thread."""
        return self._pid

    def wait(self) -> Ended:
        """Wait for the end of the process."""
        try:
            words = self._line().split() if self.pid else []
        except (ForkServerError, OSError):  # a server that was killed resets its connections
            words = []
        return Ended(int(words[1]), " ".join(words[2:])) if words else Ended(-1, "lost")

    def peak_bytes(self, reset: bool = False) -> int:
        """Return the largest resident set since the last reset, as the kernel counts it; 0 when the process is gone.

        Only root may reset the count of a process that is not dumpable; without root it counts from the process's
        start.
        """
        if reset:
            with contextlib.suppress(OSError):
                Path(f"/proc/{self.pid}/clear_refs").write_text("5")
        return high_water_bytes(self.pid)

    def abandon(self) -> None:
        """Request the end of the process, without waiting for it."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)

    def end(self) -> None:
        """End the process now, and wait until it is gone."""
        self.abandon()
        with contextlib.suppress(OSError, ValueError):  # the connection is closed already
            self.wait()
        self._connection.close()

    def has_ended(self) -> bool:
        """Return True if the process has ended, or its keeper; waits until it has started."""
        try:
            return bool(self.pid and (self._unread or _can_be_read_within(0, self._connection.fileno())))
        except ForkServerError:
            return True

    def let_begin(self) -> None:
        """Let the time and the limits of a process that waits begin now. Call this before it gets its work."""
        with contextlib.suppress(OSError):  # it has ended
            self._connection.sendall(b".")

    def _line(self) -> str:
        while b"\n" not in self._unread:
            part = self._connection.recv(256)
            if not part:
                return ""
            self._unread += part
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode()

    def __enter__(self) -> Forked:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


def _can_be_read_within(milliseconds: int | None, descriptor: int) -> bool:
    poll = select.poll()  # select refuses descriptors from 1024 on
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(milliseconds))


def _harmless(environment: Mapping[str, str]) -> dict[str, str]:
    """Keep the variables that Python, CUDA and the kit read: all others would be readable in the forks' memory."""
    return {name: value for name, value in environment.items() if name.startswith(_KEPT) and not _SECRET.search(name)}


class ForkServer:
    """One fork server, for as long as the ``with`` block lasts.

    Args:
        modules: what it imports before its first fork; a module that cannot be imported is left out.

    Example:
        >>> with ForkServer(["json"]) as server, server.fork(ForkRequest("os:_exit", {})) as forked:
        ...     forked.wait()
        Ended(code=1, why='')
    """

    def __init__(self, modules: Sequence[str]) -> None:
        cgroup.settle()  # without a cgroup, keepers watch the memory
        self._place()
        command = [sys.executable, "-m", "mlsys_grading.fork_server.server", self._path, *modules]
        environment = _harmless(os.environ) | thread_variables(1) | {"PYTHONHASHSEED": "0"}
        environment["TORCHINDUCTOR_CACHE_DIR"] = f"{self._path}-inductor"  # importing torch makes this folder
        # A process group of its own, because Ctrl-C must reach the grader alone, which ends the server.
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, process_group=0)
        assert process.stdout is not None
        self._own: subprocess.Popen[str] | None = process
        self._find(process.pid)
        with process.stdout as said:
            if said.readline() != "ready\n":
                self.close()
                raise ForkServerError("the fork server did not start; its own error output says why")

    def clone(self, modules: Sequence[str] = ()) -> ForkServer:
        """Start another server with the same imports, in milliseconds, and ``modules``; it ends with this one."""
        made = object.__new__(ForkServer)
        made._own = None
        made._place()
        try:
            with self._connect() as connection, connection.makefile("r", encoding="utf-8") as lines:
                data = CLONE + json.dumps([made._path, *modules]).encode()
                connection.sendall(struct.pack("<I", len(data)) + data)
                word, _, number = lines.readline().partition(" ")
            if word != "pid":
                raise OSError("it made no clone")
            made._find(int(number))
        except OSError as error:
            made._folder.close()
            raise ForkServerError(f"the fork server is gone ({error.strerror or error})") from None
        return made

    def _place(self) -> None:
        self._closing = threading.Lock()
        self._handle = -1
        self._folder = contextlib.ExitStack()
        self._path = str(self._folder.enter_context(scratch_folder("labkit-warm")) / "socket")

    def _find(self, pid: int) -> None:
        self.pid, self._handle = pid, os.pidfd_open(pid)

    def _connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(self._path)
        except OSError:
            connection.close()
            raise
        return connection

    def fork(self, request: ForkRequest, sockets: Sequence[socket.socket] = ()) -> Forked:
        """Run a request in a fork, which gets the ``sockets``; they are closed here."""
        return self.begin(request, sockets).wait_until_there()

    def begin(self, request: ForkRequest, sockets: Sequence[socket.socket] = ()) -> Forked:
        """Fork without waiting until the process has started."""
        data = request.to_bytes()
        try:
            connection = self._connect()
            try:
                socket.send_fds(connection, [struct.pack("<I", len(data))], [each.fileno() for each in sockets])
                connection.sendall(data)
            except OSError:
                connection.close()
                raise
        except OSError as error:
            raise ForkServerError(f"the fork server is gone ({error.strerror})") from None
        finally:
            for each in sockets:
                each.close()
        return Forked(connection)

    @property
    def is_alive(self) -> bool:
        with self._closing:
            return self._handle >= 0 and not self._ends_within(0)

    def _ends_within(self, milliseconds: int | None) -> bool:
        return _can_be_read_within(milliseconds, self._handle)

    def close(self) -> None:
        """End the server, its clones, and everything they forked."""
        with self._closing:
            if self._handle < 0:
                return
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            self._ends_within(None)
            if self._own:
                self._own.wait()
            os.close(self._handle)
            self._handle = -1
            self._folder.close()

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
