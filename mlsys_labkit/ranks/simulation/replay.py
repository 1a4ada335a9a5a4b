"""A recorded run on the virtual clock: the program as it ran, with the times of other links and processors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from mlsys_labkit.errors import RanksError
from mlsys_labkit.ranks.simulation.clock import simulate
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
from mlsys_labkit.ranks.trace.events import Event, RunTrace
from mlsys_labkit.work.network_link import Number

TaskSeconds = Mapping[str, Number] | Callable[[Event], Number]


def replay(trace: RunTrace, links: Links = FREE, compute_seconds: TaskSeconds | None = None) -> RunTrace:
    """Run recorded calls on the virtual clock: each rank's calls in order, with these links, a processor per rank.

    ``compute_seconds`` says how long a task takes, by its name or as a function of its event; without it, as long as
    it took. The result has the recorded events, with new times. Collectives go by their default algorithm.

    Raises RanksError for a task whose time is not known, and what ``simulate`` raises.

    Example:
        >>> here, there = Event(0, "compute", "F0"), Event(1, "compute", "F0")
        >>> replay(RunTrace(2, (here, there), "local"), compute_seconds={"F0": 2}).seconds
        2

    Reference: as ``simulate``.
    """
    tags = {key: tag for tag, key in enumerate(dict.fromkeys(event.key for event in trace))}
    programs: list[list[Operation]] = [[] for _ in range(trace.world_size)]
    for event in trace:
        programs[event.rank].append(_operation(event, tags, compute_seconds))
    clocked = simulate(programs, links)
    ordered = [event for rank in range(trace.world_size) for event in trace.of(rank)]
    events = (
        replace(old, start_seconds=new.start_seconds, end_seconds=new.end_seconds)
        for old, new in zip(ordered, clocked, strict=True)
    )
    return replace(clocked, events=tuple(events))


def _operation(event: Event, tags: Mapping[str, int], compute_seconds: TaskSeconds | None) -> Operation:
    tag, late = tags[event.key], event.asynchronous
    match event.kind:
        case "send":
            to = event.peers[0]
            return Isend(to, event.bytes, tag, event.key) if late else Send(to, event.bytes, tag)
        case "recv":
            if not event.peers:
                raise RanksError(f"rank {event.rank} waits for a message of any rank, which none sent")
            return Irecv(event.peers[0], tag, event.key) if late else Recv(event.peers[0], tag)
        case "wait":
            return Wait(event.key)
        case "collective":
            return Collective(event.name, event.bytes, event.group, asynchronous=late, handle=event.key, tag=tag)
    seconds: Number | None = event.seconds
    if callable(compute_seconds):
        seconds = compute_seconds(event)
    elif compute_seconds is not None:
        seconds = compute_seconds.get(event.name)
    if seconds is None:
        raise RanksError(f"no time is known for the task {event.name!r} of rank {event.rank}; give compute_seconds")
    return Compute(event.name, seconds)
