"""The operations of ``mbarrier``: which barrier is meant, what completes its phase, and waits that nothing ends."""

from __future__ import annotations

from typing import Any

from mlsys_labkit.triton_trace.gluon.mbarrier import Barrier
from mlsys_labkit.triton_trace.gluon.operations import Operation, SharedOperations
from mlsys_labkit.triton_trace.gluon.shared import SharedView
from mlsys_labkit.triton_trace.interpret.run import InterpreterRun, Refused


class BarrierOperations:
    """The mbarriers of one program."""

    def __init__(self, run: InterpreterRun, shared: SharedOperations) -> None:
        self._run = run
        self._shared = shared

    def init(self, view: SharedView, count: int) -> None:
        if view.first in view.allocation.barriers:
            known = view.allocation.barriers[view.first]
            self._run.misuse("barrier_reuse", f"initialises the mbarrier of {known.line} again: invalidate it first")
        view.allocation.barriers[view.first] = Barrier(self._run.line(), count)

    def invalidate(self, view: SharedView) -> None:
        self.of(view)
        del view.allocation.barriers[view.first]

    def of(self, view: SharedView) -> Barrier:
        """Return the barrier in a block of shared memory. Raises Refused where none was initialised."""
        found: Barrier | None = view.allocation.barriers.get(view.first)
        if found is None:
            raise Refused(f"the mbarrier of {view.allocation.line} is not initialised: mbarrier.init comes first")
        return found

    def arrive(self, view: SharedView, count: int) -> None:
        barrier = self.of(view)
        barrier.arrive(self._shared.me.clock, count)
        if barrier.pending < 0:
            self._run.misuse("too_many_arrivals", f"arrives at the mbarrier of {barrier.line} too often")

    def expect(self, view: SharedView, size: int) -> None:
        self.of(view).expect(self._shared.me.clock, size, self._run.line())

    def signal(self, view: SharedView, operation: Operation) -> None:
        """Let an operation signal a barrier when it is done."""
        barrier = operation.barrier = self.of(view)
        operation.seen = self._shared.me.clock.release()
        barrier.copies.append(operation)

    def wait(self, view: SharedView, parity: int) -> None:
        """Wait until the phase of a parity is complete: copies land meanwhile, and other partitions run."""
        barrier, me = self.of(view), self._shared.me
        barrier.passed.pop(me.number, None)
        if barrier.is_past(parity) and barrier.copies:
            barrier.passed[me.number] = self._run.line(), parity
        line = self._run.line()
        self._shared.partitions.wait(lambda: self._past(barrier, parity), line, lambda: barrier.missing(parity))
        barrier.learn(me.clock)

    def _past(self, barrier: Barrier, parity: int) -> bool:
        while not barrier.is_past(parity) and barrier.copies:
            operation = barrier.copies.popleft()
            operation.land()
            barrier.land(operation.seen, operation.number, operation.size, operation.arrivals)
            if operation.arrivals and barrier.pending < 0:
                self._run.misuse(
                    "too_many_arrivals",
                    f"arrives at the mbarrier of {barrier.line} too often: each of {operation.arrivals} threads does, "
                    f"and a phase waits for {barrier.count}",
                    operation.line,
                )
            if barrier.too_many_bytes:
                self._run.misuse(
                    "wrong_byte_count",
                    f"expects fewer bytes than its copies bring to the mbarrier of {barrier.line}: "
                    f"{-barrier.bytes:,} are too many",
                    barrier.expected_in,
                )
                barrier.land({}, operation.number, barrier.bytes)
        return barrier.is_past(parity)


def number_of(handle: Any) -> int:
    """Return the number that a scalar handle holds."""
    return int(handle.data.reshape(-1)[0])
