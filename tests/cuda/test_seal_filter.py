"""The filter of graded launches, call by call, for each processor that a compiler and an emulator are here for."""

from __future__ import annotations

import operator
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mlsys_labkit.cuda.kernel import gcc
from tests.grading.escape_helpers import numbers

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="filters of system calls are Linux's")

RUNTIME = Path(gcc.__file__).parents[1] / "native/runtime"
PRINTED = """
#include "seal.cpp"
#include <cstdio>
int main() {
    for (const auto& [code, yes, no, k] : lk::filter_of_launches()) std::printf("%u %u %u %u ", code, yes, no, k);
    std::printf("%d", getpid());
}
"""
# The compiler and what runs its programs, the kernel's number of the processor, calls that no other has.
MACHINES = {
    "x86_64": (["x86_64-linux-gnu-g++"], [], 0xC000003E, {"poll"}),
    "aarch64": (
        ["aarch64-linux-gnu-g++"],
        ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"],
        0xC00000B7,
        set[str](),
    ),
}
ALWAYS = """
read write writev ppoll brk munmap mremap madvise futex sched_yield nanosleep clock_nanosleep clock_gettime
restart_syscall rseq set_robust_list rt_sigaction rt_sigprocmask rt_sigreturn sigaltstack getpid getppid gettid
getrandom exit exit_group
"""
ALLOW, REFUSE, KILL, ANY = 0x7FFF0000, 0x00050001, 0x80000000, (0, 0, 0)
READABLE, EXECUTABLE = 1, 4
LOAD, RETURN = 0x20, 0x06
TESTS = {0x15: operator.eq, 0x45: operator.and_}


def answer(lines: list[tuple[int, ...]], number: int, machine: int, arguments: tuple[int, ...] = ANY) -> int:
    """Run the filter for one call, as the kernel does (Documentation/networking/filter.rst)."""
    data = {0: number, 4: machine} | {16 + 8 * at: value & 0xFFFFFFFF for at, value in enumerate(arguments)}
    loaded = at = 0
    while True:
        code, yes, no, operand = lines[at]
        at += 1
        if code == RETURN:
            return operand
        if code == LOAD:
            loaded = data[operand]
        else:
            at += yes if TESTS[code](loaded, operand) else no


@pytest.mark.parametrize("machine", MACHINES)
def test_the_filter_permits_the_same_calls_on_every_processor(machine: str, tmp_path: Path) -> None:
    compiler, runner, kind, more = MACHINES[machine]
    if machine == platform.machine():
        compiler, runner = ["g++"], []
    if missing := [each[0] for each in (compiler, runner) if each and not shutil.which(each[0])]:
        pytest.skip(f"{' and '.join(missing)} are not installed")
    known = numbers(machine)
    source, program = tmp_path / "printed.cpp", tmp_path / "printed"
    source.write_text(PRINTED)
    subprocess.run([*compiler, "-std=c++20", f"-I{RUNTIME}", source, "-o", program], check=True)
    *values, own = map(int, subprocess.run([*runner, program], check=True, capture_output=True).stdout.split())
    lines = [tuple(values[at : at + 4]) for at in range(0, len(values), 4)]

    permitted = {name for name, number in known.items() if answer(lines, number, kind, (-1, -1, -1)) == ALLOW}
    assert permitted == {*ALWAYS.split(), *more}
    assert {answer(lines, number, kind, (-1, -1, -1)) for number in range(1000)} == {ALLOW, REFUSE}
    assert answer(lines, known["read"], kind ^ 1) == KILL
    for call in ("mmap", "mprotect"):
        wanted = {READABLE: ALLOW, READABLE | EXECUTABLE: REFUSE}
        assert {way: answer(lines, known[call], kind, (0, 0, way)) for way in wanted} == wanted
    assert [answer(lines, known["tgkill"], kind, (each, 0, 0)) for each in (own, own + 1)] == [ALLOW, REFUSE]
