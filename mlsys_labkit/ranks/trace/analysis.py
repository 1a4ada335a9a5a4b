"""Analysis of a trace with a clock: idle time of each rank, the bubble, and the critical path."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, cast

from mlsys_labkit.errors import RanksError
from mlsys_labkit.ranks.trace.events import Event, RunTrace
from mlsys_labkit.work.network_link import Number


@dataclass(frozen=True)
class Stretch:
    """One piece of a critical path.

    Attributes:
        kind: "compute"; "message" (or "collective"), from the moment both ends (all members) had called it; or "other",
            time of the rank that no event accounts for.
        rank: whose time it is; of a message, the end that called it last.
        name: of the event.
        event: the event itself, None for "other".
    """

    kind: Literal["compute", "message", "collective", "other"]
    rank: int
    name: str
    start_seconds: float
    end_seconds: float
    event: Event | None = None

    @property
    def seconds(self) -> float:
        return self.end_seconds - self.start_seconds

    def __str__(self) -> str:
        if self.kind != "message" or self.event is None:
            return f"{self.name} (rank {self.rank})"
        ends = (self.event.rank, *self.event.peers)
        return "message {}>{}".format(*(ends if self.event.name.endswith("send") else ends[::-1]))


@dataclass(frozen=True)
class CriticalPath:
    """The chain of events that sets a run's length, first to last; each begins where the one before it ends."""

    stretches: tuple[Stretch, ...]

    @property
    def seconds(self) -> float:
        return sum(stretch.seconds for stretch in self.stretches)

    def of(self, kind: str) -> float:
        """Return the seconds of the path of kind "compute", "message", "collective" or "other"."""
        return sum(stretch.seconds for stretch in self.stretches if stretch.kind == kind)

    def __str__(self) -> str:
        return " -> ".join(map(str, self.stretches))


@dataclass(frozen=True)
class RankSeconds:
    """The time of one rank in a run: computing, in calls (sending, receiving, waiting), and outside of both."""

    rank: int
    compute: float
    calls: float
    other: float

    @property
    def idle(self) -> float:
        """All time in which it did not compute."""
        return self.calls + self.other


def rank_seconds(trace: RunTrace) -> tuple[RankSeconds, ...]:
    """Divide the time from the first start to the last end of the trace, for each rank.

    Raises RanksError for a trace without a clock.

    Example:
        >>> trace = RunTrace(2, (Event(0, "compute", "F0", start_seconds=0, end_seconds=3),), "simulated")
        >>> [(spent.rank, spent.compute, spent.idle) for spent in rank_seconds(trace)]
        [(0, 3, 0), (1, 0, 3)]

    Reference: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters", 2021, section 2.2.
    """
    length = _length(trace)
    compute: list[float] = [0] * trace.world_size
    calls: list[float] = [0] * trace.world_size
    for event in trace:
        spent = compute if event.kind == "compute" else calls
        spent[event.rank] += _end(event) - _start(event)
    both = enumerate(zip(compute, calls, strict=True))
    return tuple(RankSeconds(rank, busy, waited, length - busy - waited) for rank, (busy, waited) in both)


def bubble_fraction(trace: RunTrace) -> Number:
    """Return the part of all ranks' time without computation: 1 - busy / (ranks x length).

    It is exact if the clock is.

    Raises RanksError for a trace without a clock, or one that took no time.

    Example:
        >>> from mlsys_labkit.ranks import pipeline_programs, schedule, simulate
        >>> bubble_fraction(simulate(pipeline_programs(schedule("gpipe", stages=4, micro_batches=8))))
        Fraction(3, 11)

    Reference: Huang et al., "GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism", 2019.
    """
    length: Number = _length(trace)
    if length <= 0:
        raise RanksError("a bubble is a part of the time, and this trace took none; give its tasks seconds")
    busy: Number = sum(spent.compute for spent in rank_seconds(trace))
    if isinstance(busy, float) or isinstance(length, float):
        return 1 - busy / (trace.world_size * length)
    return 1 - Fraction(busy) / (trace.world_size * Fraction(length))


