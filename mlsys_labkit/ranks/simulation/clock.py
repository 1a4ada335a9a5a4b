"""A virtual clock: what a program of many ranks would take on links with a latency and a bandwidth.

What is modelled:

* A message of n bytes takes alpha + n/B (Hockney, 1994). For that long it fills the sender's outgoing port and the
  receiver's incoming port. Every rank has one of each, and they work at the same time (full duplex). Messages take
  a port in the order in which they become ready; equal times are settled by rank.
* A message becomes ready when both ends have been called, and both ends are complete when it has been carried: a
  rendezvous. A blocking call returns then, an asynchronous one at once, and a Wait for it returns then.
* Computing fills the rank and no port, so transfers that were begun asynchronously go on under it.
* A collective starts when all members have called it and their ports are free, and takes its rounds of messages one
  after another (``patterns``), each as long as its slowest message.

Times given as ints or ``Fraction`` stay exact; floats round as floats do.
"""

from __future__ import annotations

import gc
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from heapq import heappop, heappush
from typing import Any, cast

from mlsys_labkit.errors import RanksError
from mlsys_labkit.ranks.errors import DeadlockError, MismatchError
from mlsys_labkit.ranks.simulation.patterns import pattern
from mlsys_labkit.ranks.simulation.programs import (
    FREE,
    Collective,
    Compute,
    Irecv,
    Isend,
    Links,
    Operation,
    Recv,
    Send,
    Wait,
)
from mlsys_labkit.ranks.trace.events import Event, Kind, RunTrace
from mlsys_labkit.work.network_link import Link, Number

_Transfer = Send | Recv | Isend | Irecv | Collective


def simulate(programs: Sequence[Sequence[Operation]], links: Links = FREE) -> RunTrace:
    """Run each rank's operations on the virtual clock and return a RunTrace like that of a real run.

    ``links`` is one Link for all pairs, a mapping (source, destination) -> Link, or a function of the two.
    An asynchronous call's event lasts no time; the "wait" event of the same key ends when it is complete.

    Raises DeadlockError, who waits for whom, if ranks block for ever; MismatchError if members of a group call
    different collectives; RanksError for a rank, link or handle that is not there.

    Example:
        >>> link = Link(latency_seconds=1, bytes_per_second=10)
        >>> trace = simulate([[Compute("F0", 3), Send(1, bytes=40)], [Recv(0), Compute("F0", 3)]], link)
        >>> [(event.rank, event.name, float(event.start_seconds), float(event.end_seconds)) for event in trace]
        [(0, 'F0', 0.0, 3.0), (0, 'send', 3.0, 8.0), (1, 'recv', 0.0, 8.0), (1, 'F0', 8.0, 11.0)]

    Reference: Hockney, "The Communication Challenge for MPP: Intel Paragon and Meiko CS-2", 1994.
    """
    collecting = gc.isenabled()
    gc.disable()  # a run makes no garbage, and searching for it would take a third of the time
    try:
        return _Clock(programs, links).run()
    finally:
        if collecting:
            gc.enable()


@dataclass(slots=True, eq=False)
class _Call:
    """One end of a message, or one member's part in a collective."""

    rank: int
    operation: _Transfer
    kind: Kind
    name: str
    asynchronous: bool
    bytes: int
    peers: tuple[int, ...]
    key: str
    group: tuple[int, ...] = ()
    done: Number | None = None  # the time at which it is complete, once that is known
    waited: Number | None = None  # the time since which its rank waits for it

    def __str__(self) -> str:
        if self.kind == "collective":
            return f"{self.name} of ranks {list(self.group)}"
        call = type(self.operation).__name__.lower()
        return f"{call} {'to' if self.kind == 'send' else 'from'} rank {self.peers[0]}"


# (kind, name, start, end, call) of an event that is made later, because a message's size is known only when both ends
# have called. Times are a Number although Event declares float: a Fraction works like a float, and is exact.
_Record = tuple[Kind, str, Any, Any, _Call | None]


