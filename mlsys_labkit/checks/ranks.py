"""``run_ranks`` and ``expect_messages``: the results of several ranks, and the messages that they sent.

``run_ranks`` is a named probe: a test cell calls it by name, and it runs in the process of the student's function.
Plain data goes in (numbers, tensors, ``ranks.each``) and plain data comes back (a ``ranks.Run``), so a grader can run
it in the student's process and check the result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mlsys_labkit._base.probes import probe, witnessed
from mlsys_labkit.checks.counts import Excess, off, read_bounds, require_type, too_few
from mlsys_labkit.checks.frames import own_frames
from mlsys_labkit.checks.message import CheckError, count, failure
from mlsys_labkit.checks.passed import note_pass
from mlsys_labkit.ranks.trace.events import Event, RunTrace

if TYPE_CHECKING:
    from mlsys_labkit.ranks.result import Run

_FIGURES = {
    "messages": "messages sent",
    "sent_bytes": "bytes sent",
    "received_bytes": "bytes received",
    "total_messages": "messages of all ranks",
    "total_bytes": "bytes of all ranks",
    "rounds": "rounds",
}
_NEXT = {
    "messages": "count the sends of one rank, step by step, in print(run.trace)",
    "sent_bytes": "which elements travel that nobody needs, or twice?",
    "received_bytes": "which elements arrive that nobody needs, or twice?",
    "total_messages": "count the sends of one rank, step by step, in print(run.trace)",
    "total_bytes": "which elements travel that nobody needs, or twice?",
    "rounds": "which messages could travel at the same time, on links that are free?",
}


@witnessed("the examiner, through whom every message goes between ranks that are processes of their own")
@probe
def run_ranks(
    function: Callable[..., Any],
    world_size: int,
    *args: Any,
    arguments: bool = False,
    memory: bool = False,
    timeout_seconds: float = 20.0,
) -> Run:
    """Run ``function(*args)`` on every rank of the deterministic local backend.

    An argument made by ``ranks.each(items)`` gives each rank its own item. Returns the ``ranks.Run``: values, trace,
    and with ``memory`` a ``MemoryTrace`` a rank. With ``arguments`` each value is a pair of what the function returned
    and its arguments as they were afterwards, for functions that work in place or must not.

    Raises NotImplementedError where the function is a stub, and CheckError, with the diagnosis, where a rank raised,
    ranks wait for each other, two ends of a message disagree, or the run ended with a message that was not received
    or a request that was not waited for.

    Example:
        >>> import torch, torch.distributed as dist
        >>> from mlsys_labkit import ranks
        >>> def total(x):
        ...     dist.all_reduce(x)
        ...     return x.item()
        >>> run_ranks(total, 2, ranks.each([torch.tensor(1.0), torch.tensor(2.0)])).values
        [3.0, 3.0]

    Reference: MPI Forum, "MPI: A Message-Passing Interface Standard", 4.1, section 3.5: what may deadlock.
    """
    from mlsys_labkit import ranks

    __tracebackhide__ = True
    name = getattr(function, "__name__", "the function")

    def and_arguments(*own: Any) -> tuple[Any, tuple[Any, ...]]:
        return function(*own), own

    options: dict[str, Any] = {"memory": memory, "timeout_seconds": timeout_seconds, "quiet": True}
    try:
        run = ranks.run(and_arguments if arguments else function, world_size, backend="local", args=args, **options)
    except ranks.RanksError as error:
        if stub := _stub(error):
            raise stub.with_traceback(own_frames(stub)) from None
        # The message of a deadlock is complete. An error that a rank raised keeps its traceback.
        raise _failed(error, f"{name} on {world_size} ranks") from error.__cause__
    if run.trace.findings:
        raise _found(run.trace, f"{name} on {world_size} ranks")
    return run


def expect_messages(
    trace: object,
    *,
    name: str = "",
    edges: Iterable[tuple[int, int]] | None = None,
    collectives: Mapping[str, int] | None = {},
    **bounds: float | Sequence[float],
) -> None:
    """Check what the ranks of a run sent.

    A keyword of ``bounds`` is ``messages``, ``sent_bytes`` or ``received_bytes`` (of each rank: one number for all, or
    one a rank), ``total_messages``, ``total_bytes`` or ``rounds``, exact, or with ``at_most_`` or ``at_least_`` before
    it. Rounds are the length of the run if each message took one round, and a rank had one link out and one in.
    ``edges`` are the pairs (from, to) that may carry messages. ``collectives`` says how often each rank calls each
    collective of the library: none, unless named; ``None`` allows all. A trace with findings (a send that nobody
    received, an irecv that nobody waited for) never passes.

    A count below an exact or a least figure raises ImpossibleCountError: something was not sent, or was sent by other
    means. Other differences raise CheckError with the rank, and the line that sent most. An unknown keyword raises
    TypeError.

    Example:
        >>> from mlsys_labkit.ranks import Event, RunTrace
        >>> there = Event(0, "send", "send", bytes=40, peers=(1,), key="0>1 #0")
        >>> here = Event(1, "recv", "recv", bytes=40, peers=(0,), key="0>1 #0")
        >>> expect_messages(RunTrace(2, (there, here), "local"), messages=[1, 0], total_bytes=40, edges=[(0, 1)])

    Reference: R. Thakur, R. Rabenseifner and W. Gropp, "Optimization of Collective Communication Operations in MPICH",
    IJHPCA 19(1), 2005: messages and bytes of each algorithm.
    """
    asked = read_bounds("expect_messages", "figure", _FIGURES, bounds)
    run = require_type(
        trace,
        RunTrace,
        f"{name or 'the trace'}: not a trace of ranks",
        expected="run.trace of lk.ranks.run(...)",
        next_step="pass the trace, not the run or its values",
    )
    head = name or f"{run.world_size} ranks"
    if run.findings:
        raise _found(run, head)
    if collectives is not None:
        _judge_collectives(run, head, collectives)
    if edges is not None:
        _judge_edges(run, head, frozenset(edges))
    for how, figure, wanted in sorted(asked, key=lambda one: one[0] == "at_most"):
        _judge(run, head, how, figure, wanted)
    note_pass(f"messages of {head}")


def _stub(error: BaseException | None) -> NotImplementedError | None:
    """Return the stub's own error from under the RankError, or None."""
    while error is not None:
        if isinstance(error, NotImplementedError):
            return error
        error = error.__cause__
    return None


