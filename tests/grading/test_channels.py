"""Two sandboxes at one time, and all by which one could tell the other a bit: each is tried, and none does."""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import os
import platform
import signal
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mlsys_grading.sandbox.confine import Sandbox, start
from mlsys_grading.sandbox.root import readable_paths
from tests.grading.escape_helpers import call, numbers, without_rights

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="a sandbox takes Linux's namespaces"),
    pytest.mark.xdist_group("sandbox"),
    pytest.mark.usefixtures("sandbox_allowed"),
]

BITS = (0, 1, 0, 1, 1, 0)
PAGES = 64
State = dict[str, Any]
SO_COOKIE = 57
F_GET_RW_HINT, F_SET_RW_HINT = 1035, 1036
GET_EXTENTS, EXT4_GET_CACHED, EXT4_FORGET = 0xC020660B, 0xC020662A, 0x6628


def map_file(state: State, bit: int) -> None:
    """Have every page of the shared file in this process, or none."""
    for held in state.pop("map", ()):
        held.close()
    if bit:
        with open(state["path"], "rb") as file:
            memory = mmap.mmap(file.fileno(), PAGES * mmap.PAGESIZE, access=mmap.ACCESS_COPY)
        for at in range(0, len(memory), mmap.PAGESIZE):
            memory[at]
        state["map"] = [memory]


def _address(state: State) -> int:
    if "map" not in state:
        map_file(state, 1)
    return int(ctypes.addressof(ctypes.c_char.from_buffer(state["map"][0])))


def see_areas(state: State, name: str) -> Any:
    """Return what /proc says of the mapping of the shared file, without numbers of addresses."""
    address = _address(state)
    lines = Path(f"/proc/self/{name}").read_text().split("\n")
    beginning = next(at for at, line in enumerate(lines) if line.startswith(f"{address:x}"))
    return lines[beginning + 1 : beginning + 20] if name == "smaps" else lines[beginning].split()[2:]


