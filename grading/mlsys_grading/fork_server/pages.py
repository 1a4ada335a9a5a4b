"""Memory in large pages, so that a fork copies a five-hundredth of the page tables.

A process that has imported torch holds 60,000 pages of 4 KiB. Every fork enters each in a table of its own and takes
it out at its end: 15 ms, where running a submission's cells may take 50. In pages of 2 MiB it is a hundred entries;
what a fork writes to is still copied in pages of 4 KiB.

Reference: man 2 madvise (MADV_COLLAPSE, Linux 6.1).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator

_LARGE_BYTES = 2 << 20
_COLLAPSE = 25


def enlarge_pages() -> None:
    """Move this process's own memory into pages of 2 MiB where they are full; older kernels leave it as it is."""
    madvise = ctypes.CDLL(None).madvise
    with open("/proc/self/maps") as maps:
        lines = maps.readlines()
    for start, end in large_ranges(lines):
        madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _COLLAPSE)


def large_ranges(maps: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Yield the first and the end address of whole 2 MiB pages of private writable memory that is no file.

    Example:
        >>> [[hex(at) for at in each] for each in large_ranges(["1ff000-a00000 rw-p 00000000 00:00 0 [heap]"])]
        [['0x200000', '0xa00000']]
    """
    for line in maps:
        addresses, rights, _, _, inode, *_ = line.split()
        if rights != "rw-p" or inode != "0":
            continue
        first, last = (int(each, 16) for each in addresses.split("-"))
        start, end = -(-first // _LARGE_BYTES) * _LARGE_BYTES, last // _LARGE_BYTES * _LARGE_BYTES
        if start < end:
            yield start, end
