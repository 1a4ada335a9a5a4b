"""Functions that the tests of the fork server run in its forks."""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import os
import select
import socket
import sys
import tempfile
import threading
import time
from typing import Any

Job = dict[str, Any]
Sockets = list[socket.socket]
_UNCOMMITTED = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000  # MAP_NORESERVE
HOARDS = (
    "hoard_in_children",
    "hoard_in_memory_files",
    "hoard_in_shared_memory",
    "hoard_out_of_sight",
    "hoard_behind_a_dead_thread",
    "hoard_in_flight",
    "hoard_in_page_tables",
    "hoard_in_mappings",
    "hoard_in_pipes",
    "hoard_in_connections",
    "hoard_in_watches",
)


def report(job: Job, sockets: Sockets) -> None:
    told = {"said": job["say"], "numpy": "numpy" in sys.modules, "user": os.getuid(), "here": os.getcwd()}
    sockets[0].sendall(json.dumps(told | {"pid": os.getpid()}).encode())


def read_memory(job: Job, sockets: Sockets) -> None:
    """Send the contents of this process's heap, and of its stack from its first frame on: arguments and environment."""
    with open("/proc/self/stat") as file:
        stack, heap, end_of_stack = (int(field) for field in _fields(file.read(), 28, 47, 51))
    end_of_heap = ctypes.CDLL(None, use_errno=True).sbrk
    end_of_heap.restype = ctypes.c_void_p
    for start, end in ((stack, end_of_stack), (heap, end_of_heap(0))):
        sockets[0].sendall(ctypes.string_at(start, end - start))


def _fields(stat: str, *numbers: int) -> list[str]:
    """Return the fields of /proc/PID/stat, as proc(5) counts them from 1."""
    after_name = stat.rpartition(")")[2].split()
    return [after_name[number - 3] for number in numbers]


_ASKED_BEFORE_THE_FORK = tempfile.gettempdir()


def report_temporary_folder(job: Job, sockets: Sockets) -> None:
    sockets[0].sendall(tempfile.gettempdir().encode())


def leave_something(job: Job, sockets: Sockets) -> None:
    module = sys.modules[__name__]
    found = hasattr(module, "left_behind") or os.path.exists("left_behind")
    module.left_behind = True  # type: ignore[attr-defined]
    open("left_behind", "w").close()
    sockets[0].sendall(b"something was here" if found else b"nothing was here")


def sleep(job: Job, sockets: Sockets) -> None:
    sockets[0].sendall(b"ready")
    time.sleep(600)


def multiply(job: Job, sockets: Sockets) -> None:
    """Start two daemons, each in a session of its own, that hold the socket open."""
    for _ in range(2):
        if os.fork() == 0:
            os.setsid()
            time.sleep(600)
    sockets[0].sendall(b"ready")
    time.sleep(600)


def hoard_in_children(job: Job, sockets: Sockets) -> None:
    for _ in range(8):
        if os.fork() == 0:
            held = bytearray(os.urandom(1 << 20)) * 64
            time.sleep(600)
            del held
    time.sleep(600)


def hoard_in_memory_files(job: Job, sockets: Sockets) -> None:
    for number in range(8):
        os.write(os.memfd_create(f"hoard{number}"), bytes(64 << 20))
    time.sleep(600)


def hoard_in_shared_memory(job: Job, sockets: Sockets) -> None:
    """Fill pages that a parent and its child share."""
    held = mmap.mmap(-1, 512 << 20)
    os.fork()
    for start in range(0, len(held), mmap.PAGESIZE):
        held[start] = 1
    time.sleep(600)


def hoard_out_of_sight(job: Job, sockets: Sockets) -> None:
    """Fill shared pages that are in no process's resident set and have no file name or descriptor."""
    held = mmap.mmap(-1, 512 << 20)
    for start in range(0, len(held), mmap.PAGESIZE):
        held[start] = 1
    held.madvise(mmap.MADV_DONTNEED)
    time.sleep(600)


