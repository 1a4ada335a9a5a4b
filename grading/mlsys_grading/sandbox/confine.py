"""The confinement of an ordinary process, and a report of the parts of it that this machine allows.

The order matters: namespaces, root directory and process limits while there is still a right to them; then another user
in a user namespace of its own, no capabilities, no way to gain any, and the filter on system calls last.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn

from mlsys_grading.sandbox import cgroup, guard, kernel, syscalls
from mlsys_grading.sandbox.limits import SandboxLimits
from mlsys_grading.sandbox.proc import mount_processes
from mlsys_grading.sandbox.root import build_root, readable_paths, seal_root
from mlsys_labkit.errors import LabkitError

_OF_THE_TREE = kernel.NEW_PID | kernel.NEW_NET | kernel.NEW_IPC | kernel.NEW_UTS
_INSIDE = 1000  # the user and group of the confined process, as seen from inside
FAILED = 113
"""Exit status of a keeper whose sandbox could not be made."""

Oversee = Callable[[int, cgroup.Cgroup | None], int]


class _KeeperIsGoneError(Exception):
    """An error: the keeper was killed while its sandbox was being made, so no process waits for the result."""


@dataclass(frozen=True)
class Sandbox:
    """Rights and limits of one confined process tree.

    Attributes:
        limits: memory, processes, files.
        readable: paths shown read-only, at the same place as outside.
        devices: further device files, such as /dev/nvidia0.
        user: the uid outside when the grader is root, different for every sandbox at a time; else the grader's own.
        environment: all the variables there are inside.
        cpus: the processors it runs on and cannot leave; empty for all that the grader may use.
        shows_processes: whether /proc has processes, whose files tell what other sandboxes do (``proc``).
    """

    limits: SandboxLimits = field(default_factory=SandboxLimits)
    readable: tuple[str, ...] = field(default_factory=readable_paths)
    devices: tuple[str, ...] = ()
    user: int = field(default_factory=lambda: 200_000 + 4 * (os.getpid() % 100_000))
    environment: dict[str, str] = field(default_factory=dict)
    cpus: tuple[int, ...] = ()
    shows_processes: bool = True


def start(
    sandbox: Sandbox, work: Callable[[], None], keep: tuple[int, ...] = (), oversee: Oversee | None = None
) -> int:
    """Fork a process that is the keeper of a confined one; returns the keeper's pid. See ``keep_confined``."""
    pid = os.fork()
    if pid == 0:
        keep_confined(sandbox, work, keep, oversee)
    return pid


def keep_confined(
    sandbox: Sandbox, work: Callable[[], None], keep: tuple[int, ...] = (), oversee: Oversee | None = None
) -> NoReturn:
    """Keep a process that confines itself and then runs ``work``: for a fork with nothing else to do.

    The keeper is outside the new pid namespace, holds no descriptor of the sandbox, ends with its own parent, and exits
    with the status of the confined process: killing it kills the whole tree. It spends its life in ``oversee(pid,
    group)`` of the confined process and its cgroup, if it has one, which returns the status that ``waitpid`` gave.
    ``keep`` are the only descriptors that the confined process inherits, beside 0, 1 and 2, which lead to /dev/null. A
    confinement that fails ends with exit status 113 and its reason on standard error.
    """
    code = FAILED
    try:
        kernel.prctl(kernel.SET_PDEATHSIG, signal.SIGKILL)
        os.setsid()
        code = _keep(sandbox, work, keep, oversee or _wait)
    except BaseException as error:
        _say(f"the sandbox could not be made: {error}")
    finally:
        os._exit(code)


def _wait(pid: int, group: cgroup.Cgroup | None) -> int:
    return os.waitpid(pid, 0)[1]


def _keep(sandbox: Sandbox, work: Callable[[], None], keep: tuple[int, ...], oversee: Oversee) -> int:
    is_root = os.geteuid() == 0
    group = cgroup.make(sandbox.limits)
    if not is_root:
        _own_user_namespace(os.geteuid(), os.getegid(), 0)
    kernel.unshare(_OF_THE_TREE)
    _raise_loopback()
    ours, theirs = socket.socketpair()
    first = os.fork()
    if first == 0:
        code = FAILED
        try:
            ours.close()
            os.setsid()  # without a user of the sandbox's own, a signal to its group would reach the keeper
            _confine(sandbox, (*keep, theirs.fileno()), is_root)
            _await_keeper(theirs)
            os.dup2(1, 2)  # errors up to here went to the grader's stderr; student code must not flood it
            code = 1
            work()
            code = 0
        except SystemExit:
            code = 1
        except BaseException as error:
            if code == FAILED and not isinstance(error, _KeeperIsGoneError):
                _say(f"the sandbox could not be made: {error}")
        finally:
            os._exit(code)
    theirs.close()
    if group:
        group.add(first)  # slow in the kernel; meanwhile the process confines itself
    guard.watch(first)
    if ours.recv(1):
        ours.send(b".")
    ours.close()
    for descriptor in keep:
        with contextlib.suppress(OSError):
            os.close(descriptor)  # so that the other side sees the end of the confined process
    status = oversee(first, group)
    if group:
        group.remove()
    if os.WIFSIGNALED(status):
        if os.WTERMSIG(status) != signal.SIGKILL:
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    return os.waitstatus_to_exitcode(status)


