"""System calls, sockets and devices by which programs are known to leave a sandbox, each tried from within one."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import mmap
import os
import platform
import signal
import socket
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlsys_grading.sandbox import syscalls
from tests.grading.escape_helpers import BOTH, ENOSYS, EPERM, call, numbers
from tests.grading.test_sandbox import inside

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="a sandbox takes Linux's namespaces"),
    pytest.mark.xdist_group("sandbox"),
    pytest.mark.usefixtures("sandbox_allowed"),
]


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_filter_numbers_equal_the_kernel_headers(machine: str) -> None:
    known, column = numbers(machine), syscalls.SUPPORTED.index(machine)
    # Than many a distribution's headers:
    newer = {"cachestat", "open_tree_attr", "futex_wake", "futex_wait", "futex_requeue", "set_mempolicy_home_node"}
    for name, row in syscalls.REFUSED.items():
        if row[column] is not None and (name in known or name not in newer):
            assert row[column] == known[name], name
        elif row[column] is None:
            assert name not in known


ESCAPES = {
    "namespaces": ["unshare", "setns", "chroot", "pivot_root"],
    "mounts": ["mount", "umount2", "fsopen", "fsconfig", "fsmount", "fspick", "open_tree", "move_mount"],
    "mounts of later kernels": ["mount_setattr"],
    "other processes": ["ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "pidfd_getfd"],
    "parts of the kernel": ["io_uring_setup", "io_uring_enter", "io_uring_register", "userfaultfd", "bpf"],
    "watching": ["perf_event_open", "fanotify_init", "inotify_init1", "syslog"],
    "keyrings": ["keyctl", "add_key", "request_key"],
    "modules and kernels": ["init_module", "finit_module", "delete_module", "kexec_load", "reboot"],
    "the machine": ["swapon", "swapoff", "acct", "quotactl", "settimeofday", "clock_settime", "adjtimex"],
    "names": ["sethostname", "setdomainname"],
    "files by handle": ["name_to_handle_at", "open_by_handle_at"],
    "memory that counts nowhere": ["shmget", "msgget", "semget", "memfd_secret", "vmsplice"],
    "what all share": ["io_setup", "sysinfo", "mincore", "process_madvise"],
    "pages that others have as well": ["move_pages", "migrate_pages", "mbind", "get_mempolicy", "set_mempolicy"],
    "terminals": ["vhangup"],
}


@BOTH
def test_system_calls_beyond_the_sandbox_are_refused(confined: Callable[..., Any]) -> None:
    known = numbers(platform.machine())
    wanted = [name for names in ESCAPES.values() for name in names]
    told = confined(lambda: {name: call(known[name], 0, 0, 0, 0, 0, 0) for name in wanted})
    assert told == dict.fromkeys(wanted, EPERM)


@BOTH
def test_shared_files_carry_no_locks_or_watches(confined: Callable[..., Any]) -> None:
    """Otherwise ranks could pass each other bits in locks, uncounted."""
    known = numbers(platform.machine())

    def probe() -> dict[str, Any]:
        file = os.open("/bin/sh", os.O_RDONLY)
        described = ctypes.create_string_buffer(b"\1\0", 64)  # struct flock: F_WRLCK, of the whole file
        told = {"flock": call(known["flock"], file, fcntl.LOCK_EX | fcntl.LOCK_NB)}
        for name, command in {"F_GETLK": 5, "F_OFD_GETLK": 36, "F_SETLEASE": 0x400, "F_NOTIFY": 0x402}.items():
            told[name] = call(known["fcntl"], file, command, ctypes.addressof(described))
        fcntl.fcntl(file, fcntl.F_SETFD, fcntl.FD_CLOEXEC)  # what everybody does goes on
        with open("/tmp/own", "w") as own:
            fcntl.lockf(own, fcntl.LOCK_EX)
        for device in ("null", "zero", "full", "random", "urandom"):
            with open(f"/dev/{device}", "rb") as shared:
                for kind, command in {"F_SETLK": 6, "F_SETLKW": 7, "F_OFD_SETLK": 37, "F_OFD_SETLKW": 38}.items():
                    told[f"{kind} {device}"] = call(known["fcntl"], shared.fileno(), command, ctypes.addressof(reading))
        return told

    reading = ctypes.create_string_buffer(64)  # struct flock: F_RDLCK, of the whole file
    locked = ("null", "zero", "full", "random", "urandom")
    with contextlib.ExitStack() as stack:
        for path in ("/bin/sh", *(f"/dev/{device}" for device in locked if confined is inside)):
            held = stack.enter_context(open(path, "rb" if path == "/bin/sh" else "r+b"))
            fcntl.flock(held, fcntl.LOCK_SH)
            fcntl.lockf(held, fcntl.LOCK_SH if path == "/bin/sh" else fcntl.LOCK_EX)
        told = confined(probe)
    refused = dict.fromkeys(["F_GETLK", "F_OFD_GETLK", "F_SETLEASE", "F_NOTIFY"], EPERM)
    assert {name: code for name, code in told.items() if code} == refused


def test_new_namespaces_are_refused_by_every_call() -> None:
    flags = {"user": 28, "mount": 17, "pid": 29, "net": 30, "ipc": 27, "uts": 26, "cgroup": 25}
    known = numbers(platform.machine())

    def clone(bit: int) -> int:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.syscall.restype = ctypes.c_long
        child = libc.syscall(ctypes.c_long(known["clone"]), ctypes.c_long(1 << bit | signal.SIGCHLD), 0, 0, 0, 0)
        if child == 0:
            os._exit(0)
        return ctypes.get_errno() if child == -1 else 0

    assert inside(lambda: [clone(bit) for bit in flags.values()]) == [EPERM] * len(flags)
    assert inside(lambda: call(known["clone3"], 0, 0)) == ENOSYS


def test_newer_system_calls_do_not_exist() -> None:
    assert inside(lambda: [call(number) for number in (470, 471, 600, 1 << 20)]) == [ENOSYS] * 4


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other numbers for the same calls are x86's")
def test_x32_and_i386_system_calls_are_refused() -> None:
    getpid_of_x32, getpid_of_i386 = 0x40000000 + 39, 20
    assert inside(lambda: call(getpid_of_x32)) == EPERM

    def interrupt() -> int:
        code = bytes([0xB8, getpid_of_i386, 0, 0, 0, 0xCD, 0x80, 0xC3])  # mov eax, 20; int 0x80; ret
        page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.write(code)
        return int(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))())

    # By the filter, or by a kernel that was built without them.
    assert inside(interrupt) in (f"status {-signal.SIGSYS}", f"status {-signal.SIGSEGV}")


SOCKETS = {
    "vsock": (40, 1, 0),
    "alg": (38, 5, 0),
    "packet": (17, 3, 0),
    "key": (15, 3, 2),
    "rds": (21, 5, 0),
    "can": (29, 3, 1),
    "tipc": (30, 1, 0),
    "bluetooth": (31, 3, 0),
    "xdp": (44, 3, 0),
    "sctp": (2, 5, 132),
    "sctp over IPv6": (10, 5, 132),
    "mptcp": (2, 1, 262),
    "icmp": (2, 2, 1),
    "raw": (2, 3, 255),
    "netfilter": (16, 3, 12),
    "audit": (16, 3, 9),
    "xfrm": (16, 3, 6),
    "uevents": (16, 3, 15),
    "generic netlink": (16, 3, 16),
}


def test_sockets_reach_no_further_than_the_loopback() -> None:
    known = numbers(platform.machine())
    assert inside(lambda: {name: call(known["socket"], *row) for name, row in SOCKETS.items()}) == dict.fromkeys(
        SOCKETS, EPERM
    )
    pair = ctypes.c_int * 2
    asked = ("tipc", "vsock", "sctp")
    told = inside(lambda: [call(known["socketpair"], *SOCKETS[name], ctypes.addressof(pair())) for name in asked])
    assert told == [EPERM] * len(asked)

    def ordinary() -> list[int]:
        rows = [(1, 1, 0), (1, 2, 0), (2, 1, 0), (2, 1, 6), (2, 2, 17), (10, 1, 6), (16, 3, 0)]
        socket.socketpair()
        return [call(known["socket"], *row) for row in rows]

    assert inside(ordinary) == [0] * 7


@BOTH
def test_sockets_with_names_outside_the_file_system_stay_outside(confined: Callable[..., Any]) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0labkit-test-{os.getpid()}")
        server.listen()
        name = server.getsockname()

        def connect() -> None:
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(name)

        connect()
        assert confined(connect) == "ConnectionRefusedError"


@BOTH
@pytest.mark.parametrize(
    "path",
    [
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/kernel/hostname",
        "/proc/sys/kernel/msgmni",
        "/proc/sys/net/ipv4/tcp_wmem",
        "/proc/sys/net/core/somaxconn",
        "/proc/sys/user/max_user_namespaces",
        "/proc/self/oom_score_adj",
        "/proc/1/uid_map",
    ],
)
def test_the_kernels_settings_stay_as_they_are(confined: Callable[..., Any], path: str) -> None:
    def probe() -> None:
        value = {"/proc/self/oom_score_adj": "-500", "/proc/1/uid_map": "0 0 1"}.get(path) or Path(path).read_text()
        with open(path, "r+") as file:
            file.write(value)

    assert Path(path).exists()
    assert confined(probe) in ("PermissionError", "OSError", "FileNotFoundError"), path


@BOTH
def test_devices_and_settings_of_the_machine_are_hidden(confined: Callable[..., Any]) -> None:
    assert confined(lambda: os.listdir("/sys")) == "FileNotFoundError"
    secret = ("/proc/kcore", "/proc/1/mem", "/proc/kmsg", "/proc/kpageflags")
    assert confined(lambda: [os.access(path, os.R_OK) for path in secret if path != "/proc/1/mem"]) == [False] * 3
    shown = ["fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "urandom", "zero"]
    assert set(confined(lambda: sorted(os.listdir("/dev")))) <= set(shown)
    assert not {"kmsg", "mem", "tty", "kvm", "fuse", "loop0"} & set(confined(lambda: os.listdir("/dev")))


def test_graders_terminal_gets_no_input_from_the_sandbox() -> None:
    import pty

    leader, terminal = pty.openpty()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
        for standard in (0, 1):
            os.dup2(terminal, standard)

        def type_on_it() -> list[str]:
            told = []
            for path in ("", "/dev/tty", "/dev/pts/0"):
                try:
                    found = os.open(path, os.O_RDWR) if path else 0
                    fcntl.ioctl(found, termios.TIOCSTI, b"x")
                    told.append("typed")
                except OSError as error:
                    told.append(type(error).__name__)
            return told

        os.write(write, repr(inside(type_on_it)).encode())
        os._exit(0)
    told = os.read(read, 1 << 10).decode()
    os.waitpid(child, 0)
    for descriptor in (leader, terminal, read, write):
        os.close(descriptor)
    assert eval(told) == ["OSError", "FileNotFoundError", "FileNotFoundError"]  # ENOTTY of /dev/null


@BOTH
def test_no_signal_reaches_the_keeper(confined: Callable[..., Any]) -> None:
    """Tried by process group, by session, by every target of kill(2), and as the owner of a file."""

    def probe() -> str:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for process in (0, -1, -os.getpgrp()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGTERM)
        near, far = socket.socketpair()
        fcntl.fcntl(near, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(near, fcntl.F_SETSIG, signal.SIGTERM)
        fcntl.fcntl(near, fcntl.F_SETFL, os.O_ASYNC)
        far.send(b"x")
        time.sleep(0.1)
        return f"still here as {os.getpid()}, {os.getpgrp()}, {os.getsid(0)}"

    assert confined(probe) == "still here as 1, 1, 1"
