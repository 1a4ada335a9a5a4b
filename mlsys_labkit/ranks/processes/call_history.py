"""The calls of all ranks so far, read from their logs: which rank waits for which, and calls that do not match."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from mlsys_labkit.ranks.recording.recorder import Call
from mlsys_labkit.ranks.student_lines import at
from mlsys_labkit.ranks.trace.deadlock import RankState, Waiting
from mlsys_labkit.ranks.trace.events import Event

_NEED_ALL = frozenset({"all_reduce", "all_gather", "reduce_scatter", "barrier"})
_SAME_BYTES = frozenset({"send", "recv", "all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "gather"})


class CallHistory:
    """The calls of every rank so far, from the records of ``LoggingReporter``.

    Attributes:
        mismatch: a sentence on the first two calls that should be alike and are not, or "".
    """

    def __init__(self, world_size: int) -> None:
        self.mismatch = ""
        self._calls: list[list[Call]] = [[] for _ in range(world_size)]
        self._blocked: list[dict[int, Call]] = [{} for _ in range(world_size)]  # what ranks wait for now
        self._ends: dict[str, dict[tuple[int, str], Call]] = defaultdict(dict)  # key -> (rank, kind) -> call
        self._left_to_cpp: list[list[Call]] = [[] for _ in range(world_size)]  # waited for where nothing is recorded

    def feed(self, rank: int, records: Iterable[Sequence[Any]]) -> None:
        """Add the calls that a rank has made."""
        calls, blocked = self._calls[rank], self._blocked[rank]
        for step, number, *details in records:
            if step == "entered":
                call = Call(*details[0])
                calls.append(call)
                if not call.asynchronous:
                    blocked[number] = call
                self._meet(call)
            elif step == "waiting":
                calls[number].waited_on = details[0]
                blocked[number] = calls[number]
            else:
                call = calls[number]
                call.peers, call.key, call.end_seconds = details
                call.waited_on = None
                blocked.pop(number, None)
                self._ends[call.key].setdefault((rank, call.kind), call)
                if call.asynchronous and call.name in _NEED_ALL:
                    self._left_to_cpp[rank].append(call)

    def states(self, ended: Iterable[int]) -> list[RankState]:
        """Return the state of each rank. A rank with several threads waits for what its last call needs."""
        over = set(ended)
        states = []
        for rank, blocked in enumerate(self._blocked):
            if rank in over:
                states.append(RankState(rank, "ended"))
            elif blocked:
                states.append(RankState(rank, "waiting", self._waiting(next(reversed(blocked.values())))))
            elif waiting := self._without_end(rank, over):
                states.append(RankState(rank, "waiting", waiting))
            else:
                states.append(RankState(rank, "running"))
        return states

    def _without_end(self, rank: int, over: set[int]) -> Waiting | None:
        """Return a call that DDP's reducer will wait for, or waits for, and that ranks which have ended never made."""
        calls = self._left_to_cpp[rank]
        calls[:] = [
            call for call in calls if any((one, "collective") not in self._ends[call.key] for one in call.group)
        ]
        waits = (self._waiting(call) for call in calls)
        return next((one for one in waits if one.needs and over.issuperset(one.needs)), None)

    def events(self) -> list[tuple[Event, ...]]:
        """Return the calls of every rank, complete or not."""
        return [tuple(call.event() for call in calls) for calls in self._calls]

    def _meet(self, call: Call) -> None:
        if not call.key:
            return
        ends = self._ends[call.key]
        ends[call.rank, call.kind] = call
        for other in ends.values():
            self.mismatch = self.mismatch or _mismatch(*sorted((other, call), key=lambda one: one.rank))

    def _waiting(self, call: Call) -> Waiting:
        line, posted = call.waited_on or call.line, call.line if call.waited_on else None
        if call.kind == "recv" and not call.peers:
            others = tuple(rank for rank in call.group if rank != call.rank)
            needs = () if self._sent_to(call) else others
            return Waiting(call.name, needs, any_of=True, tag=call.tag, line=line, posted=posted)
        there = self._ends[call.key]
        if call.kind == "collective":
            needs = tuple(rank for rank in call.group if (rank, "collective") not in there)
        elif call.kind == "recv":
            needs = () if (call.peers[0], "send") in there else call.peers
        else:
            needs = () if (call.peers[0], "recv") in there or self._any_receive(call) else call.peers
        return Waiting(call.name, needs, tag=call.tag, line=line, posted=posted)

    def _sent_to(self, receive: Call) -> bool:
        """Return whether a message was sent that a receive from any rank could take."""
        return any(
            (receive.rank, "recv") not in self._ends[call.key]
            for rank in receive.group
            for call in self._calls[rank]
            if call.kind == "send" and call.peers == (receive.rank,) and _same_channel(call, receive)
        )

    def _any_receive(self, send: Call) -> bool:
        open_ = self._blocked[send.peers[0]].values()
        return any(call.kind == "recv" and not call.peers and _same_channel(call, send) for call in open_)


def _same_channel(one: Call, other: Call) -> bool:
    return (one.group_name, one.tag) == (other.group_name, other.tag)


def _mismatch(one: Call, other: Call) -> str:
    """Describe how two ends of a message, or two members of a collective, differ; "" if they do not."""
    if one is other:
        return ""
    if one.kind == "collective":
        if (one.name, one.operation, one.root) == (other.name, other.operation, other.root) and not _differ(one, other):
            return ""
        return (
            f"rank {one.rank} calls {_described(one)}, but rank {other.rank} calls {_described(other)}; "
            "all ranks of a group make the same collectives in the same order"
        )
    if not _differ(one, other):
        return ""
    send, receive = (one, other) if one.kind == "send" else (other, one)
    return (
        f"rank {send.rank} sends {_tensor(send)}{at(send.line)}, but rank {receive.rank} receives "
        f"{_tensor(receive)}{at(receive.line)}; make both the same"
    )


def _differ(one: Call, other: Call) -> bool:
    return one.dtype != other.dtype or (one.name in _SAME_BYTES and one.bytes != other.bytes)


def _described(call: Call) -> str:
    operation = f" with {call.operation}" if call.operation else ""
    root = f" with root {call.root}" if call.root >= 0 else ""
    tensor = f" on {_tensor(call)}" if call.dtype else ""
    return f"{call.name}{operation}{root}{tensor}{at(call.line)}"


def _tensor(call: Call) -> str:
    return f"{call.shape} of {call.dtype}"