def hoard_behind_a_dead_thread(job: Job, sockets: Sockets) -> None:
    def hoard() -> None:
        held = bytearray(os.urandom(1 << 20)) * 64
        time.sleep(600)
        del held

    for _ in range(8):  # each within the limit, with all that it held before
        if os.fork() == 0:
            threading.Thread(target=hoard).start()
            ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)  # exit of this thread only
    time.sleep(600)


def hoard_in_flight(job: Job, sockets: Sockets) -> None:
    """Leave files in memory that no process has open: they are in the queue of a socket."""
    near, far = socket.socketpair()
    for number in range(12):
        file = os.memfd_create(f"hoard{number}")
        socket.send_fds(near, [b"x"], [file])
        os.close(file)
    far.fileno()
    time.sleep(600)


def hoard_in_page_tables(job: Job, sockets: Sockets) -> None:
    """Read one page of every 2 MiB: each takes a table of 4 KiB for the one page of zeros that all share."""
    for _ in range(8):
        if os.fork() == 0:
            room = mmap.mmap(-1, 64 << 30, _UNCOMMITTED, mmap.PROT_READ)
            room.madvise(mmap.MADV_NOHUGEPAGE)
            for start in range(0, len(room), 2 << 20):
                room[start]
            time.sleep(600)
    time.sleep(600)


def hoard_in_mappings(job: Job, sockets: Sockets) -> None:
    """Make as many mappings as a process may have, in each of many processes."""
    map_pages = ctypes.CDLL(None).mmap
    for _ in range(30):
        if os.fork() == 0:
            for at in range(60_000):  # without objects of Python's, which would count as memory of its own
                map_pages(None, ctypes.c_size_t(4096), 1 + at % 2 * 2, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
            time.sleep(600)
    time.sleep(600)


def hoard_in_pipes(job: Job, sockets: Sockets) -> None:
    for _ in range(40):
        if os.fork() == 0:
            held = []
            with contextlib.suppress(OSError):
                while True:
                    held.append(os.pipe())
                    os.set_blocking(held[-1][1], False)
                    os.write(held[-1][1], bytes(1 << 16))
            time.sleep(600)
    time.sleep(600)


def hoard_in_connections(job: Job, sockets: Sockets) -> None:
    """Leave data in connections over the loopback that nobody accepts, and whose other end is closed."""
    for family in (socket.AF_INET, socket.AF_UNIX):
        listener = socket.socket(family)
        listener.bind(("127.0.0.1", 0) if family == socket.AF_INET else "/tmp/socket")
        listener.listen(4000)
        for _ in range(1200):
            with socket.socket(family) as near:
                near.connect(listener.getsockname())
                near.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    while True:
                        near.send(bytes(1 << 16))
        sockets.append(listener)
    time.sleep(600)


def hoard_in_watches(job: Job, sockets: Sockets) -> None:
    """Have many epolls watch the same hundreds of files."""
    for _ in range(30):
        if os.fork() == 0:
            files = [os.eventfd(0) for _ in range(240)]
            polls = [select.epoll() for _ in range(240)]
            for poll in polls:
                for file in files:
                    poll.register(file, select.EPOLLIN)
            time.sleep(600)
    time.sleep(600)


def outlive(job: Job, sockets: Sockets) -> None:
    """Lose the request to end with the keeper: by another signal, or by a program that a thread executes."""
    if job["way"] == "another signal":
        ctypes.CDLL(None).prctl(1, 28, 0, 0, 0)  # SIGWINCH, which does nothing
    sockets[0].sendall(b"ready")
    if job["way"] == "a program by a thread":
        threading.Thread(target=os.execv, args=("/bin/sleep", ["sleep", "600"])).start()
    time.sleep(600)


def breed(job: Job, sockets: Sockets) -> None:
    while True:
        with contextlib.suppress(OSError):
            os.fork()


def allocate(job: Job, sockets: Sockets) -> None:
    sockets[0].sendall(b"ready")
    sockets[0].recv(1)
    held = bytearray(b"x" * 1) * job["bytes"]
    sockets[0].sendall(b"done")
    sockets[0].recv(1)
    del held