class _Clock:
    def __init__(self, programs: Sequence[Sequence[Operation]], links: Links) -> None:
        self.programs, self.world, self.link = programs, len(programs), _lookup(links)
        self.at = [0] * self.world
        self.records: list[list[_Record]] = [[] for _ in programs]
        self.outgoing: list[Number] = [0] * self.world  # when each port is free again
        self.incoming: list[Number] = [0] * self.world
        self.posted: dict[str, _Call] = {}  # by key, the ends that wait for their other end
        self.counts: dict[tuple[Any, ...], int] = defaultdict(int)
        self.joined: dict[str, list[_Call]] = defaultdict(list)
        self.begun: list[dict[str, list[_Call]]] = [{} for _ in programs]  # by handle, not yet waited for
        self.over: list[dict[str, _Call]] = [{} for _ in programs]
        self.blocked: dict[int, _Call] = {}
        self.due: list[tuple[Number, int]] = [(0, rank) for rank in range(self.world)]

    def run(self) -> RunTrace:
        while self.due:
            now, rank = heappop(self.due)
            while self.at[rank] < len(self.programs[rank]):
                operation = self.programs[rank][self.at[rank]]
                self.at[rank] += 1
                if not self.step(rank, now, operation):
                    break
        if self.blocked:
            raise DeadlockError(self.deadlock())
        findings = (
            f"rank {rank} never waited for its {call}" + ("" if call.done is not None else ", which met no other end")
            for rank, begun in enumerate(self.begun)
            for calls in begun.values()
            for call in calls
        )
        events = (_event(rank, made) for rank, records in enumerate(self.records) for made in records)
        return RunTrace(self.world, tuple(events), "simulated", tuple(findings))

    def step(self, rank: int, now: Number, operation: Operation) -> bool:
        """Begin an operation; return False if the rank goes on later, at a time that is known now or will be."""
        if isinstance(operation, Compute):
            end = now + operation.seconds
            if not now <= end < math.inf:
                raise RanksError(f"{operation.name!r} of rank {rank} takes {operation.seconds} s; expected 0 or more")
            self.records[rank].append(("compute", operation.name, now, end, None))
            heappush(self.due, (end, rank))
            return False
        if isinstance(operation, Wait):
            return self.wait(rank, now, operation.handle)
        call = self.call(rank, operation)
        if call.asynchronous:
            self.records[rank].append((call.kind, call.name, now, now, call))
            self.begun[rank].setdefault(getattr(operation, "handle", ""), []).append(call)
        else:
            self.stand_still(call, now)
        self.meet(call, now)
        return call.asynchronous

    def call(self, rank: int, operation: _Transfer) -> _Call:
        if isinstance(operation, Collective):
            group = operation.group or tuple(range(self.world))
            members = "world" if len(group) == self.world else f"group {'-'.join(map(str, sorted(group)))}"
            members += f" tag {operation.tag}" if operation.tag else ""
            count = self.counted(rank, members)
            if rank not in group or len(set(group)) != len(group) or not set(group) <= set(range(self.world)):
                raise RanksError(f"rank {rank} calls {operation.name} on group {group} of {self.world} ranks")
            name, late, key = operation.name, operation.asynchronous, f"{members} #{count}"
            others = tuple(r for r in group if r != rank)
            return _Call(rank, operation, "collective", name, late, operation.bytes, others, key, tuple(sorted(group)))
        kind: Kind
        if isinstance(operation, (Send, Isend)):
            kind, source, to, size = "send", rank, operation.to, operation.bytes
        elif isinstance(operation, (Recv, Irecv)):
            kind, source, to, size = "recv", operation.source, rank, 0
        else:
            raise RanksError(
                f"rank {rank} has {operation!r} in its program; expected an operation such as Compute or Send"
            )
        other = to if kind == "send" else source
        if not 0 <= other < self.world:
            raise RanksError(f"rank {rank} names rank {other} in {operation}; expected 0 to {self.world - 1}")
        tag = f" tag {operation.tag}" if operation.tag else ""
        key = f"{source}>{to}{tag} #{self.counted(kind, source, to, operation.tag)}"
        return _Call(rank, operation, kind, kind, isinstance(operation, (Isend, Irecv)), size, (other,), key)

    def counted(self, *what: Any) -> int:
        self.counts[what] += 1
        return self.counts[what] - 1

    def wait(self, rank: int, now: Number, handle: str) -> bool:
        begun = self.begun[rank]
        if handle and handle not in begun:
            if handle not in self.over[rank]:
                raise RanksError(f"rank {rank} waits for {handle!r}; the calls it began are {sorted(begun)}")
            call = self.over[rank][handle]  # waited for before: nothing is left to wait for
        elif not begun:
            return True
        else:
            name = handle or next(iter(begun))
            call = self.over[rank][name] = begun[name].pop(0)
            if not begun[name]:
                del begun[name]
            if begun and (not handle or handle in begun):
                self.at[rank] -= 1  # one call after another, in the order in which they were begun
        self.stand_still(call, now)
        if call.done is not None:
            self.go_on(call)
        return False

    def stand_still(self, call: _Call, now: Number) -> None:
        call.waited = now
        self.blocked[call.rank] = call

    def go_on(self, call: _Call) -> None:
        assert call.waited is not None
        assert call.done is not None
        end = max(call.waited, call.done)
        kind: Kind = "wait" if call.asynchronous else call.kind
        self.records[call.rank].append((kind, call.name, call.waited, end, call))
        del self.blocked[call.rank]
        heappush(self.due, (end, call.rank))

    def complete(self, calls: Sequence[_Call], end: Number) -> None:
        for call in calls:
            call.done = end
            if call.waited is not None:
                self.go_on(call)

    def meet(self, call: _Call, now: Number) -> None:
        """Transfer the message, or run the collective, whose last end has just called."""
        if isinstance(call.operation, Collective):
            return self.gather(call, now)
        partner = self.posted.pop(call.key, None)
        if partner is None:
            self.posted[call.key] = call
            return None
        source, to = (call.rank, partner.rank) if call.kind == "send" else (partner.rank, call.rank)
        call.bytes = partner.bytes = max(call.bytes, partner.bytes)
        if source == to:
            return self.complete((call, partner), now)  # a copy within a rank takes no port
        start = max(now, self.outgoing[source], self.incoming[to])
        end = start + self.link(source, to).seconds(call.bytes)
        self.outgoing[source] = self.incoming[to] = end
        return self.complete((call, partner), end)

    def gather(self, call: _Call, now: Number) -> None:
        calls = self.joined[call.key]
        calls.append(call)
        first, last = cast(Collective, calls[0].operation), cast(Collective, call.operation)
        if (first.name, first.bytes, first.algorithm) != (last.name, last.bytes, last.algorithm):
            raise MismatchError(
                f"rank {calls[0].rank} calls {_say(first)}, rank {call.rank} {_say(last)}; expected one"
            )
        if len(calls) <= len(call.peers):
            return
        group = last.group or tuple(range(self.world))
        start = max(now, *(max(self.outgoing[r], self.incoming[r]) for r in group))
        end = start + self.rounds_seconds(last, group)
        for rank in group:
            self.outgoing[rank] = self.incoming[rank] = end
        self.complete(calls, end)

    def rounds_seconds(self, operation: Collective, group: tuple[int, ...]) -> Number:
        plan = pattern(operation.name, len(group), operation.algorithm)
        sizes = plan.sizes(operation.bytes)
        return sum(
            max(
                self.link(group[m.source], group[m.destination]).seconds(sum(sizes[chunk] for chunk in m.chunks))
                for m in step
            )
            for step in plan.rounds
        )

    def deadlock(self) -> str:
        """Describe each rank that waits, and the state of the rank it waits for: waiting, ended, or in another call."""
        stuck = sorted(self.blocked)
        lines = [f"rank {rank} waits in operation {self.at[rank] - 1}, {self.blocked[rank]}" for rank in stuck]
        missing = sorted({r for rank in stuck for r in self.blocked[rank].peers} - set(stuck))
        ended = f"; rank {', '.join(map(str, missing))} has ended" if missing else ""
        return f"deadlock: {'; '.join(lines)}{ended}. A call returns when its other end has been called too"


def _say(operation: Collective) -> str:
    return f"{operation.name} of {operation.bytes} B by {operation.algorithm or 'its default'}"


def _event(rank: int, made: _Record) -> Event:
    kind, name, start, end, call = made
    about: dict[str, Any] = {}
    if call is not None:
        about = {field: getattr(call, field) for field in ("bytes", "peers", "group", "key")}
        about |= {"tag": call.operation.tag, "asynchronous": call.asynchronous and kind != "wait"}
    return Event(rank, kind, name, start_seconds=start, end_seconds=end, **about)


def _lookup(links: Links) -> Callable[[int, int], Link]:
    if isinstance(links, Link):
        return lambda source, to: links
    if callable(links):
        return cache(links)

    def of(source: int, to: int) -> Link:
        if (source, to) not in links:
            raise RanksError(f"no link from rank {source} to rank {to}; links has {len(links)} pairs")
        return links[source, to]

    return of
