"""Partitions of ``gl.warp_specialize`` as threads of which exactly one runs: they switch where one waits, in order.

So a launch is the same every time, and a wait that no partition can end is found instead of hanging.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mlsys_labkit.triton_trace.errors import TritonKernelError
from mlsys_labkit.triton_trace.gluon.order import VectorClock
from mlsys_labkit.triton_trace.recorder import Line

_NOWHERE = Line("", 0)


class _Ended(BaseException):
    """The end of a partition because another one failed."""


@dataclass(eq=False)
class Partition:
    """One partition.

    Attributes:
        warps: its warps. clock: what it knows to have happened.
        waiting: the condition that it waits for. line: where it waits. why: what is missing there.
    """

    number: int
    warps: int
    clock: VectorClock
    baton: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    waiting: Callable[[], bool] | None = None
    line: Line = _NOWHERE
    why: Callable[[], str] = str
    done: bool = False


class Partitions:
    """The partitions of a program: one, or those of a ``gl.warp_specialize`` that runs."""

    def __init__(self, warps: int) -> None:
        self.current = Partition(0, warps, VectorClock(0))
        self._all = [self.current]
        self._failure: BaseException | None = None
        self._ending = False

    @property
    def warps(self) -> int:
        return self.current.warps

    def wait(self, ready: Callable[[], bool], line: Line, why: Callable[[], str]) -> None:
        """Return when ``ready()``; let the others run meanwhile. Raises TritonKernelError if that never happens."""
        me = self.current
        me.waiting, me.line, me.why = ready, line, why
        while not ready():
            self._pass_on(me)
        me.waiting = None

    def run(self, bodies: Sequence[Callable[[], Any]], warps: Sequence[int]) -> Any:
        """Run the first body here and the others beside it; return the result of the first."""
        if len(self._all) > 1:
            raise ValueError("warp_specialize calls cannot be nested")
        main = self.current
        main.clock.release()
        workers = [Partition(i, count, main.clock.fork(i)) for i, count in enumerate(warps, 1)]
        self._all = [main, *workers]
        pairs = zip(workers, bodies[1:], strict=True)
        threads = [threading.Thread(target=self._work, args=pair, daemon=True) for pair in pairs]
        for thread in threads:
            thread.start()
        try:
            result = bodies[0]()
            main.waiting, main.line = lambda: all(one.done for one in workers), _NOWHERE
            while not main.waiting():
                self._pass_on(main)
        finally:
            self._ending = True
            for one, thread in zip(workers, threads, strict=True):
                one.baton.release()
                thread.join()
            self._ending, self._all, self.current, main.waiting = False, [main], main, None
        for one in workers:
            main.clock.join(one.clock)
        return result

    def _work(self, me: Partition, body: Callable[[], Any]) -> None:
        try:
            self._take(me)
            with np.errstate(all="ignore"):
                body()
        except _Ended:
            return
        except BaseException as error:
            self._failure = error
        me.done = True
        self._give(self._all[0] if self._failure else self._next(me) or self._all[0])

    def _pass_on(self, me: Partition) -> None:
        chosen = self._next(me)
        if chosen is None:
            raise TritonKernelError(self._deadlock(me))
        if chosen is not me:
            self._give(chosen)
            self._take(me)

    def _next(self, me: Partition) -> Partition | None:
        """Return the next partition, in order, that can go on."""
        count = len(self._all)
        order = [self._all[(me.number + step) % count] for step in range(1, count + 1)]
        return next((one for one in order if not one.done and (one.waiting is None or one.waiting())), None)

    def _give(self, chosen: Partition) -> None:
        self.current = chosen
        chosen.baton.release()

    def _take(self, me: Partition) -> None:
        me.baton.acquire()
        if self._ending:
            raise _Ended
        if self._failure and me.number == 0:
            failure, self._failure = self._failure, None
            raise failure

    def _deadlock(self, me: Partition) -> str:
        if len(self._all) == 1:
            return f"deadlock: it waits forever, {me.why()}"
        waiting = [one for one in self._all if not one.done and one.line.number]
        told = "; ".join(f"partition {one.number} in {one.line}, {one.why()}" for one in waiting)
        return f"deadlock: every partition waits: {told}"
