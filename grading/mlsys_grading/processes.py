"""Process trees: their threads, memory and processor time, and how to end all of one."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import parent_process
from multiprocessing.connection import wait
from pathlib import Path

import psutil

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_KILL_PATIENCE_SECONDS = 5.0
_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


def thread_variables(threads: int) -> dict[str, str]:
    """Return the environment that keeps numerical libraries to ``threads`` threads a process."""
    return dict.fromkeys(_THREAD_VARIABLES, str(threads))


def own_descendants() -> None:
    """Make this process adopt the orphans of its tree, and end that tree on SIGTERM.

    A daemon that a cell starts in a session of its own leaves the process group; as the subreaper this process inherits
    it, so that :func:`kill_tree` still finds it. Ctrl-C is left to the process that asked for us.
    """
    # A handler, not SIG_IGN, for SIGINT: an ignored signal would stay ignored in the kernels across exec.
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.signal(signal.SIGTERM, _end_with_tree)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # our starter may have held it, see below
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Block Ctrl-C until the end of the block, and permanently in the processes that are started in it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with_parent() -> None:
    """Have this process sent SIGTERM when its parent dies; Linux only, and no thread, so that forks stay safe."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def end_with_asker() -> None:
    """End this tree when the process dies that requested it from multiprocessing's fork server.

    Not :func:`end_with_parent`: our parent by pid is the fork server, and that one lives on as long as we do.
    """
    threading.Thread(target=_wait_for_asker, daemon=True).start()


def _wait_for_asker() -> None:
    asker = parent_process()
    if asker is not None:
        wait([asker.sentinel])
        _end_with_tree()


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _end_with_tree(*_: object) -> None:
    end_descendants()
    os._exit(128 + signal.SIGTERM)


def end_descendants() -> None:
    """End everything below this process."""
    _kill_descendants(psutil.Process())


def kill_tree(pid: int) -> None:
    """End ``pid`` and everything below it; a process that is gone already is fine."""
    with suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        # Stopped first: a stopped root starts nothing new and stays the parent of every orphan.
        root.suspend()
        _kill_descendants(root)
        root.kill()


def _kill_descendants(root: psutil.Process) -> None:
    deadline = time.monotonic() + _KILL_PATIENCE_SECONDS
    while time.monotonic() < deadline:
        alive = [child for child in root.children(recursive=True) if _alive(child)]
        if not alive:
            return
        for child in alive:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        time.sleep(0.01)


def _alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def birth(pid: int) -> int:
    """Return the start of ``pid`` in clock ticks since boot; 0 if there is no such process, or only a zombie.

    With it a number means one process for good: in ticks, since seconds move when the clock is set.
    Reference: man 5 proc_pid_stat, field 22.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError, PermissionError):  # too many open files, say, is no end of it
        return 0
    return 0 if fields[0] in "ZX" else int(fields[19])


def tree_memory_bytes(pid: int) -> int:
    """Measure the processes below ``pid``: summed PSS, or the largest recorded resident set if larger.

    PSS splits a shared page among its users, so that a library mapped by four kernels counts once. The recorded
    high-water mark catches a peak between two samples; it exists for one process only, never for a sum.
    """
    try:
        below = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return 0
    total = highest = 0
    for process in below:
        try:
            memory = process.memory_full_info()
        except (psutil.NoSuchProcess, psutil.AccessDenied, OSError):
            continue
        total += getattr(memory, "pss", 0) or getattr(memory, "uss", memory.rss)
        highest = max(highest, high_water_bytes(process.pid))
    return max(total, highest)


def high_water_bytes(pid: int) -> int:
    """Return the largest resident set that ``pid`` ever had, as Linux records it (VmHWM); 0 if it cannot be read."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def used_seconds(pid: int) -> float:
    """Return the processor time of ``pid`` and of the children that it waited for; 0 when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def waited_seconds(pid: int) -> float:
    """Return how long a process was ready and did not run; 0 when it is gone, or the kernel does not count."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def oom_kills() -> int:
    """Count the kills for lack of memory: in our cgroup or, where that is hidden, on the machine."""
    for path in ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control", "/proc/vmstat"):
        with suppress(OSError):
            for line in Path(path).read_text().splitlines():
                name, _, value = line.partition(" ")
                if name == "oom_kill":
                    return int(value)
    return 0
