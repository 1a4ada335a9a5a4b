"""Device memory as the notebook sees it: where buffers lie, what guards them, when memory runs out and comes back."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from mlsys_labkit.cuda.errors import CudaError
from mlsys_labkit.cuda.kernel.simulator import arena as arena_module
from mlsys_labkit.cuda.kernel.simulator.arena import Arena, Changes, RangeAllocator

PAGE = 4096
SMALLEST_GUARD = 64 << 10
GIB = 1 << 30


class Ranges(RuleBasedStateMachine):
    """Random sequences of allocations and frees in a window so small that it fills up and is divided repeatedly."""

    taken = Bundle("taken")

    @initialize(window=st.integers(200, 4000), guard=st.sampled_from([SMALLEST_GUARD, 4 * SMALLEST_GUARD]))
    def begin(self, window: int, guard: int) -> None:
        self.window = window * PAGE
        self.forgotten = 0
        self.ranges = RangeAllocator(self.window, PAGE, guard, self._forget)
        self.expected: dict[int, int] = {}  # an oracle of its own: offset -> bytes asked for

    def _forget(self) -> None:
        self.forgotten += 1

    @rule(target=taken, nbytes=st.integers(0, 40 * PAGE))
    def take(self, nbytes: int) -> int:
        pages = max(1, -(-nbytes // PAGE))
        try:
            offset = self.ranges.take(nbytes)
        except MemoryError:
            assert self._largest_gap() < pages * PAGE + 2 * SMALLEST_GUARD, "there was room"
            return -1
        self.expected[offset] = pages * PAGE
        return offset

    @rule(offset=consumes(taken))
    def give(self, offset: int) -> None:
        if offset >= 0:
            assert self.ranges.give(offset) == self.expected.pop(offset)

    @invariant()
    def ranges_keep_their_distance(self) -> None:
        if not hasattr(self, "expected"):
            return
        ends = 0
        for start in sorted(self.expected):
            assert start % PAGE == 0
            assert start - ends >= SMALLEST_GUARD
            ends = start + self.expected[start]
        assert self.window - ends >= SMALLEST_GUARD

    def _largest_gap(self) -> int:
        edges = [0]
        for start in sorted(self.expected):
            edges += [start, start + self.expected[start]]
        edges.append(self.window)
        return max(end - begin for begin, end in zip(edges[::2], edges[1::2], strict=True))


TestRanges = Ranges.TestCase
TestRanges.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)


def test_a_freed_range_is_used_again_for_the_same_size() -> None:
    ranges = RangeAllocator(1 << 40, PAGE)
    first, _ = ranges.take(5 * PAGE), ranges.take(5 * PAGE)
    ranges.give(first)
    assert ranges.take(5 * PAGE - 100) == first  # the same pages
    assert ranges.take(5 * PAGE) != first


def test_neighbours_are_out_of_reach_of_a_32_bit_index_while_addresses_last() -> None:
    ranges = RangeAllocator(1 << 40, PAGE)
    offsets = [ranges.take(PAGE) for _ in range(20)]
    assert min(np.diff(offsets)) - PAGE >= 2**31 * 4


@pytest.fixture
def arena() -> Iterator[Arena]:
    made = Arena(memory_free_bytes=lambda: GIB)
    yield made
    os.close(made.file)


@pytest.mark.parametrize("nbytes", [1, 255, 256, 257, 4000, 4096, 4097, 10_000, 1 << 20])
def test_data_begins_aligned_and_ends_at_the_guard(arena: Arena, nbytes: int) -> None:
    offset = arena.allocate(nbytes)
    assert offset % 256 == 0  # as cudaMalloc promises
    assert -(offset + nbytes) % mmap.PAGESIZE < 256  # between the last byte and the guard


def test_a_buffer_of_nothing_is_a_buffer(arena: Arena) -> None:
    offset = arena.allocate(0)
    assert arena.view(offset, 0).shape == (0,)
    assert arena.changes == []  # nothing that the worker could map
    arena.drop(offset)
    arena.collect()
    assert arena.live() == []


def test_buffers_do_not_share_bytes(arena: Arena) -> None:
    sizes = [1, 100, 4096, 5000, 100_000]
    offsets = [arena.allocate(size) for size in sizes]
    for value, (offset, size) in enumerate(zip(offsets, sizes, strict=True)):
        arena.view(offset, size)[:] = value
    for value, (offset, size) in enumerate(zip(offsets, sizes, strict=True)):
        assert (arena.view(offset, size) == value).all()


def test_changes_tell_the_worker_what_came_and_went(arena: Arena) -> None:
    first, second = arena.allocate(100), arena.allocate(200)
    arena.drop(first)
    arena.collect()
    assert arena.changes == [(first, 100), (second, 200), (first, 0)]
    assert arena.live() == [(second, 200)]


@given(st.lists(st.one_of(st.integers(0, 3 * PAGE), st.none(), st.tuples(st.integers(1, 3)))))
def test_a_worker_that_listens_seldom_hears_what_it_needs(steps: list[int | tuple[int] | None]) -> None:
    arena, worker = Arena(), {}  # the worker's own list: offset -> bytes
    changes = Changes(arena.live())
    kept: list[int] = []
    for step in [*steps, (1000,)]:
        if isinstance(step, int):
            kept.append(arena.allocate(step))
        elif step is None and kept:
            arena.drop(kept.pop(len(kept) // 2))
        elif isinstance(step, tuple):
            arena.collect()
            changes.add(arena.changes)
            arena.changes.clear()
            for offset, nbytes in changes.take(step[0]):
                if nbytes:
                    assert all(
                        offset // PAGE > (at + n - 1) // PAGE or at // PAGE > (offset + nbytes - 1) // PAGE
                        for at, n in worker.items()
                    ), "a page of a buffer that the worker thinks is alive"
                    worker[offset] = nbytes
                else:
                    del worker[offset]
    assert worker == dict(arena.live())
    assert len(changes) == 0
    os.close(arena.file)


def test_freed_memory_goes_back_to_the_system_beyond_what_is_kept_for_reuse(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arena_module, "_RETAINED_BYTES", 2 << 20)
    offsets = [arena.allocate(1 << 20) for _ in range(6)]
    for offset in offsets:
        arena.view(offset, 1 << 20)[:] = 1
    assert _held_bytes(arena) == 6 << 20
    for offset in offsets:
        arena.drop(offset)
    arena.collect()
    assert _held_bytes(arena) == 2 << 20


def test_memory_of_live_buffers_survives_the_others_going(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arena_module, "_RETAINED_BYTES", 0)
    kept, gone = arena.allocate(5000), arena.allocate(5000)
    arena.view(kept, 5000)[:] = 7
    arena.view(gone, 5000)[:] = 8
    arena.drop(gone)
    arena.collect()
    assert (arena.view(kept, 5000) == 7).all()
    again = arena.allocate(5000)
    assert again == gone
    assert (arena.view(again, 5000) == 0).all()  # its old memory is gone


def test_more_than_the_machine_holds_is_refused_with_the_bytes(arena: Arena) -> None:
    with pytest.raises(
        CudaError, match=r"out of memory: tried to allocate 2,147,483,648 bytes.*966,367,642 bytes are free"
    ):
        arena.allocate(2 * GIB)  # of 1 GiB, a tenth of which is left to everything else
    arena.allocate(GIB // 2)


def test_what_was_promised_and_not_touched_yet_counts(arena: Arena) -> None:
    first = arena.allocate(GIB // 2)
    with pytest.raises(CudaError, match="out of memory"):
        arena.allocate(GIB // 2)
    arena.drop(first)
    arena.allocate(GIB // 2)


def test_many_small_buffers_are_held_to_the_limit_too(arena: Arena) -> None:
    for _ in range(800):
        arena.allocate(1 << 20)
    with pytest.raises(CudaError, match="out of memory"):
        [arena.allocate(1 << 20) for _ in range(200)]


def test_more_buffers_than_the_system_can_map_are_refused(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arena_module, "_MOST_BUFFERS", 10)
    for _ in range(10):
        arena.allocate(1)
    with pytest.raises(CudaError, match="10 buffers are alive; free some"):
        arena.allocate(1)


def test_a_window_that_is_used_up_is_carved_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arena_module, "_LARGEST_WINDOW", 64 << 20)
    arena = Arena(memory_free_bytes=lambda: GIB)
    kept = arena.allocate(3 << 20)
    arena.view(kept, 3 << 20)[:] = 5
    for round_ in range(40):  # sizes that never fit a freed range
        offset = arena.allocate((1 << 20) + round_ * mmap.PAGESIZE)
        arena.view(offset, 1 << 20)[:] = 9
        arena.drop(offset)
    assert (arena.view(kept, 3 << 20) == 5).all()
    with pytest.raises(CudaError, match=r"out of memory: no 62,914,560 addresses in a row"):
        arena.allocate(60 << 20)
    os.close(arena.file)


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(st.tuples(st.integers(1, 300), st.integers(0, 5)), min_size=20, max_size=120))
def test_live_buffers_keep_their_content_whatever_comes_and_goes(steps: list[tuple[int, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arena_module, "_LARGEST_WINDOW", 64 << 20)  # few addresses, so that they are carved again
        patch.setattr(arena_module, "_RETAINED_BYTES", 1000 * PAGE)
        arena = Arena(memory_free_bytes=lambda: GIB)
        patch.setattr(arena._ranges, "_largest_guard_bytes", 4 << 20)
        arena._ranges.guard_bytes = 4 << 20
        live: list[tuple[int, int, int]] = []
        for value, (pages, kept) in enumerate(steps, 1):
            nbytes = pages * PAGE - 100
            offset = arena.allocate(nbytes)
            arena.view(offset, nbytes)[:] = value % 251
            live.append((offset, nbytes, value % 251))
            while len(live) > kept:
                arena.drop(live.pop(value % len(live))[0])
            for at, size, mark in live:
                assert (arena.view(at, size) == mark).all()
        arena.collect()
        assert arena._retained_bytes == sum(arena._retained.values())
        assert _held_bytes(arena) <= 1000 * PAGE + sum(size + 100 for _, size, _ in live)
        os.close(arena.file)


def test_a_kernel_cannot_cut_the_file_off_under_the_notebook(arena: Arena) -> None:
    with pytest.raises(PermissionError):
        os.ftruncate(arena.file, 0)


def _held_bytes(arena: Arena) -> int:
    return os.fstat(arena.file).st_blocks * 512
