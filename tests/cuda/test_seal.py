"""The process that runs graded kernels without hooks: what code may do there that a kernel was never meant to reach."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import platform
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlsys_labkit.cuda.cache import Cache
from mlsys_labkit.cuda.errors import CudaWorkerError
from mlsys_labkit.cuda.kernel.gcc.flags import Build
from mlsys_labkit.cuda.kernel.gcc.module import compile_module
from mlsys_labkit.cuda.kernel.gcc.toolchain import find_toolchain
from mlsys_labkit.cuda.kernel.gcc.unit import Unit
from mlsys_labkit.cuda.kernel.simulator.client import DeviceBuffer, LaunchRequest, LoadedModule, Simulator
from mlsys_labkit.cuda.source.source import Source

ARGUMENTS = 6
# No kernel: it stands for code of the C library that a kernel has jumped to. A graded cell may not contain it.
ASK = """
#include <cerrno>
#include <unistd.h>
__global__ void ask(const long* calls, long* answers, int n)
{
    for (int i = 0; i < n; ++i) {
        const long* c = calls + 7 * i;
        const long answer = syscall(c[0], c[1], c[2], c[3], c[4], c[5], c[6]);
        answers[i] = answer < 0 ? -errno : 0;
    }
}
"""
# Overwrites where it returns to, which it finds as the first word on its stack that leads into its module.
JUMP = """
__global__ void jump(const long* chain, long n, long begin, long end)
{
    long here[2] = {0, 0};
    volatile long* word = (volatile long*)((long)here & ~7l);
    while (*word < begin || *word >= end) ++word;
    for (int i = 0; i < n; ++i) word[i] = chain[i];
}
__global__ void stay(int* x) { *x += 1; }
"""
X86_64 = platform.machine() == "x86_64"
# name -> number on x86-64, on aarch64
NUMBERS = {
    "bpf": (321, 280), "chmod at": (268, 53), "chroot": (161, 51), "clone": (56, 220), "clone3": (435, 435),
    "connect": (42, 203), "dup": (32, 23), "execve": (59, 221), "fcntl": (72, 25), "ftruncate": (77, 46),
    "getcwd": (79, 17), "io_uring_setup": (425, 425), "ioctl": (16, 29), "keyctl": (250, 219), "kill": (62, 129),
    "link at": (265, 37), "memfd_create": (319, 279), "mkdir at": (258, 34), "mmap": (9, 222),
    "mprotect": (10, 226), "openat": (257, 56), "pidfd_open": (434, 434), "prctl": (157, 167),
    "prlimit": (302, 261), "process_vm_readv": (310, 270), "ptrace": (101, 117), "pwrite": (18, 68),
    "sched_setaffinity": (203, 122), "seccomp": (317, 277), "sendmsg": (46, 211), "shmget": (29, 194),
    "socket": (41, 198), "socketpair": (53, 199), "stat at": (262, 79), "sysinfo": (99, 179),
    "tgkill": (234, 131), "unlink at": (263, 35), "unshare": (272, 97),
}  # fmt: skip
HERE, READ, WRITE, EXECUTE = -100, 1, 2, 4  # AT_FDCWD, PROT_*


def number(name: str) -> int:
    return NUMBERS[name][0 if X86_64 else 1]


class Modules:
    """A compiled source in both workers: in the one of graded kernels, and in the one that keeps its rights."""

    def __init__(self, source: str, kernels: tuple[str, ...], graded: bool) -> None:
        unit = Unit(Source(source), kernels, graded=graded)
        self.path = compile_module(unit, Build.FAST, find_toolchain(), Cache()).path
        self.loaded = {sealed: Simulator.current().load(self.path, sealed) for sealed in (False, True)}

    def launch(self, sealed: bool, kernel: int, *values: int | DeviceBuffer) -> None:
        packed = struct.pack(f"{len(values)}q", *(getattr(each, "address", each) for each in values))
        offsets = tuple(range(0, len(packed), 8))
        module: LoadedModule = self.loaded[sealed]
        Simulator.current().launch(LaunchRequest(module, kernel, (1, 1, 1), (1, 1, 1), packed, offsets))

    def process(self, sealed: bool) -> int:
        return Simulator.current()._workers["graded" if sealed else "ordinary"].process.pid


@pytest.fixture(scope="module", autouse=True)
def new_workers() -> Iterator[None]:
    Simulator.current().close()
    yield
    Simulator.current().close()


@pytest.fixture(scope="module")
def asking() -> Modules:
    return Modules(ASK, ("ask",), graded=False)


def answers(modules: Modules, sealed: bool, calls: list[tuple[int, ...]]) -> list[str]:
    """Return what the system says to each call in that worker: the name of an error, or an empty string."""
    simulator = Simulator.current()
    asked, told = simulator.allocate(len(calls) * 8 * (1 + ARGUMENTS)), simulator.allocate(8 * len(calls))
    rows = [(*call, *[0] * (1 + ARGUMENTS - len(call))) for call in calls]
    asked.view().view(np.int64)[:] = np.array(rows).ravel()
    modules.launch(sealed, 0, asked, told, len(calls))
    return [errno.errorcode[-each] if each else "" for each in told.view().view(np.int64).tolist()]


def test_a_sealed_process_only_computes(asking: Modules) -> None:
    path = Simulator.current().allocate(16)
    path.view()[:] = np.frombuffer(b"/proc/no-such".ljust(16, b"\0"), np.uint8)
    at, me = path.address, os.getpid()
    calls: dict[str, tuple[Any, ...]] = {
        "open to read": ("openat", HERE, at, os.O_RDONLY),
        "open to write": ("openat", HERE, at, os.O_WRONLY | os.O_CREAT),
        "memory for code": ("mmap", 0, 4096, READ | EXECUTE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1),
        "memory made code": ("mprotect", at & -4096, 0, READ | WRITE | EXECUTE),
        "another process's signal": ("kill", me, 0),
        "a signal for a thread of another process": ("tgkill", me, me, 0),
        "memory of another process": ("process_vm_readv", me, 0, 0, 0, 0),
        "a process": ("clone", 0x10000),  # CLONE_THREAD alone is no valid request
        "a filter": ("seccomp", 9),
        "to be dumpable": ("prctl", 3),
        "a file's state": ("stat at", HERE, at, at, 0),
        "a processor": ("sched_setaffinity", -1, 0, 0),
        "another's limits": ("prlimit", me, 7, 0, 0),
        "another's descriptor": ("pidfd_open", me, 0),
        **{name: (name, -1, -1, -1, -1, -1, -1) for name in NUMBERS if name not in ("mmap", "mprotect", "openat")},
    }
    requests: list[tuple[int, ...]] = [(number(name), *arguments) for name, *arguments in calls.values()]
    assert dict(zip(calls, answers(asking, True, requests), strict=True)) == dict.fromkeys(calls, "EPERM")
    open_worker = dict(zip(calls, answers(asking, False, requests), strict=True))
    assert [name for name, said in open_worker.items() if said == "EPERM"] == []


def test_a_sealed_process_keeps_what_a_launch_needs(asking: Modules) -> None:
    asking.launch(True, 0, 0, 0, 0)
    own = asking.process(True)
    calls = [
        (number("mmap"), 0, 4096, READ | WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0),
        (number("tgkill"), own, own, 0),
    ]
    assert answers(asking, True, calls) == ["", ""]


def test_a_sealed_process_makes_way_for_one_with_another_module(asking: Modules) -> None:
    other = Modules(JUMP, ("jump", "stay"), graded=True)
    asking.launch(True, 0, 0, 0, 0)
    x = Simulator.current().allocate(4)
    x.view()[:] = 0
    other.launch(True, 1, x)
    second = other.process(True)
    asking.launch(True, 0, 0, 0, 0)
    other.launch(True, 1, x)
    assert other.process(True) == second, "the new process has both modules"
    assert x.view().view(np.int32).tolist() == [2]


@pytest.mark.skipif(not X86_64, reason="a return address on the stack, and instructions of x86-64")
def test_a_kernel_that_returns_into_the_c_library_starts_no_program(tmp_path: Path) -> None:
    """The kernel passes all checks of graded kernels: its bad index becomes known when it runs."""
    modules = Modules(JUMP, ("jump", "stay"), graded=True)
    simulator = Simulator.current()
    (libc, (begin, _)), *_ = [each for each in mapped("self").items() if each[0].startswith(("libc.so", "libc-2"))]
    system, leave = (
        ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p).value for name in ("system", "_exit")
    )
    assert system
    assert leave
    pop = system + ctypes.string_at(system, 1 << 19).index(b"\x5f\xc3")  # pop %rdi; ret
    made = []
    for sealed in (False, True):
        target = tmp_path / f"sealed-{sealed}"
        command, chain = simulator.allocate(256), simulator.allocate(64)
        command.view()[:] = np.frombuffer(f"#: > {target}".encode().ljust(256, b"\0"), np.uint8)
        modules.launch(sealed, 1, command)  # starts the process, and adds one to "#"
        command.view()[0] = ord(" ")
        places = mapped(str(modules.process(sealed)))
        moved = places[libc][0] - begin
        # The first place is a return alone: functions of the C library expect an aligned stack.
        words = (pop + 1 + moved, pop + moved, command.address, system + moved, leave + moved)
        chain.view().view(np.int64)[: len(words)] = words
        with pytest.raises(CudaWorkerError, match="called exit"):
            modules.launch(sealed, 0, chain, len(words), *places[modules.path.name])
        made.append(target.exists())
    assert made == [True, False]


def mapped(process: str) -> dict[str, tuple[int, int]]:
    """Return file name -> first and last address of its mappings."""
    found: dict[str, tuple[int, int]] = {}
    for line in Path(f"/proc/{process}/maps").read_text().splitlines():
        addresses, *_, path = line.split(maxsplit=5)
        begin, end = (int(each, 16) for each in addresses.split("-"))
        name = os.path.basename(path)
        found[name] = (found.get(name, (begin, end))[0], end)
    return found
