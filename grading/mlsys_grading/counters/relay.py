"""Messages of ranks, counted on their way: each rank is a confined process of its own, and the examiner is the network.

The examiner runs the kit's deterministic local backend as it is (turns, rendezvous, recorder, diagnosis of deadlocks);
a rank's thread in it does nothing but carry the calls of one process, which has that rank's arguments and reaches
other ranks only by messages. Every message that the recorder counts was sent, and no data arrive without one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

from mlsys_grading.boundary.errors import BoundaryError
from mlsys_grading.boundary.session import Session
from mlsys_labkit._base import probes
from mlsys_labkit.checks.message import CheckError
from mlsys_labkit.errors import LabkitError
from mlsys_labkit.ranks.local.group import LocalGroup, LocalWork
from mlsys_labkit.ranks.recording import torch_private
from mlsys_labkit.ranks.recording.recorder import called_elsewhere, current
from mlsys_labkit.ranks.result import Run

_RANKS = 16
_LIVE = "mlsys_grading.counters.rank.live"
_REDUCTIONS = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor")

# What the ranks of a run do, by the run's number. The backend looks for the program's state in all that a function
# holds: through a session, it would walk through the whole examiner in each run.
_carriers: dict[int, Callable[..., Any]] = {}
_numbers = itertools.count()


class TooManyRanksError(LabkitError):
    """A run of more ranks than a submission gets processes for."""


class RankRelay:
    """The processes of one submission's ranks.

    Args:
        start: starts a process; with True, one that runs the submission's own cells whole.
        catch_up: has it run the student's cells up to the present one; returns the process that has: it, or another.
    """

    def __init__(self, start: Callable[[bool], Session], catch_up: Callable[[Session, bool], Session]) -> None:
        self._start, self._catch_up = start, catch_up
        self._whole = False
        self._seeds: Mapping[str, int] = {}
        self._sessions: dict[int, Session] = {}

    def run(self, name: str, args: Sequence[Any], keywords: Mapping[str, Any], seeds: Mapping[str, int]) -> Run:
        """Run ``checks.run_ranks`` with each rank in a process of its own; its memory remains the rank's own claim.

        Every rank begins with the same ``seeds``, by function, as all ranks of a notebook begin alike.
        """
        self._seeds = seeds
        try:
            return self._run(name, *args, **keywords)
        except CheckError as error:
            if self._whole or not _names_nothing(error):
                raise
        self._whole = True  # an answer uses a value that the submission's own cells compute
        self.end()
        return self._run(name, *args, **keywords)

    def end(self) -> None:
        """End all processes; the next run starts others."""
        for session in self._sessions.values():
            session.end(BoundaryError("this process is not needed any more"))
        self._sessions = {}

    def _run(self, name: str, function: Any, world_size: int, *rest: Any, **options: Any) -> Run:
        if type(world_size) is int and world_size > _RANKS:
            raise TooManyRanksError(f"{world_size} ranks are more than the {_RANKS} processes that a submission gets")
        memory = options.pop("memory", False)
        traces: dict[int, Any] = {}
        seconds = options.get("timeout_seconds", 20.0)
        sessions = self._ready(world_size)
        broken: list[BoundaryError] = []

        def carry(*own: Any) -> Any:
            __tracebackhide__ = True
            rank = current().rank
            session = sessions[rank]
            try:
                session.seed(self._seeds)
                asked = [Port(), rank, world_size, function, list(own), memory]
                value, traces[rank] = session.ask("probe", _LIVE, asked, {}, seconds=seconds)
                return value
            except BaseException as error:
                if isinstance(error, BoundaryError):
                    broken.append(error)
                if not isinstance(error, Exception):  # the run is over, but this rank's process still waits in it
                    session.end(BoundaryError("the run ended"))
                raise

        number = next(_numbers)
        _carriers[number] = carry
        try:
            run: Run = probes.answer(name, (_carried(number, function), world_size, *rest), options)
        except CheckError:
            if broken:
                raise broken[0] from None  # an error of the boundary, which no test may expect
            raise
        finally:
            del _carriers[number]
        return replace(run, memory=[traces[rank] for rank in range(world_size)]) if memory else run

    def _ready(self, count: int) -> list[Session]:
        """Return a session for each rank; a rank keeps its process, so that no rank can read another one's data."""
        for rank in range(count):
            if rank not in self._sessions or self._sessions[rank].dead:
                self._sessions[rank] = self._start(self._whole)
        for rank in range(count):
            self._sessions[rank] = self._catch_up(self._sessions[rank], self._whole)
        return [self._sessions[rank] for rank in range(count)]