def _failed(error: Exception, head: str) -> CheckError:
    from mlsys_labkit.ranks import DeadlockError, MismatchError

    if isinstance(error, DeadlockError):
        what, step = "deadlock", "who receives while the others send? look at who waits for whom"
    elif isinstance(error, MismatchError):
        what, step = "the two ends of a message disagree", "compare shape, dtype and partner of both calls"
    else:
        what, step = "a rank failed", "run it by itself with lk.ranks.run(function, p, backend='local', args=...)"
    told = str(error).strip().removeprefix("deadlock: ")
    return failure(f"{head}: {what}", actual=told.replace("\n", "\n" + " " * 10), next_step=step)


def _judge(run: RunTrace, head: str, how: str, figure: str, wanted: float | Sequence[float]) -> None:
    for rank, came, limit in _amounts(run, figure, wanted):
        where = f"{head}: {_FIGURES[figure]}" + (f" by rank {rank}" if rank is not None else "")
        where = where.replace("received by", "received on")
        if how != "at_most" and came < limit:
            raise too_few(
                f"{where}: fewer than this work needs",
                came,
                ("at least " if how else "") + count(limit),
                "something was not sent, or reached its rank by another way than a message",
                "does every rank take part, and is the last, shorter chunk sent as well?",
            )
        if how != "at_least" and came > limit:
            line = _heaviest(run, rank, "recv" if figure == "received_bytes" else "send")
            raise off(where, came, limit, ("at most " if how else "") + count(limit), Excess("", line, _NEXT[figure]))


