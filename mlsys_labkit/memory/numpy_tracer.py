"""numpy's arrays over time, from tracemalloc (numpy reports its data there), sampled at each line of the user's code.

tracemalloc gives the bytes allocated now and at most since the last look, and lists the blocks with the line of each. A
look at every line of the user's own functions turns that into a stream: blocks that appeared, blocks that went, and a
temporary for what came and went within the line. (A memory handler of numpy's own, NEP 49, would tell each block at
once; but it is called while exceptions are in flight, where no Python code may run.)
"""

from __future__ import annotations

import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np

from mlsys_labkit.memory.trace import MemoryTrace, TracedTensor
from mlsys_labkit.memory.user_line import describe, is_library, user_frame

_NOTICEABLE = 1024  # bytes; below this a line's change is taken for Python's own small objects
# A listing takes time in proportion to the number of blocks. Requiring this many bytes of change per block before the
# next listing prevents quadratic time in a loop that fills a list.
_BYTES_A_BLOCK = 32
_TEMPORARY = 16 * 1024  # smaller ones cannot be distinguished from those of Python and of the tracer
_FRAMES = 16  # deep enough to find the user's line above numpy's
_ARRAYS = tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)

Block = tuple[str, str, int]  # line, code, bytes


class _Sampler:
    """One trace's view of the heap. ``held`` and ``peak`` are the user's bytes, without those of the tracer itself."""

    def __init__(self, trace: MemoryTrace, operations: Callable[[], int]) -> None:
        self._trace, self._operations = trace, operations
        self._seen = 0
        self._old = _blocks()
        self._live: dict[Block, list[int]] = {}
        self._held = 0
        self.peak = 0
        self.line = ("", "")

    def look(self, gained: int, highest: int, blocks: Counter[Block]) -> None:
        """Record the changes since the last call.

        ``gained`` is the growth in bytes since then, ``highest`` the largest growth in between; ``blocks`` are alive
        now.
        """
        self.peak = max(self.peak, self._held + highest)
        self._held += gained
        made, gone = list((blocks - self._old).elements()), list((self._old - blocks).elements())
        self._old = blocks
        # The torch tracer itself allocates temporary bytes when torch operations ran, so they are not counted then.
        came, went = (sum(size for _, _, size in some) for some in (made, gone))
        kept_by_python = max(0, gained - came + went)
        passing = highest - came - kept_by_python if self._operations() == self._seen else 0
        self._seen = self._operations()
        if passing < -_NOTICEABLE:  # blocks were freed before the new ones were allocated
            self._free(gone)
            gone = []
        for line, code, size in made:
            self._live.setdefault((line, code, size), []).append(self._allocate(size, line, code))
        if passing >= _TEMPORARY:
            self._trace.free(self._allocate(passing, *self.line))
        self._free(gone)

    def _allocate(self, size: int, line: str, code: str) -> int:
        tensor = TracedTensor(size, dtype="", shape=None, device="cpu", category="other", line=line, code=code)
        return self._trace.allocate(tensor)

    def _free(self, blocks: list[Block]) -> None:
        for block in blocks:
            if self._live.get(block):  # arrays from before the trace are not in it
                self._trace.free(self._live[block].pop(0))

    def on_call(self, frame: FrameType, event: str, arg: Any) -> Any:
        name = frame.f_code.co_filename
        # namedtuple, dataclass and their like run code of theirs as "<string>"; python -c runs the user's so.
        if is_library(name) or (name == "<string>" and frame.f_globals.get("__name__") != "__main__"):
            return None
        self.on_line(frame, "line", arg)
        return self.on_line

    def on_line(self, frame: FrameType, event: str, arg: Any) -> Any:
        _look()
        following: FrameType | None = frame.f_back if event == "return" else frame
        if following is not None and not is_library(following.f_code.co_filename):
            self.line = describe(following.f_code.co_filename, following.f_lineno)
        return self.on_line


_samplers: list[_Sampler] = []
_base = 0  # bytes traced just after the last look
_listed = 0  # blocks of any kind in the last listing


def _look(always: bool = False) -> None:
    global _base
    now, highest = tracemalloc.get_traced_memory()
    enough = max(_NOTICEABLE, _BYTES_A_BLOCK * _listed)
    if not (always or abs(now - _base) >= enough or highest - _base >= enough):
        return  # and the change adds up until the next look
    blocks = _blocks()
    for sampler in _samplers:
        sampler.look(now - _base, highest - _base, blocks)
    del blocks
    _start_afresh()


def _start_afresh() -> None:
    global _base
    tracemalloc.reset_peak()
    _base = tracemalloc.get_traced_memory()[0]


def _blocks() -> Counter[Block]:
    global _listed
    found: Counter[Block] = Counter()
    snapshot = tracemalloc.take_snapshot()
    _listed = len(snapshot.traces)
    for one in snapshot.filter_traces([_ARRAYS]).traces:
        users = (frame for frame in reversed(one.traceback) if not is_library(frame.filename))
        frame = next(users, None)
        found[(*(describe(frame.filename, frame.lineno) if frame else ("", "")), one.size)] += 1
    return found


@contextmanager
def unseen() -> Iterator[None]:
    """Exclude allocations inside the block, such as a tracer's own, from every trace's Python peak."""
    if _samplers:
        _look(always=True)
    yield
    if _samplers:
        _start_afresh()


@contextmanager
def tracing_numpy(trace: MemoryTrace, operations: Callable[[], int] = lambda: 0) -> Iterator[None]:
    """Record numpy's arrays in ``trace`` and Python's peak in ``trace.python_peak_bytes``. Blocks may nest.

    ``operations`` returns the number of torch operations traced so far.

    Line by line unless a debugger, a coverage tool or an outer trace has the trace function: then only begin and end.
    """
    ours = not tracemalloc.is_tracing()
    if ours:
        tracemalloc.start(_FRAMES)
    _look(always=True)
    sampler = _Sampler(trace, operations)
    _samplers.append(sampler)
    free = sys.gettrace() is None
    user = user_frame()
    if free:
        sys.settrace(sampler.on_call)
        if user is not None:
            user.f_trace = sampler.on_line
            sampler.line = describe(user.f_code.co_filename, user.f_lineno)
    _start_afresh()
    try:
        yield
    finally:
        if free:
            sys.settrace(None)
            if user is not None:
                user.f_trace = None
        _look(always=True)
        _samplers.remove(sampler)
        trace.python_peak_bytes = sampler.peak
        if ours:
            tracemalloc.stop()