def _carried(number: int, function: Any) -> Callable[..., Any]:
    """Return the function that the ranks of run ``number`` call, under the student's name for it."""

    def carried(*own: Any) -> Any:
        __tracebackhide__ = True
        return _carriers[number](*own)

    carried.__name__ = getattr(function, "__name__", "the function")
    return carried


def _names_nothing(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, NameError):
        error = error.__cause__
    return error is not None


class Port:
    """The requests that one rank's process may send to the network during one run; runs on that rank's thread.

    ``inputs`` are [number of an open call, what its inputs hold by now]: a send is read when it is waited for.

    Attributes:
        lends_nothing: for the session: the rank copies out of every answer, so no change to one need be told.
    """

    lends_nothing = True

    def __init__(self) -> None:
        self._groups: dict[str, LocalGroup] = {}
        self._works: list[LocalWork] = []
        self._open: dict[int, LocalWork] = {}

    def __call__(self, operation: str, inputs: list[Any], *given: Any) -> Any:
        for number, contents in inputs:
            for mirror, content in zip(self._open[number].post.given.inputs, contents, strict=True):
                if mirror.shape != content.shape or mirror.dtype != content.dtype:
                    raise ValueError("an input that changed its shape")
                if not _same_bytes(mirror, content):  # a copy of equal bytes would count as a change
                    mirror.copy_(content)
        operations: dict[str, Callable[..., Any]] = {
            "joins": self._join,
            "hears": self._hear,
            "posts": self._post,
            "waits": self._wait,
            "looks": self._look,
            "ends": lambda: None,
        }
        return operations[operation](*given)

    def _join(self, name: str, place: int, ranks: list[int]) -> None:
        default = self._default
        if name == default.id:
            self._groups[name] = default
            return
        if ranks[place] != default.member.number or not set(ranks) <= set(default.ranks):
            raise ValueError(f"a group of ranks {ranks} in which rank {default.member.number} is number {place}")
        options = SimpleNamespace(
            group_rank=place, group_size=len(ranks), group_id=name, global_ranks_in_group=list(ranks)
        )
        self._groups[name] = LocalGroup(default.scheduler, default.member, options)

    def _hear(self, name: str, members: list[int]) -> None:
        if name != self._default.id:
            with called_elsewhere(False):
                self._default.scheduler.hear_of_group(name, tuple(members))

    def _post(self, name: str, method: str, arguments: list[Any], blocking: bool) -> Any:
        if method not in torch_private.METHODS.values():
            raise ValueError(f"a process group has no {method}")
        with called_elsewhere(blocking is True):
            work = self._groups[name].perform(method, [_argument(*each) for each in arguments], {})
        number = len(self._works)
        self._works.append(work)
        self._open[number] = work
        call = work.post.call
        spoilt = call.asynchronous and call.kind != "send"
        return number, list(work.post.given.outputs) if spoilt else None

    def _wait(self, number: int) -> Any:
        work = self._open[number]
        with called_elsewhere(False):
            work.wait()
        del self._open[number]
        return list(work.post.given.outputs), list(work.post.call.peers)

    def _look(self, number: int) -> Any:
        with called_elsewhere(False):
            return self._wait(number) if self._open[number].is_completed() else None

    @property
    def _default(self) -> LocalGroup:
        return dist.group.WORLD  # type: ignore[return-value]


def _same_bytes(one: torch.Tensor, other: torch.Tensor) -> bool:
    mine, theirs = (each.contiguous().reshape(-1).view(torch.uint8) for each in (one, other))
    return torch.equal(mine, theirs)


def _argument(kind: str, value: Any, reduction: str | None = None) -> Any:
    if kind == "options":
        return SimpleNamespace(
            asyncOp=value["asyncOp"] is True, rootRank=value["rootRank"], reduceOp=_reduction(reduction)
        )
    return _reduction(value) if kind == "reduction" else value


def _reduction(name: str | None) -> Any:
    if name is None:
        return None
    if name not in _REDUCTIONS:
        raise ValueError(f"a grader's ranks do not reduce by {name}; take one of {', '.join(_REDUCTIONS)}")
    return getattr(dist.ReduceOp, name.upper())