def live_micro_batches(trace: RunTrace) -> tuple[int, ...]:
    """Return the most micro-batches whose activations each rank holds at a time, by its tasks' names.

    "F3" starts to hold one; "B3" frees it, or "W3" where the backward is split; "F3.1" is a separate chunk.

    Example:
        >>> names = ["F0", "F1", "B0", "F2", "B1", "B2"]
        >>> live_micro_batches(RunTrace(1, tuple(Event(0, "compute", name) for name in names), "local"))
        (2,)

    Reference: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters", 2021, section 2.2.
    """
    tasks = [
        (event.rank, found) for event in trace if event.kind == "compute" and (found := _TASK.fullmatch(event.name))
    ]
    last = "W" if any(found["kind"] == "W" for _, found in tasks) else "B"
    held, peaks = [0] * trace.world_size, [0] * trace.world_size
    for rank, found in tasks:
        held[rank] += (found["kind"] == "F") - (found["kind"] == last)
        peaks[rank] = max(peaks[rank], held[rank])
    return tuple(peaks)


def critical_path(trace: RunTrace) -> CriticalPath:
    """Find the chain of events, across ranks, that determined the length of the run.

    The search goes back from the last end. From a task it goes to the previous event of the same rank; from a call
    that its rank waited in, to the end (or member) that called last, found by the event's key. The time from that
    call on belongs to the message, including the wait for a port. Calls that returned at once are left out.

    Raises RanksError for a trace without a clock.

    Example:
        >>> from mlsys_labkit.ranks import Compute, Link, Recv, Send, simulate
        >>> link = Link(latency_seconds=1, bytes_per_second=10)
        >>> trace = simulate([[Compute("F0", 3), Send(1, bytes=40)], [Compute("load", 1), Recv(0)]], link)
        >>> path = critical_path(trace)
        >>> print(path), path.of("compute"), float(path.of("message"))
        F0 (rank 0) -> message 0>1
        (None, 3, 5.0)

    Reference: Yang and Miller, "Critical Path Analysis for the Execution of Parallel and Distributed Programs", 1988.
    """
    length = _length(trace)
    if length <= 0:
        return CriticalPath(())
    of_rank = [trace.of(rank) for rank in range(trace.world_size)]
    posts: dict[str, list[tuple[float, int, int]]] = defaultdict(list)  # when, which rank, where in its program
    for rank, events in enumerate(of_rank):
        for place, event in enumerate(events):
            if event.kind not in ("compute", "wait"):
                posts[event.key].append((_start(event), rank, place))
    first = min(_start(event) for event in trace)
    now, rank = max((_end(event), -event.rank) for event in trace if _end(event) > _start(event))
    rank, place = -rank, len(of_rank[-rank])
    path: list[Stretch] = []
    while now > first:
        place -= 1
        if place < 0:
            path.append(Stretch("other", rank, "other", first, now))
            break
        event = of_rank[rank][place]
        start, end = _start(event), _end(event)
        if start == end or end > now:
            continue
        if end < now:
            path.append(Stretch("other", rank, "other", end, now))
        now = end
        if event.kind == "compute":
            path.append(Stretch("compute", rank, event.name, start, end, event))
            now = start
        else:
            kind: Literal["message", "collective"] = "collective" if len(event.group) > 0 else "message"
            called = [post for post in posts[event.key] if post[0] <= end] or [(start, rank, place)]
            now, rank, place = max(called)
            if now < end:
                path.append(Stretch(kind, rank, event.name, now, end, event))
    return CriticalPath(tuple(reversed(path)))


_TASK = re.compile(r"(?P<kind>[FBW])\d+(\.\d+)?")


def _start(event: Event) -> float:
    return cast(float, event.start_seconds)


def _end(event: Event) -> float:
    return cast(float, event.end_seconds)


def _length(trace: RunTrace) -> float:
    if any(event.seconds is None for event in trace):
        raise RanksError(f"this trace of backend {trace.backend!r} has no times; replay() puts it on a clock")
    return trace.seconds or 0
