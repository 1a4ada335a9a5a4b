"""The host of the ranks: a process that imports torch once and forks ranks in milliseconds; they end with it.

The pool starts it by ``python -m``. It has one thread, no CUDA context and no process
group: nothing that a fork would break. Without fork (Windows) each rank is a new interpreter.

Reference: Linux manual pages fork(2), setpgid(2), prctl(2).
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import multiprocessing.connection as connections
import os
import shutil
import signal
import subprocess
import sys
import traceback
from typing import Any

from mlsys_labkit.ranks.processes.channel import KEY, Channel, connect
from mlsys_labkit.ranks.processes.worker import Birth, serve

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_POLL_SECONDS = 0.05  # without fork no signal reports the end of a child


class Host:
    """The host: it runs the notebook's commands "start", "kill" and "import", and reports "exited" ranks."""

    def __init__(self, channel: Channel, forks: bool) -> None:
        self._channel, self._forks = channel, forks
        self._ranks: dict[Birth, _Process] = {}
        self._wakeups, self._wake = os.pipe()
        if forks:
            for file in (self._wakeups, self._wake):
                os.set_blocking(file, False)
            signal.signal(signal.SIGCHLD, lambda *_: None)
            signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
            if sys.platform == "linux":  # reap the children of dead ranks, because a container may have no init
                ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)

    def serve(self) -> None:
        """Serve commands until the notebook has gone."""
        sources: list[Any] = [self._channel, *([self._wakeups] if self._forks else [])]
        try:
            while True:
                idle = self._forks or not self._ranks
                ready: list[Any] = connections.wait(sources, None if idle else _POLL_SECONDS)
                if self._channel in ready:
                    self._obey(*self._channel.receive())
                self._reap()
        except (EOFError, OSError):
            pass
        finally:
            self._kill()

    def _obey(self, command: str, *details: Any) -> None:
        if command == "start":
            self._kill()
            for birth in details[0]:
                self._ranks[birth] = self._fork(birth) if self._forks else _start(birth)
        elif command == "kill":
            self._kill()
            self._channel.send("killed", *details)
        elif command == "import":
            for name in details[0]:
                import_whole(name)
            gc.freeze()

    def _reap(self) -> None:
        if self._forks:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wakeups, 1 << 12)
        for birth, process in list(self._ranks.items()):
            code = process.poll()
            if code is not None:
                del self._ranks[birth]
                _kill_family(process)
                self._channel.send("exited", birth.generation, birth.rank, code)
        self._bury_orphans()

    def _bury_orphans(self) -> None:
        if not self._forks or sys.platform != "linux":
            return
        ours = {process.pid for process in self._ranks.values()}
        with contextlib.suppress(ChildProcessError):
            while found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if found.si_pid in ours:
                    return  # a rank that has just died: the next check reads its exit code
                os.waitpid(found.si_pid, 0)

    def _kill(self) -> None:
        """End all ranks and what they have started, and wait until they are gone."""
        for process in self._ranks.values():
            _kill_family(process)
        for process in self._ranks.values():
            process.wait()
        self._ranks.clear()

    def _fork(self, birth: Birth) -> _Process:
        parent, pid = os.getpid(), os.fork()
        if pid:
            with contextlib.suppress(OSError):  # parent and child both call it, so that it holds whichever runs first
                os.setpgid(pid, pid)
            return _Forked(pid)
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for file in (self._wakeups, self._wake, self._channel.fileno()):
                os.close(file)
            with contextlib.suppress(OSError):
                os.setpgid(0, 0)
            _die_with(parent)
            serve(birth)
        except BaseException:
            traceback.print_exc()  # into the host's own file, because the rank's does not exist yet
        finally:
            os._exit(1)  # serve never returns; on an error this child must not go on as a second host


class _Forked:
    """A child of fork with the interface of subprocess.Popen: its exit code, or -signal, once it has ended."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def poll(self) -> int | None:
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if pid else None

    def wait(self) -> None:
        os.waitpid(self.pid, 0)


_Process = _Forked | subprocess.Popen[bytes]


def _start(birth: Birth) -> _Process:
    module = "mlsys_labkit.ranks.processes.worker"
    group: dict[str, Any] = {} if sys.platform == "win32" else {"process_group": 0}
    return subprocess.Popen([sys.executable, "-m", module, birth.to_json()], stdin=subprocess.DEVNULL, **group)


def _kill_family(process: _Process) -> None:
    """Kill the process group of a rank: the rank, and the data loaders and commands that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # PermissionError: macOS, of a zombie's group
        if sys.platform == "win32":
            subprocess.run(["taskkill", "/F", "/T", "/PID", str(process.pid)], capture_output=True)
        else:
            os.killpg(process.pid, signal.SIGKILL)


def _die_with(parent: int) -> None:
    """Ask the kernel to kill this process with the host, even in a long call without the GIL (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            raise OSError("the process that starts ranks is gone")


def import_whole(name: str) -> None:
    """Import a module, or leave nothing of it: what stays of half a package breaks its import in the ranks."""
    known = set(sys.modules)
    try:
        importlib.import_module(name)
    except Exception:  # a rank that needs the module raises the error again
        for part in sys.modules.keys() - known:
            del sys.modules[part]


def main() -> None:
    """Run the host process. Arguments: the notebook's address, its private folder, "fork" or "spawn"."""
    address, folder, method = sys.argv[1:]
    try:
        channel = connect(address, bytes.fromhex(os.environ[KEY]))
        if method == "fork":
            os.chdir("/")  # the notebook's folder may be deleted, and some modules ask for it as they are imported
            for name in (
                "mlsys_labkit.ranks.processes.process_group",
                "mlsys_labkit.ranks.recording.rank_run",
                "cloudpickle",
            ):
                importlib.import_module(name)
            gc.freeze()  # a collection would write into every page that ranks share
    except BaseException:
        traceback.print_exc()  # the pool shows the last line
        sys.stderr.flush()
        os._exit(1)
    with contextlib.suppress(OSError):  # the notebook has ended meanwhile
        channel.send("ready", os.getpid())
        Host(channel, forks=method == "fork").serve()
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)  # skip the second that torch takes to unload


if __name__ == "__main__":
    main()
