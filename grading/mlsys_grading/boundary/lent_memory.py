"""Memory that an examiner's callback lends: a test's iterator may overwrite one buffer with each item.

A student's code then sees the old item change, as it would in one process: who keeps views of a stream has to lose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mlsys_grading.boundary.arrays import Span


class LentMemory:
    """The arrays in the last answer of each callback, with what they held; for the length of one call.

    Example:
        >>> import numpy as np
        >>> from mlsys_grading.boundary.arrays import span_of
        >>> buffer = np.zeros(1)
        >>> lent = LentMemory()
        >>> lent.note(1, [span_of(buffer)], [bytes(buffer)])
        >>> buffer[0] = 2
        >>> lent.changes()
        [(1, 0, b'\\x00\\x00\\x00\\x00\\x00\\x00\\x00@')]
    """

    def __init__(self) -> None:
        self._spans: dict[int, Sequence[Span]] = {}
        self._held: dict[int, list[bytes]] = {}

    def note(self, callback: int, spans: Sequence[Span], held: list[bytes]) -> None:
        """Remember what a callback lends; what it lent before is not followed any longer."""
        self._spans[callback], self._held[callback] = spans, held

    def changes(self) -> list[tuple[int, int, bytes]]:
        """Return callback, number and new content of each buffer that has changed since the last look."""
        found = []
        for callback, spans in self._spans.items():
            for at, span in enumerate(spans):
                now = bytes(span.bytes())
                if now != self._held[callback][at]:
                    self._held[callback][at] = now
                    found.append((callback, at, now))
        return found

    def clear(self) -> None:
        """Forget all: the call is over."""
        self._spans.clear()
        self._held.clear()


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
