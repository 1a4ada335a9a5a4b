"""``Barrier``: an mbarrier, with the arrivals and bytes that its phase still waits for.

Reference: PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier".
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from mlsys_labkit.triton_trace.gluon.order import VectorClock
from mlsys_labkit.triton_trace.recorder import Line

_NOWHERE = Line("", 0)


@dataclass(eq=False)
class Barrier:
    """One mbarrier.

    Attributes:
        line: of its init. count: arrivals of a phase. pending: those that this phase waits for.
        bytes: that this phase waits for; below 0 if more landed than were announced.
        announced: bytes that were ever expected, and the line of the last ``expect``.
        phase: phases that are complete. copies: asynchronous operations that will signal it, in order.
        passed: partition -> line of its last wait, if a phase from before ended it while copies were under way.
    """

    line: Line
    count: int
    pending: int = 0
    bytes: int = 0
    announced: int = 0
    expected_in: Line = _NOWHERE
    phase: int = 0
    copies: deque[Any] = field(default_factory=deque)
    passed: dict[int, tuple[Line, int]] = field(default_factory=dict)
    _gathered: dict[int, int] = field(default_factory=dict)
    _released: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.pending = self.count

    def arrive(self, clock: VectorClock, count: int) -> None:
        self._gather(clock.release())
        self.pending -= count
        self._complete()

    def expect(self, clock: VectorClock, size: int, line: Line) -> None:
        self.bytes += size
        self.announced += size
        self.expected_in = line
        self.arrive(clock, 1)

    def land(self, seen: dict[int, int], operation: int, size: int, arrivals: int = 0) -> None:
        """Take the bytes of a copy that is done, which whoever waits then knows."""
        self._gather({**seen, operation: 1})
        self.bytes -= size
        self.pending -= arrivals
        self._complete()

    def is_past(self, parity: int) -> bool:
        """Return whether the phase of this parity is complete; that of parity 1 is so from the beginning."""
        return (self.phase ^ parity) & 1 == 1

    def learn(self, clock: VectorClock) -> None:
        clock.join(self._released)

    @property
    def too_many_bytes(self) -> bool:
        return self.bytes < 0 and self.pending <= 0

    def missing(self, parity: int) -> str:
        """Return what a wait waits for, in words."""
        told = f"for phase {parity} of the barrier of {self.line}, which completed {self.phase} phases and waits for"
        parts = [f"{self.pending} of {self.count} arrivals"] if self.pending else []
        if self.bytes > 0:
            parts.append(f"{self.bytes:,} bytes that {self.expected_in} expects and no copy brings")
        if self.bytes < 0:
            parts.append(f"an mbarrier.expect of the {-self.bytes:,} bytes that have landed")
        return f"{told} {' and '.join(parts)}"

    def _gather(self, seen: dict[int, int]) -> None:
        for actor, time in seen.items():
            self._gathered[actor] = max(time, self._gathered.get(actor, 0))

    def _complete(self) -> None:
        if self.pending <= 0 and self.bytes == 0:
            self.phase += 1
            self.pending += self.count
            self._released = dict(self._gathered)
