"""Memory that an examiner's callback lends: a test's iterator may overwrite one buffer with each item.

The student's code then sees the old item change, as it would in one process. An answer that keeps views of the items is
wrong there, and has to be wrong here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlsys_grading.boundary.arrays import Span
from mlsys_grading.boundary.wire import FrameLimits

_LOOKS = 8  # without a change, after which a callback is looked at only when it is called itself
_compare = ctypes.CDLL(None).memcmp
_compare.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]


@dataclass
class _Loan:
    """The arrays in one answer, what they held at the last look, and how many looks ago they changed."""

    spans: Sequence[Span]
    held: list[bytes]
    unchanged: int = 0


class LentMemory:
    """The arrays in the last answer of each callback, with what they held; for the length of one call.

    Each answer is compared a bounded number of times: the time grows with what is lent, however many lend.

    Example:
        >>> import numpy as np
        >>> from mlsys_grading.boundary.arrays import span_of
        >>> buffer = np.zeros(1)
        >>> lent = LentMemory()
        >>> lent.note(1, [span_of(buffer)], [bytes(buffer)])
        >>> buffer[0] = 2
        >>> lent.changes(1, FrameLimits())
        [(1, 0, b'\\x00\\x00\\x00\\x00\\x00\\x00\\x00@')]
    """

    def __init__(self) -> None:
        self._loans: dict[int, _Loan] = {}

    def note(self, callback: int, spans: Sequence[Span], held: list[bytes]) -> None:
        """Remember what a callback lends; what it lent before is not followed any longer."""
        self._loans[callback] = _Loan(spans, held)

    def changes(self, called: int, room: FrameLimits) -> list[tuple[int, int, bytes]]:
        """Return callback, number and new content of each buffer that has changed since the last look.

        What does not fit into ``room`` is left out. ``called`` is the callback that answers now.
        """
        found: list[tuple[int, int, bytes]] = []
        left = room.buffer_bytes
        for callback, loan in self._loans.items():
            if loan.unchanged >= _LOOKS and callback != called:
                continue
            loan.unchanged += 1
            for at, span in enumerate(loan.spans):
                size = span.high - span.low
                if size <= left and len(found) < room.buffers and _compare(span.low, loan.held[at], size):
                    loan.held[at], loan.unchanged = bytes(span.bytes()), 0
                    found.append((callback, at, loan.held[at]))
                    left -= size
        return found

    def clear(self) -> None:
        """Forget all: the call is over."""
        self._loans.clear()


class BorrowedMemory:
    """The student's end: the buffers of the last answer of each callback."""

    def __init__(self) -> None:
        self._buffers: dict[int, list[memoryview]] = {}

    def accept(self, callback: int, header: Mapping[str, Any], buffers: list[memoryview]) -> None:
        """Write the changes that an answer brings over what was lent before, and keep its own buffers."""
        for lender, at, place in header.get("changed", ()):
            self._buffers[lender][at][:] = buffers[place]
        self._buffers[callback] = buffers

    def clear(self) -> None:
        """Forget all: the call is over."""
        self._buffers.clear()