def see_rollup(state: State) -> Any:
    _address(state)
    text = Path("/proc/self/smaps_rollup").read_text()
    return next(int(line.split()[1]) // PAGES for line in text.splitlines() if line.startswith("Shared_Clean"))


def see_pagemap(state: State) -> Any:
    with open("/proc/self/pagemap", "rb") as file:
        file.seek(_address(state) // mmap.PAGESIZE * 8)
        return struct.unpack("<Q", file.read(8))[0] >> 55


def start_processes(state: State, bit: int) -> None:
    for _ in range(40 * bit):
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)


def _since_last(state: State, name: str, now: int) -> int:
    last = state.get(name, now)
    state[name] = now
    return now - last


def see_process_number(state: State) -> Any:
    child = os.fork()
    if child == 0:
        os._exit(0)
    handle = os.pidfd_open(child)
    os.waitpid(child, 0)
    number = os.fstat(handle).st_ino
    os.close(handle)
    return _since_last(state, "process", number) // 30


def take_cookies(state: State, bit: int) -> None:
    for _ in range(9000 * bit):
        with socket.socket(socket.AF_UNIX) as made:
            made.getsockopt(socket.SOL_SOCKET, SO_COOKIE, 8)


def see_cookie(state: State) -> Any:
    with socket.socket(socket.AF_UNIX) as made:
        cookie = int.from_bytes(made.getsockopt(socket.SOL_SOCKET, SO_COOKIE, 8), "little")
    return _since_last(state, "cookie", cookie) > 4000


def touch_device(state: State, bit: int) -> None:
    if bit:
        time.sleep(0.02)  # files' times are those of the kernel's last tick
        os.utime("/dev/null")


def see_device(state: State) -> Any:
    return _since_last(state, "device", os.stat("/dev/null").st_mtime_ns) > 0


def _control(state: State, number: int, *arguments: int, name: str = "ioctl") -> int:
    with open(state["path"], "rb") as file:
        return call(numbers(platform.machine())[name], file.fileno(), number, *arguments)


def set_hint(state: State, bit: int) -> None:
    value = ctypes.c_uint64(2 + bit)
    _control(state, F_SET_RW_HINT, ctypes.addressof(value), name="fcntl")


def see_hint(state: State) -> Any:
    value = ctypes.c_uint64()
    return [_control(state, F_GET_RW_HINT, ctypes.addressof(value), name="fcntl"), value.value]


def _extents(state: State, command: int) -> list[int]:
    asked = ctypes.create_string_buffer(struct.pack("<QQIIII", 0, 1 << 40, 0, 0, 32, 0), 4096)
    return [_control(state, command, ctypes.addressof(asked)), struct.unpack_from("<QQII", asked)[3]]


def keep_extents(state: State, bit: int) -> None:
    if bit:
        _extents(state, GET_EXTENTS)
    else:
        _control(state, EXT4_FORGET)


def see_extents(state: State) -> Any:
    return _extents(state, EXT4_GET_CACHED)


def queue_signals(state: State, bit: int) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
    queue = ctypes.CDLL(None).sigqueue
    while bit and queue(os.getpid(), int(signal.SIGRTMIN), None) == 0:
        state["queued"] = True
    while not bit and signal.sigtimedwait([signal.SIGRTMIN], 0):
        pass


def see_queue(state: State) -> Any:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
    result = ctypes.CDLL(None).sigqueue(os.getpid(), int(signal.SIGRTMIN), None)
    signal.sigtimedwait([signal.SIGRTMIN], 0)
    return result


# name -> what the one does for a bit, what the other sees
CHANNELS: dict[str, tuple[Callable[[State, int], None], Callable[[State], Any]]] = {
    "smaps": (map_file, lambda state: see_areas(state, "smaps")),
    "numa_maps": (map_file, lambda state: see_areas(state, "numa_maps")),
    "smaps_rollup": (map_file, see_rollup),
    "pagemap": (map_file, see_pagemap),
    "process numbers": (start_processes, see_process_number),
    "cookies of sockets": (take_cookies, see_cookie),
    "times of a device": (touch_device, see_device),
    "hint of a file": (set_hint, see_hint),
    "cached extents": (keep_extents, see_extents),
    "queued signals": (queue_signals, see_queue),
}


OF_PROCESSES = {"smaps", "numa_maps", "smaps_rollup", "pagemap"}
"""What ranks do not see, and other sandboxes do: grading/README.md names it."""


def _serve(end: socket.socket, path: str) -> None:
    state: State = {"path": path}
    with end.makefile("r") as lines:
        for line in lines:
            name, bit = json.loads(line)
            told: Any = None
            with contextlib.suppress(OSError, StopIteration):
                told = CHANNELS[name][1](state) if bit is None else CHANNELS[name][0](state, bit)
            end.sendall((json.dumps(told) + "\n").encode())
    os._exit(0)


@contextlib.contextmanager
def sandbox(user: int, path: str, is_rank: bool) -> Iterator[Callable[[str, int | None], Any]]:
    """Yield ``ask(channel, bit)``: the sandbox tells a bit, or with None says what it sees."""
    ours, theirs = socket.socketpair()
    cpus = (min(os.sched_getaffinity(0)),)  # both on one: some numbers are drawn for each processor apart
    limits = Sandbox(user=user, readable=(*readable_paths(), path), cpus=cpus, shows_processes=not is_rank)
    keeper = start(limits, lambda: _serve(theirs, path), keep=(theirs.fileno(),))
    theirs.close()
    with ours, ours.makefile("r") as lines:

        def ask(name: str, bit: int | None) -> Any:
            ours.sendall((json.dumps([name, bit]) + "\n").encode())
            return json.loads(lines.readline())

        yield ask
        ours.shutdown(socket.SHUT_RDWR)
    os.waitpid(keeper, 0)


def passing(path: str, is_rank: bool) -> list[str]:
    """List the channels by which the second sandbox can tell the first one's bits."""
    found = []
    with sandbox(300_001, path, is_rank) as tell, sandbox(300_003, path, is_rank) as look:
        for name in CHANNELS:
            look(name, None)
            seen: dict[int, set[str]] = {0: set(), 1: set()}
            for bit in BITS:
                tell(name, bit)
                seen[bit].add(json.dumps(look(name, None)))
            if not seen[0] & seen[1]:
                found.append(name)
    return found


@pytest.mark.parametrize("is_rank", [True, False], ids=["rank", "ordinary"])
@pytest.mark.parametrize("is_root", [True, False], ids=["root", "nobody"])
def test_no_bit_passes_between_two_sandboxes_but_as_documented(is_root: bool, is_rank: bool) -> None:
    if is_root and os.geteuid():
        pytest.skip("without root's rights there is one user for all sandboxes")
    numbers(platform.machine())
    with tempfile.NamedTemporaryFile(dir="/tmp") as file:  # where every user may go
        file.write(os.urandom(PAGES * mmap.PAGESIZE))
        file.flush()
        os.fsync(file.fileno())  # only then has it a place on the disk
        os.fchmod(file.fileno(), 0o755)
        if not os.geteuid():
            os.chown(file.name, 65534, 65534)
        path = file.name
        found = passing(path, is_rank) if is_root else without_rights(lambda: passing(path, is_rank))
    assert set(found) <= (set() if is_rank else OF_PROCESSES)
