"""Large pages of a fork server: the memory's content stays, and a fork's page tables are smaller."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from mlsys_grading.fork_server.pages import large_ranges

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="pages of 2 MiB are Linux's")

_PROGRAM = """
import mmap, re
from mlsys_grading.fork_server.pages import enlarge_pages
def large(): return int(re.search(r"AnonHugePages: *([0-9]+)", open("/proc/self/smaps_rollup").read())[1]) << 10
memory = mmap.mmap(-1, 16 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.write(bytes(range(256)) * (1 << 16))
before = large()
enlarge_pages()
memory.seek(0)
print(large() - before, memory.read() == bytes(range(256)) * (1 << 16))
"""


def test_memory_keeps_its_content_in_large_pages() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)
    larger, same = done.stdout.split()
    assert same == "True"
    if tuple(map(int, os.uname().release.split(".")[:2])) < (6, 1):
        pytest.skip(f"Linux {os.uname().release} cannot do it, and leaves all as it is")
    assert int(larger) >= 14 << 20, "16 MiB hold at least seven whole pages of 2 MiB"


def test_only_private_writable_memory_that_is_no_file_is_moved() -> None:
    maps = (
        "10000000-10400000 rw-p 00000000 00:00 0",
        "20000000-20400000 r--p 00000000 00:00 0",
        "30000000-30400000 rw-s 00000000 00:01 77 /dev/zero (deleted)",
        "40000000-40400000 rw-p 00000000 fd:00 123 /usr/lib/libtorch.so",
        "50100000-502fffff rw-p 00000000 00:00 0 [heap]",
        "60100000-60500000 rw-p 00000000 00:00 0 [anon: with a name]",
    )
    assert list(large_ranges(maps)) == [(0x10000000, 0x10400000), (0x60200000, 0x60400000)]
