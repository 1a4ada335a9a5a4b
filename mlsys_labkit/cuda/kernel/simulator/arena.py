"""Device memory: one sparse file in memory that the notebook and the worker both map, and the owners of its ranges.

The notebook maps all of it once, the worker makes only live buffers accessible, so a buffer costs no copy, survives the
worker, and is surrounded by guards: addresses at which a kernel faults. Only this module decides the addresses of
buffers.

Reference: Linux manual pages memfd_create(2), fallocate(2).
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import mmap
import os
import resource
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from itertools import chain, islice, repeat

import numpy as np
from numpy.typing import NDArray

from mlsys_labkit._base import limits
from mlsys_labkit.cuda.errors import CudaError
from mlsys_labkit.cuda.kernel.simulator import protocol

_ALIGNMENT = 256  # cudaMalloc's
_LARGEST_GUARD = 8 << 30  # the reach of a 32-bit index into 4-byte elements
_SMALLEST_GUARD = 64 << 10
_LARGEST_WINDOW = 16 << 40
_SMALLEST_WINDOW = 64 << 20
_MOST_BUFFERS = 30_000  # each takes two of the 65,530 mappings that Linux allows a process
_UNCHECKED_BYTES = 16 << 20  # may be promised before the free memory of the machine is read again
_RETAINED_BYTES = 256 << 20  # of freed ranges that keep their memory, since the first touch of a page is slow
_PUNCH_HOLE = 0x01 | 0x02  # FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE


class RangeAllocator:
    """Page ranges in a window of addresses, each at least a guard away from its neighbours and from the ends.

    A freed range is used again for the same number of bytes. When the window is used up, freed ranges are forgotten and
    the largest gap is carved anew; when no gap is large enough, the guards in it shrink.
    """

    def __init__(
        self,
        window_bytes: int,
        page_bytes: int,
        guard_bytes: int = _LARGEST_GUARD,
        on_forget: Callable[[], None] = lambda: None,
    ) -> None:
        self.guard_bytes = guard_bytes
        self.live: dict[int, int] = {}  # offset -> bytes, both multiples of a page
        self._window_bytes = window_bytes
        self._page_bytes = page_bytes
        self._freed: dict[int, list[int]] = {}  # bytes -> offsets, the last freed last
        self._gap = (0, window_bytes)
        self._largest_guard_bytes = guard_bytes
        self._on_forget = on_forget

    def take(self, nbytes: int) -> int:
        """Return offset of a range of ``nbytes`` rounded up to pages. Raises MemoryError when no gap is left."""
        size = max(1, -(-nbytes // self._page_bytes)) * self._page_bytes
        freed = self._freed.get(size)
        offset = freed.pop() if freed else self._carve(size)
        self.live[offset] = size
        return offset

    def give(self, offset: int) -> int:
        """Free the range at ``offset`` and return its size."""
        size = self.live.pop(offset)
        self._freed.setdefault(size, []).append(offset)
        return size

    def _carve(self, size: int) -> int:
        if self._gap[0] + size + 2 * self.guard_bytes > self._gap[1]:
            self._find_gap(size)
        offset = self._gap[0] + self.guard_bytes
        self._gap = (offset + size, self._gap[1])
        return offset

    def _find_gap(self, size: int) -> None:
        self._freed.clear()
        self._on_forget()
        starts = sorted(self.live)
        begins = [0, *(start + self.live[start] for start in starts)]
        begin, end = max(zip(begins, [*starts, self._window_bytes], strict=True), key=lambda gap: gap[1] - gap[0])
        self.guard_bytes = self._largest_guard_bytes
        while self.guard_bytes > _SMALLEST_GUARD and begin + size + 2 * self.guard_bytes > end:
            self.guard_bytes //= 2
        if begin + size + 2 * self.guard_bytes > end:
            raise MemoryError
        self._gap = (begin, end)


class Changes:
    """Buffers made and freed since a worker's last request, without those both made and freed in between."""

    def __init__(self, live: Iterable[tuple[int, int]]) -> None:
        self._gone: dict[int, None] = {}
        self._come = dict(live)

    def __len__(self) -> int:
        return len(self._gone) + len(self._come)

    def add(self, changes: Iterable[tuple[int, int]]) -> None:
        """Add changes: (offset, bytes) for a buffer that was made, (offset, 0) for one that was freed."""
        for offset, nbytes in changes:
            if nbytes:
                self._come[offset] = nbytes
            elif self._come.pop(offset, None) is None:
                self._gone[offset] = None

    def take(self, most: int) -> list[tuple[int, int]]:
        """Remove and return at most ``most`` changes; a freed range comes before the buffer that took its place."""
        taken = list(islice(chain(zip(self._gone, repeat(0)), self._come.items()), most))
        for offset, nbytes in taken:
            if nbytes:
                del self._come[offset]
            else:
                del self._gone[offset]
        return taken


