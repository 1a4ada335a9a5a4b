"""The latest accesses to shared memory, and those that conflict with the next one because nothing orders the two."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlsys_labkit.triton_trace.gluon.order import VectorClock
from mlsys_labkit.triton_trace.recorder import Line


@dataclass(eq=False)
class ByteSpan:
    """Bytes [low, high) of an allocation; only the elements that begin at ``exact`` if that is given."""

    low: int
    high: int
    exact: NDArray[np.int64] | None
    itemsize: int

    def meets(self, other: ByteSpan) -> bool:
        if self.low >= other.high or other.low >= self.high:
            return False
        if self.exact is None and other.exact is None:
            return True
        return bool((self._bytes() & other._bytes()).any())

    def covers(self, other: ByteSpan) -> bool:
        if self.low > other.low or other.high > self.high:
            return False
        return self.exact is None or (other.exact is not None and np.array_equal(self.exact, other.exact))

    def mask(self) -> Any:
        """Return an index of these bytes."""
        if self.exact is None:
            return slice(self.low, self.high)
        return (self.exact[:, None] + np.arange(self.itemsize)).reshape(-1)

    def _bytes(self) -> NDArray[np.bool_]:
        found = np.zeros(1 << 18, np.bool_)
        found[self.mask()] = True
        return found


@dataclass(eq=False)
class Touch:
    """One access to shared memory.

    Attributes:
        what: "store", "TMA load", ...: what it is. writes: it writes.
        actor, time: of its vector clock. operation: the asynchronous operation that it belongs to, or None.
        generic: it goes through the generic proxy. fenced: a fence has shown it to the asynchronous proxy.
    """

    span: ByteSpan
    what: str
    line: Line
    writes: bool
    actor: int
    time: int
    operation: Any = None
    generic: bool = True
    fenced: bool = False


@dataclass(eq=False)
class History:
    """The latest accesses to one allocation."""

    touches: list[Touch] = field(default_factory=list)

    def unordered(self, span: ByteSpan, clock: VectorClock, writes: bool) -> Iterator[Touch]:
        """Yield the accesses that an access conflicts with and that its partition does not know to be done."""
        for one in self.touches:
            if (writes or one.writes) and not clock.knows(one.actor, one.time) and one.span.meets(span):
                yield one

    def unfenced(self, span: ByteSpan) -> Iterator[Touch]:
        """Yield the writes through the generic proxy that no fence has shown to the asynchronous one."""
        return (one for one in self.touches if one.writes and one.generic and not one.fenced and one.span.meets(span))

    def add(self, touch: Touch) -> None:
        """Add an access, and forget what it makes out of date: all that it writes over, or its own like."""
        kept = []
        for one in self.touches:
            same = one.actor == touch.actor and one.writes == touch.writes and one.operation is None
            if not (touch.span.covers(one.span) and (touch.writes or same)):
                kept.append(one)
        self.touches = [*kept, touch]

    def fence(self, clock: VectorClock) -> None:
        for one in self.touches:
            if clock.knows(one.actor, one.time):
                one.fenced = True