def _confine(sandbox: Sandbox, keep: tuple[int, ...], is_root: bool) -> None:
    only_descriptors(keep)
    kernel.unshare(kernel.NEW_MOUNT)  # before pivot_root, which changes the root of every process in the namespace
    build_root(sandbox.readable, sandbox.limits.scratch_bytes, sandbox.devices)
    processes = mount_processes(bool(sandbox.devices), sandbox.shows_processes or bool(sandbox.devices))
    seal_root()
    os.chdir("/sandbox")
    os.umask(0o022)
    os.environ.clear()
    os.environ.update({"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/home", "TMPDIR": "/tmp", "LANG": "C.UTF-8"})
    os.environ.update(sandbox.environment)
    sandbox.limits.apply(gpu=bool(sandbox.devices))
    if sandbox.cpus:
        os.sched_setaffinity(0, sandbox.cpus)
    os.nice(5)  # the processes that watch this tree have priority
    if is_root:
        os.setgroups([])
        os.setresgid(sandbox.user, sandbox.user, sandbox.user)
        os.setresuid(sandbox.user, sandbox.user, sandbox.user)
        kernel.prctl(kernel.SET_DUMPABLE, 1)  # a change of user cleared it, and with it the right to the map below
    _own_user_namespace(os.geteuid(), os.getegid(), _INSIDE, processes)
    os.close(processes)
    kernel.prctl(kernel.SET_PDEATHSIG, signal.SIGKILL)  # not earlier: a change of user would undo it
    kernel.drop_capabilities()
    kernel.prctl(kernel.SET_NO_NEW_PRIVS, 1)
    # Root may read any process, another watcher only a dumpable one. Inside, the filter forbids reading (see syscalls).
    kernel.prctl(kernel.SET_DUMPABLE, 0 if is_root else 1)
    syscalls.install(is_pinned=bool(sandbox.cpus))


def _await_keeper(link: socket.socket) -> None:
    """Continue only with a keeper that was alive after this process asked to die with it."""
    try:
        link.send(b".")
        is_there = bool(link.recv(1))
    except OSError:
        is_there = False
    if not is_there:
        raise _KeeperIsGoneError
    link.close()


def _own_user_namespace(user: int, group: int, inside: int, processes: int | None = None) -> None:
    """Enter a new user namespace; ``processes`` is a descriptor of a /proc that can be written."""
    kernel.unshare(kernel.NEW_USER)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{inside} {user} 1"), ("gid_map", f"{inside} {group} 1")):
        path = f"/proc/self/{name}" if processes is None else f"self/{name}"
        file = os.open(path, os.O_WRONLY, dir_fd=processes)
        try:
            os.write(file, text.encode())
        finally:
            os.close(file)


def _raise_loopback() -> None:
    """Enable 127.0.0.1, over which ranks of one lab communicate; this loopback leads nowhere else."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sH14x", b"lo", 0x1 | 0x40)  # IFF_UP, IFF_RUNNING
        fcntl.ioctl(control, 0x8914, request)  # SIOCSIFFLAGS


def only_descriptors(keep: tuple[int, ...]) -> None:
    null = os.open("/dev/null", os.O_RDWR)
    for standard in (0, 1):
        os.dup2(null, standard)
    wanted = sorted({*keep, 2})
    for low, high in zip([2, *wanted], [*wanted, 1 << 20], strict=True):
        os.closerange(low + 1, high)


def refusal(sandbox: Sandbox | None = None) -> str:
    """Return why this machine allows no sandbox, in one sentence, after a trial; "" if it allows one."""
    if sys.platform != "linux":
        return f"a sandbox takes Linux's namespaces, and this is {sys.platform}"
    if os.uname().machine not in syscalls.SUPPORTED:
        return f"the system-call filter knows {' and '.join(syscalls.SUPPORTED)}, not {os.uname().machine}"
    try:
        trial = sandbox or Sandbox()
    except LabkitError as error:
        return str(error)
    read, write = os.pipe()
    keeper = os.fork()
    if keeper == 0:  # in the fork only: other threads write to this process's standard error
        os.dup2(write, 2)
        keep_confined(trial, lambda: None)
    os.close(write)
    _, status = os.waitpid(keeper, 0)
    os.set_blocking(read, False)  # another thread's fork may hold the other end for long
    with os.fdopen(read, "rb", buffering=0) as told:
        said = (told.read() or b"").decode(errors="replace").strip()
    if status == 0:
        return ""
    return said or f"a trial process ended with status {os.waitstatus_to_exitcode(status)}"


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, (text + "\n").encode())
