"""Asynchronous operations of one program: they take effect when the program waits for them, and not before."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mlsys_labkit.triton_trace.gluon.capacity import Capacity
from mlsys_labkit.triton_trace.gluon.hazards import check, check_fenced
from mlsys_labkit.triton_trace.gluon.history import Touch
from mlsys_labkit.triton_trace.gluon.mbarrier import Barrier
from mlsys_labkit.triton_trace.gluon.order import new_operation
from mlsys_labkit.triton_trace.gluon.partitions import Partition, Partitions
from mlsys_labkit.triton_trace.gluon.shared import SharedView
from mlsys_labkit.triton_trace.interpret.run import InterpreterRun
from mlsys_labkit.triton_trace.recorder import Line


@dataclass(eq=False)
class Operation:
    """An asynchronous operation that is under way.

    Attributes:
        land: what happens when it is done. advice: how to wait for it.
        barrier: the mbarrier that it signals, with ``size`` bytes and ``arrivals``. seen: what its issuer knew.
    """

    line: Line
    advice: str
    land: Callable[[], None]
    barrier: Barrier | None = None
    size: int = 0
    arrivals: int = 0
    seen: dict[int, int] = field(default_factory=dict)
    committed: bool = True
    number: int = field(default_factory=new_operation)


@dataclass(eq=False)
class Queues:
    """Operations of one partition that it has not waited for, the oldest first."""

    uncommitted: list[Operation] = field(default_factory=list)
    groups: list[list[Operation]] = field(default_factory=list)
    stores: list[Operation] = field(default_factory=list)
    products: list[Operation] = field(default_factory=list)


class SharedOperations:
    """The accesses of one program to its shared memory, and its asynchronous operations.

    Args:
        run: the launch. partitions: of the program.
    """

    def __init__(self, run: InterpreterRun, partitions: Partitions) -> None:
        self._run = run
        self.partitions = partitions
        self.queues: defaultdict[int, Queues] = defaultdict(Queues)
        self.capacity = Capacity()

    @property
    def me(self) -> Partition:
        return self.partitions.current

    @property
    def mine(self) -> Queues:
        """Return the operations of the partition that runs."""
        return self.queues[self.me.number]

    def read(self, view: SharedView, what: str = "load") -> Any:
        """Return a block's elements as a handle."""
        check(self._run, self.me, view, what, writes=False)
        self._touch(view, what, writes=False)
        return view.read()

    def write(self, view: SharedView, values: Any, what: str = "store") -> None:
        check(self._run, self.me, view, what, writes=True)
        view.write(values)
        self._touch(view, what, writes=True)

    def read_later(self, view: SharedView, what: str, operation: Operation) -> Any:
        """Return the elements that an asynchronous operation reads until somebody waits for it."""
        check(self._run, self.me, view, what, writes=False)
        check_fenced(self._run, view, what)
        self._touch(view, what, writes=False, operation=operation)
        return view.read()

    def write_later(self, view: SharedView, what: str, operation: Operation, generic: bool = False) -> None:
        """Let an operation write a block: nobody may touch it until somebody waits for the operation."""
        check(self._run, self.me, view, what, writes=True)
        self._touch(view, what, writes=True, operation=operation, generic=generic)

    def fence(self) -> None:
        for one in self.capacity.allocations:
            one.history.fence(self.me.clock)

    def finish(self, operations: list[Operation]) -> None:
        """Let operations take effect, and the partition that runs know it."""
        for one in operations:
            one.land()
            self.me.clock.observe(one.number)

    def commit(self) -> None:
        for one in self.mine.uncommitted:
            one.committed = True
        self.mine.groups.append(self.mine.uncommitted)
        self.mine.uncommitted = []

    def take_copies(self, advice: str) -> list[Operation]:
        """Return the copies that were waited for in groups until now, and by ``advice`` from now on."""
        copies = [one for group in (*self.mine.groups, self.mine.uncommitted) for one in group]
        self.mine.groups, self.mine.uncommitted = [], []
        for one in copies:
            one.committed, one.advice = True, advice
        return copies

    def wait_groups(self, outstanding: int) -> None:
        done, self.mine.groups = _but_last(self.mine.groups, outstanding)
        for group in done:
            self.finish(group)

    def wait_stores(self, outstanding: int) -> None:
        done, self.mine.stores = _but_last(self.mine.stores, outstanding)
        self.finish(done)

    def wait_products(self, outstanding: int) -> None:
        done, self.mine.products = _but_last(self.mine.products, outstanding)
        self.finish(done)

    def end(self) -> None:
        """Report stores that still read shared memory when the program ends, and takes it away."""
        for one in (store for queues in self.queues.values() for store in queues.stores):
            self._run.misuse(
                "missing_wait", "ends while a TMA store reads its shared memory: tma.store_wait(0)", one.line
            )

    def _touch(
        self, view: SharedView, what: str, writes: bool, operation: Operation | None = None, generic: bool = True
    ) -> None:
        self.capacity.use(view.allocation)
        clock = self.me.clock
        actor, time = (operation.number, 1) if operation else (clock.owner, clock.time)
        line = operation.line if operation else self._run.line()
        touch = Touch(view.span, what, line, writes, actor, time, operation, generic=generic)
        view.allocation.history.add(touch)


def _but_last(queue: list[Any], count: int) -> tuple[list[Any], list[Any]]:
    at = max(0, len(queue) - count)
    return queue[:at], queue[at:]