class Arena:
    """The memory itself. Not safe from several threads, except ``drop``.

    Attributes:
        file: descriptor of the file that the worker maps.
        window_bytes: how much of the file is for buffers; sparse, so it costs nothing. The kernels' heap lies behind.
        changes: (offset, bytes) of buffers that came, (offset, 0) of those that went, since it was last emptied.
    """

    def __init__(self, memory_free_bytes: Callable[[], int | None] = limits.memory_free_bytes) -> None:
        self.file, self._map = _create()
        self.window_bytes = len(self._map)
        self.changes: list[tuple[int, int]] = []
        self._buffers: dict[int, tuple[int, int]] = {}  # data offset -> (range offset, bytes asked for)
        self._ranges = RangeAllocator(self.window_bytes, mmap.PAGESIZE, on_forget=self._give_back_all)
        self._retained: OrderedDict[int, int] = OrderedDict()  # freed ranges that still hold memory: offset -> bytes
        self._retained_bytes = 0
        self._dropped: deque[int] = deque()
        self._memory_free_bytes = memory_free_bytes
        self._unchecked_bytes = 0

    def allocate(self, nbytes: int) -> int:
        """Return offset of ``nbytes`` whose end is as close to the upper guard as the alignment allows.

        Raises CudaError when the machine cannot hold them.
        """
        self.collect()
        self._require(nbytes)
        try:
            start = self._ranges.take(nbytes)
        except MemoryError:
            raise CudaError(
                f"out of memory: no {nbytes:,} addresses in a row are left of {self.window_bytes:,}; "
                "free device arrays, or raise `ulimit -v`"
            ) from None
        self._retained_bytes -= self._retained.pop(start, 0)
        offset = (start + self._ranges.live[start] - nbytes) & -_ALIGNMENT
        self._buffers[offset] = (start, nbytes)
        if nbytes:
            self.changes.append((offset, nbytes))
        return offset

    def view(self, offset: int, nbytes: int) -> NDArray[np.uint8]:
        """Return the bytes at ``offset``, without a copy."""
        if not nbytes:
            return np.empty(0, np.uint8)
        return np.frombuffer(self._map, np.uint8, nbytes, offset)

    def drop(self, offset: int) -> None:
        """Free the buffer at ``offset`` at the next ``collect``; safe from any thread and from a finalizer."""
        self._dropped.append(offset)

    def collect(self) -> None:
        """Free the buffers that were dropped."""
        while self._dropped:
            offset = self._dropped.popleft()
            start, nbytes = self._buffers.pop(offset)
            if nbytes:
                self.changes.append((offset, 0))
            size = self._ranges.give(start)
            self._retained[start] = size
            self._retained_bytes += size
        while self._retained_bytes > _RETAINED_BYTES:
            self._give_back(*self._retained.popitem(last=False))

    def live(self) -> list[tuple[int, int]]:
        """Return (offset, bytes) of every buffer: the changes that a new worker has to catch up with."""
        return [(offset, nbytes) for offset, (_, nbytes) in self._buffers.items() if nbytes]

    def clear_heap(self) -> None:
        """Free what kernels allocated."""
        _punch_hole(self.file, self.window_bytes, protocol.HEAP_BYTES)

    def _require(self, nbytes: int) -> None:
        if len(self._buffers) >= _MOST_BUFFERS:
            raise CudaError(
                f"out of memory: {_MOST_BUFFERS:,} buffers are alive; free some, or pack them into one array"
            )
        self._unchecked_bytes += nbytes
        if self._unchecked_bytes <= _UNCHECKED_BYTES:
            return
        if nbytes > self._promisable_bytes():
            self._give_back_all()
        room = self._promisable_bytes()
        if nbytes > room:
            raise CudaError(
                f"out of memory: tried to allocate {nbytes:,} bytes, and of this machine's memory "
                f"{room:,} bytes are free; use a smaller size, or free device arrays"
            )
        self._unchecked_bytes = 0

    def _promisable_bytes(self) -> int:
        """Return nine tenths of the free bytes, less the bytes of live buffers that have not been touched yet."""
        free = self._memory_free_bytes()
        if free is None:
            return self.window_bytes
        free -= free // 10
        held = os.fstat(self.file).st_blocks * 512 - self._retained_bytes
        return max(0, free - max(0, sum(self._ranges.live.values()) - max(0, held)))

    def _give_back_all(self) -> None:
        while self._retained:
            self._give_back(*self._retained.popitem())

    def _give_back(self, start: int, size: int) -> None:
        self._retained_bytes -= size
        _punch_hole(self.file, start, size)


def _create() -> tuple[int, mmap.mmap]:
    """Return a sparse file and its mapping, as large as this process may address."""
    file = os.memfd_create("labkit-device-memory", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    size = _LARGEST_WINDOW
    while limit != resource.RLIM_INFINITY and size > limit // 4:  # the rest of the process needs addresses, too
        size //= 2
    while size >= _SMALLEST_WINDOW:
        try:
            os.ftruncate(file, size + protocol.HEAP_BYTES)
            mapping = mmap.mmap(file, size)
        except OSError:  # 39-bit addresses, or a limit on the size of files
            size //= 2
            continue
        mapping.madvise(mmap.MADV_DONTDUMP)  # a core dump would walk the whole window
        fcntl.fcntl(
            file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
        )  # so that a kernel cannot cut it off
        return file, mapping
    os.close(file)
    raise CudaError(
        f"out of memory: the simulator needs {_SMALLEST_WINDOW:,} bytes of addresses in a row; raise `ulimit -v`"
    )


def _punch_hole(file: int, start: int, size: int) -> None:
    """Give the memory of a range back to the system; it reads as zeros after that."""
    if _libc().fallocate(file, _PUNCH_HOLE, ctypes.c_int64(start), ctypes.c_int64(size)):
        raise OSError(ctypes.get_errno(), "fallocate")


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
