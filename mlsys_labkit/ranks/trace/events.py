"""``RunTrace``: what every rank sent, received and computed. Real and simulated runs leave the same record."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from mlsys_labkit._base.text_table import text_table
from mlsys_labkit.work import Work

Kind = Literal["send", "recv", "collective", "compute", "wait"]


@dataclass(frozen=True)
class Event:
    """One call, or one piece of computation, of one rank.

    Attributes:
        rank: the global rank.
        kind: "send", "recv", "collective", "compute", or "wait" (for an asynchronous call to complete).
        name: "send", "all_reduce", ...; for "compute" the task's name; for "wait" the name of the call waited for.
        bytes: payload as nccl-tests counts it. A message: its tensor. all_reduce, broadcast, reduce: the tensor.
            all_gather: the whole output. reduce_scatter, all_to_all: the whole input. scatter, gather: all parts.
        peers: global ranks at the other end: one for a message, the group's other members for a collective.
        group: global ranks of the process group, in its order.
        tag: the tag of a message.
        operation: "sum", "max", ... of a reduction.
        dtype, shape: of the tensor sent or received; of the first one for a collective.
        key: the same text on both ends of a message and on all members of a collective, and unique in the trace.
        asynchronous: the call returned before it was complete; the "wait" of the same key ends when it was.
        changed: a tensor that an asynchronous collective sends was written to between the call and its wait.
        line: (file, line number) of the caller's own code, and ``source`` its text.
        start_seconds, end_seconds: since the run began; None where no clock ran that means something.
    """

    rank: int
    kind: Kind
    name: str
    bytes: int = 0
    peers: tuple[int, ...] = ()
    group: tuple[int, ...] = ()
    tag: int = 0
    operation: str = ""
    dtype: str = ""
    shape: tuple[int, ...] = ()
    key: str = ""
    asynchronous: bool = False
    changed: bool = False
    line: tuple[str, int] | None = None
    source: str = ""
    start_seconds: float | None = None
    end_seconds: float | None = None

    @property
    def seconds(self) -> float | None:
        """Duration, None where it is not known."""
        if self.start_seconds is None or self.end_seconds is None:
            return None
        return self.end_seconds - self.start_seconds


@dataclass(frozen=True)
class Edge:
    """All messages from one rank to another."""

    source: int
    destination: int
    messages: int
    bytes: int


@dataclass(frozen=True)
class RunTrace:
    """The events of one run, each rank's in its program order.

    Args:
        world_size: number of ranks, p.
        events: rank 0's in order, then rank 1's, ...
        backend: "local", "gloo", "nccl" or "simulated".
        findings: sentences on what is wrong with a run that ended: a send nobody received, an irecv nobody waited for,
            a tensor that was changed while an asynchronous collective was under way.

    Example:
        >>> there = Event(0, "send", "send", bytes=40, peers=(1,), key="0>1 #0")
        >>> here = Event(1, "recv", "recv", bytes=40, peers=(0,), key="0>1 #0")
        >>> trace = RunTrace(2, (there, here), "local")
        >>> trace.sent_bytes(0), trace.received_bytes(1), trace.edges
        (40, 40, (Edge(source=0, destination=1, messages=1, bytes=40),))

    Reference: NVIDIA, nccl-tests, doc/PERFORMANCE.md, for what the bytes of a collective are.
    """

    world_size: int
    events: tuple[Event, ...]
    backend: str
    findings: tuple[str, ...] = ()

    def of(self, rank: int, kind: Kind | None = None) -> tuple[Event, ...]:
        """Return the events of one rank, all or of one kind."""
        return tuple(event for event in self.events if event.rank == rank and kind in (None, event.kind))

    def messages(self, rank: int) -> int:
        """Count the point-to-point messages that a rank sent."""
        return len(self.of(rank, "send"))

    def sent_bytes(self, rank: int) -> int:
        """Return the payload in bytes of the point-to-point messages that a rank sent."""
        return sum(event.bytes for event in self.of(rank, "send"))

    def received_bytes(self, rank: int) -> int:
        """Return the payload in bytes of the point-to-point messages that a rank received."""
        return sum(event.bytes for event in self.of(rank, "recv"))

    def collectives(self, rank: int) -> Counter[str]:
        """Count a rank's calls of each collective."""
        return Counter(event.name for event in self.of(rank, "collective"))

    @property
    def edges(self) -> tuple[Edge, ...]:
        """The topology: who sent to whom, how many messages and bytes, in order of ranks."""
        sums: dict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0])
        for event in self.events:
            if event.kind == "send":
                pair = sums[event.rank, event.peers[0]]
                pair[0] += 1
                pair[1] += event.bytes
        return tuple(Edge(*ends, *sums[ends]) for ends in sorted(sums))

    def work(self, rank: int) -> Work:
        """Return a rank's point-to-point sends as ``Work``; collectives of a library are not counted."""
        how = {"messages": "counted", "message_bytes": "counted"}
        name = f"rank {rank}"
        return Work(messages=self.messages(rank), message_bytes=self.sent_bytes(rank), name=name, how=how)

    @property
    def seconds(self) -> float | None:
        """From the first start to the last end, None where no clock ran."""
        ends = [event.end_seconds for event in self.events if event.end_seconds is not None]
        starts = [event.start_seconds for event in self.events if event.start_seconds is not None]
        return max(ends) - min(starts) if ends and starts else None

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def __str__(self) -> str:
        return self.table()

    def table(self) -> str:
        """Return a table with a row per rank: messages sent and received, collectives of the library, bytes of each."""
        rows: list[tuple[str, ...]] = [("rank", "sent", "bytes", "to", "received", "bytes", "from", "collectives")]
        for rank in range(self.world_size):
            sends, receives = self.of(rank, "send"), self.of(rank, "recv")
            sizes = Counter[str]()
            for event in self.of(rank, "collective"):
                sizes[event.name] += event.bytes
            counts = sorted(self.collectives(rank).items())
            calls = ", ".join(f"{name} x{count} ({sizes[name]} bytes)" for name, count in counts)
            sent = (len(sends), self.sent_bytes(rank), _ranks(sends))
            received = (len(receives), self.received_bytes(rank), _ranks(receives))
            rows.append(tuple(map(str, (rank, *sent, *received, calls or "-"))))
        return "\n".join(text_table(rows, range(len(rows[0]))))


def _ranks(events: tuple[Event, ...]) -> str:
    return " ".join(str(rank) for rank in sorted({peer for event in events for peer in event.peers})) or "-"