def _amounts(run: RunTrace, figure: str, wanted: float | Sequence[float]) -> list[tuple[int | None, float, float]]:
    """Return (rank, actual, wanted) for each rank; rank None for a figure of all ranks together."""
    each = range(run.world_size)
    if figure in ("total_messages", "total_bytes", "rounds"):
        if isinstance(wanted, Sequence):
            raise TypeError(f"{figure} is one number for all ranks, got {wanted!r}")
        if figure == "rounds":
            return [(None, _rounds(run), wanted)]
        one = run.messages if figure == "total_messages" else run.sent_bytes
        return [(None, sum(map(one, each)), wanted)]
    limits = list(wanted) if isinstance(wanted, Sequence) else [wanted] * run.world_size
    if len(limits) != run.world_size:
        raise TypeError(f"{figure} wants one number for each of {run.world_size} ranks, got {len(limits)}")
    amount = {"messages": run.messages, "sent_bytes": run.sent_bytes, "received_bytes": run.received_bytes}[figure]
    return [(rank, amount(rank), limit) for rank, limit in zip(each, limits, strict=True)]


def _rounds(run: RunTrace) -> float:
    from mlsys_labkit.ranks import Link, replay

    clocked = replay(run, Link(latency_seconds=1), compute_seconds=lambda event: 0)
    return float(clocked.seconds or 0)


def _heaviest(run: RunTrace, rank: int | None, kind: str) -> str:
    """Describe the line whose messages carry most bytes."""
    lines: Counter[str] = Counter()
    for event in run.events:
        if event.kind == kind and rank in (None, event.rank):
            lines[_place(event)] += max(1, event.bytes)
    place = next((place for place, _ in lines.most_common(1)), "")
    return f"most by {place}" if place else ""


def _place(event: Event) -> str:
    return f"line {event.line[1]}: {event.source.strip()}" if event.line else event.source.strip()


def _judge_collectives(run: RunTrace, head: str, allowed: Mapping[str, int]) -> None:
    for rank in range(run.world_size):
        calls = dict(run.collectives(rank))
        if calls == {name: times for name, times in allowed.items() if times}:
            continue
        unasked = next((e for e in run.of(rank, "collective") if calls[e.name] > allowed.get(e.name, 0)), None)
        raise failure(
            f"{head}: collectives of the library called by rank {rank}",
            expected=_calls(allowed),
            actual=_calls(calls),
            meaning=_place(unasked) if unasked else "",
            next_step="call each as often as asked for" if allowed else "write it with send and receive",
        )


def _calls(calls: Mapping[str, int]) -> str:
    return ", ".join(f"{name} x{times}" for name, times in sorted(calls.items()) if times) or "none"


def _judge_edges(run: RunTrace, head: str, allowed: frozenset[tuple[int, int]]) -> None:
    for event in run.events:
        if event.kind == "send" and (event.rank, event.peers[0]) not in allowed:
            to = sorted(destination for source, destination in allowed if source == event.rank)
            raise failure(
                f"{head}: rank {event.rank} sent to rank {event.peers[0]}",
                expected=f"messages to {' or '.join(map(str, to))}" if to else "no message from it",
                actual=f"{event.name} of {count(event.bytes)} bytes to {event.peers[0]}",
                meaning=_place(event),
                next_step="draw who sends to whom: run.trace.edges lists it",
            )


def _found(run: RunTrace, head: str) -> CheckError:
    first, others = run.findings[0], len(run.findings) - 1
    return failure(
        f"{head}: the run ended with something open",
        expected="every send received, every request waited for",
        actual=first + (f" (and {others} more)" if others else ""),
        next_step="wait() for what isend, irecv and async_op=True return, before you use the tensor",
    )
