"""The scheduler of ranks that are threads of one process: it passes the turn on, and ends the run.

Exactly one rank runs, until it waits for another or ends. The next rank is the first that can go on, counted from the
one that stopped, so that a run is the same every time. State that a process has only once (torch's default group, the
program's globals, the random generators) is saved and restored at each switch.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from mlsys_labkit.ranks.errors import DeadlockError, MismatchError
from mlsys_labkit.ranks.local.network import Network
from mlsys_labkit.ranks.local.other_threads import OtherThreads
from mlsys_labkit.ranks.local.own_state import Notebook, OwnState
from mlsys_labkit.ranks.local.post import Post
from mlsys_labkit.ranks.recording import torch_private
from mlsys_labkit.ranks.recording.recorder import RankRecorder, caller
from mlsys_labkit.ranks.result import RankResult
from mlsys_labkit.ranks.student_lines import at
from mlsys_labkit.ranks.trace.deadlock import RankState, diagnosis

_UNWIND_SECONDS = 0.1  # the clean-up of a rank takes less
RELEASE_SECONDS = 5.0  # for a rank that catches every exception, or computes in a library


class Released(BaseException):
    """The exception that unwinds a rank that is no longer needed.

    It is a BaseException, so that ``except Exception`` does not catch it.
    """


class LocalRank:
    """One rank: its thread, its turn, and the state that is saved when it stops running."""

    def __init__(self, number: int, world_size: int, own: OwnState) -> None:
        self.recorder = RankRecorder(number, world_size)
        self.turn = threading.Semaphore(0)
        self.world: Any = torch_private.RankWorld()
        self.own = own
        self.post: Post | None = None  # the call that the rank waits for
        self.state = "running"
        self.record: RankResult | None = None
        self.unwound = False  # the student's code is over
        self.thread: threading.Thread

    @property
    def number(self) -> int:
        return self.recorder.rank

    @property
    def may_go_on(self) -> bool:
        return self.state == "running" and (self.post is None or self.post.ready)

    def told(self) -> RankState:
        if self.state == "running" and self.post:
            return RankState(self.number, "waiting", self.post.waiting())
        return RankState(self.number, "ended" if self.state == "ended" else "running")


class RankScheduler:
    """The scheduler: it decides which rank runs, and ends the run."""

    def __init__(self, world_size: int, notebook: Notebook) -> None:
        self.ranks = [LocalRank(number, world_size, OwnState(notebook)) for number in range(world_size)]
        self.network = Network()
        self.other_threads: OtherThreads  # than the ranks', which have to be there first
        self.holder = self.ranks[0]
        self.over = threading.Event()
        self.failure: BaseException | None = None
        self.aborting = False
        self._groups: dict[str, tuple[int, tuple[int, ...], str]] = {}  # name -> first maker, members, line
        self.abandoned = False  # a rank that could not be unwound may wake up when the run is long over

    def wait(self, rank: LocalRank, post: Post) -> None:
        """Block ``rank`` until ``post`` can complete."""
        self.check()
        rank.post = post
        if not post.ready:
            self._stop(rank)
        rank.post = None

    def let_others(self, rank: LocalRank) -> None:
        """Run every other rank that can run before ``rank`` goes on."""
        self.check()
        self._stop(rank)

    def check(self) -> None:
        if self.aborting or self.failure:
            raise Released

    def _stop(self, rank: LocalRank) -> None:
        following = self._after(rank)
        if following is None:
            self.fail(DeadlockError(diagnosis([one.told() for one in self.ranks])))
        elif following is not rank:
            self.other_threads.look(rank.number)
            rank.own.save()
            self._hand_to(following)
            rank.turn.acquire()
            self.take(rank)
        self.check()

    def _after(self, rank: LocalRank) -> LocalRank | None:
        order = [*self.ranks[rank.number + 1 :], *self.ranks[: rank.number + 1]]
        return next((one for one in order if one.may_go_on), None)

    def _hand_to(self, rank: LocalRank) -> None:
        self.holder = rank
        rank.turn.release()

    def take(self, rank: LocalRank) -> None:
        """Make ``rank``, on its own thread, the one that runs."""
        torch_private.enter_world(rank.world)
        rank.own.restore()

    def fail(self, error: BaseException) -> None:
        """End the run with ``error``, unless it has already ended with another."""
        if self.failure is None:
            self.failure = error
        self.over.set()
        raise Released

    def hear_of_group(self, name: str, members: tuple[int, ...]) -> None:
        """Check the group that the running rank makes. torch names groups by counting and does not compare them."""
        here = (self.holder.number, members, at(caller()[0]))
        first = self._groups.setdefault(name, here)
        if first[1] != members:
            told = (f"rank {rank} makes a group of ranks {list(ranks)}{line}" for rank, ranks, line in (first, here))
            self.fail(
                MismatchError(
                    f"{', but '.join(told)}; all ranks call new_group alike and in the same order, members or not"
                )
            )

    def ended(self, rank: LocalRank) -> None:
        rank.state = "ended"
        if self.aborting or self.failure:
            return
        following = self._after(rank)
        if following is not None:
            self._hand_to(following)
        elif all(one.state == "ended" for one in self.ranks):
            self.over.set()
        else:
            with suppress(Released):
                self.fail(DeadlockError(diagnosis([one.told() for one in self.ranks])))

    def release_all(self) -> list[LocalRank]:
        """Unwind every rank, one after the other; return those that could not be unwound."""
        with _swallowed_quietly():
            return self._release_all()

    def _release_all(self) -> list[LocalRank]:
        self.aborting = True
        left = []
        started = [rank for rank in self.ranks if rank.thread.ident is not None]  # the system may refuse a thread
        for rank in sorted(started, key=lambda one: one is not self.holder):  # the holder first
            rank.turn.release()
            until = time.monotonic() + RELEASE_SECONDS
            if self.failure is not None or rank is not self.holder:  # it unwinds; the holder may be in a loop
                rank.thread.join(_UNWIND_SECONDS)
            while rank.thread.is_alive() and time.monotonic() < until:
                if not rank.unwound:
                    _interrupt(rank.thread)
                rank.thread.join(_UNWIND_SECONDS)
            if rank.thread.is_alive():
                left.append(rank)
        self.abandoned = bool(left)
        return left


@contextmanager
def _swallowed_quietly() -> Iterator[None]:
    """Print no "Exception ignored in" for an interrupt that lands in ``__del__`` or in the garbage collector.

    Python swallows the exception there. The rank is interrupted again, so nobody needs to know.
    """
    before = sys.unraisablehook

    def tell(ignored: sys.UnraisableHookArgs) -> None:
        if ignored.exc_type is not Released:
            before(ignored)

    sys.unraisablehook = tell
    try:
        yield
    finally:
        sys.unraisablehook = before


def _interrupt(thread: threading.Thread) -> None:
    if thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(Released))
