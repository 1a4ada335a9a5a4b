"""Deadlock detection: from the state of every rank, the ranks that can never go on, and a text that explains it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from mlsys_labkit.ranks.student_lines import Line, line_text


@dataclass(frozen=True)
class Waiting:
    """The communication that a rank waits for.

    Attributes:
        name: "send", "recv", "all_reduce", ...
        needs: ranks that have not done their part: not received, not sent, not called the collective. Empty: none is
            missing, the rank will go on.
        any_of: one of them is enough (a receive from any rank).
        line: where it waits. posted: where the call was made, if that is another line.
    """

    name: str
    needs: tuple[int, ...]
    any_of: bool = False
    tag: int = 0
    line: Line | None = None
    posted: Line | None = None


@dataclass(frozen=True)
class RankState:
    """The state of one rank; ``waiting`` where the state is "waiting"."""

    rank: int
    state: Literal["running", "waiting", "ended", "failed"]
    waiting: Waiting | None = None


def stuck(states: Iterable[RankState]) -> tuple[int, ...]:
    """Return the ranks that can never go on, whatever the others do from now on.

    A rank can go on if the ranks it needs can: those that run, and those that wait for ranks that can go on.

    Example:
        >>> states = [RankState(0, "waiting", Waiting("recv", (1,))), RankState(1, "waiting", Waiting("recv", (0,)))]
        >>> stuck(states), stuck([states[0], RankState(1, "running")])
        ((0, 1), ())

    Reference: K. M. Chandy, J. Misra and L. M. Haas, "Distributed Deadlock Detection", ACM TOCS 1(2), 1983.
    """
    known = {state.rank: state for state in states}
    able = {rank for rank, state in known.items() if state.state == "running"}
    waits = {rank: state.waiting for rank, state in known.items() if state.waiting and state.state == "waiting"}
    while more := {rank for rank, one in waits.items() if rank not in able and _may_go_on(one, able)}:
        able |= more
    return tuple(sorted(waits.keys() - able))


def _may_go_on(waiting: Waiting, able: set[int]) -> bool:
    if waiting.any_of:
        return not waiting.needs or any(rank in able for rank in waiting.needs)
    return all(rank in able for rank in waiting.needs)


def diagnosis(states: Sequence[RankState]) -> str:
    """Describe which rank waits for which, in which call and line, and a cycle if there is one; "" without deadlock.

    Example:
        >>> states = [RankState(0, "waiting", Waiting("recv", (1,), line=("ring.py", 3))), RankState(1, "ended")]
        >>> print(diagnosis(states))
        deadlock: rank 0 waits for rank 1, which has ended
          rank 0 waits for rank 1 to send (ring.py:3)
          rank 1 has ended and will never send

    Reference: as ``stuck``.
    """
    blocked = stuck(states)
    if not blocked:
        return ""
    known = {state.rank: state for state in states}
    waits = {rank: waiting for rank in blocked if (waiting := known[rank].waiting)}
    lines = [f"deadlock: {_headline(waits, known)}"]
    lines += [
        f"  rank {rank} {_sentence(rank, waiting)}{_tag_hint(rank, waiting, known)}" for rank, waiting in waits.items()
    ]
    missed = sorted({rank for waiting in waits.values() for rank in waiting.needs} - waits.keys())
    for rank in missed:
        if known[rank].state in ("ended", "failed"):
            wanted = {_will_never(waiting.name) for waiting in waits.values() if rank in waiting.needs}
            lines.append(f"  rank {rank} has {known[rank].state} and will never {' or '.join(sorted(wanted))}")
    return "\n".join(lines)


def _headline(waits: dict[int, Waiting], known: dict[int, RankState]) -> str:
    if cycle := _cycle(waits):
        if len(cycle) == 1:
            return f"rank {cycle[0]} waits for itself"
        if len(cycle) == 2:
            return f"ranks {cycle[0]} and {cycle[1]} wait for each other"
        ends = zip(cycle, [*cycle[1:], cycle[0]], strict=True)
        return "a cycle of ranks: " + ", ".join(f"{rank} waits for {other}" for rank, other in ends)
    for rank, waiting in waits.items():
        for other in waiting.needs:
            if known[other].state in ("ended", "failed"):
                return f"rank {rank} waits for rank {other}, which has {known[other].state}"
    return f"rank {next(iter(waits))} waits for a rank that cannot go on"


def _cycle(waits: dict[int, Waiting]) -> list[int]:
    """Return a shortest cycle of "waits for", from its lowest rank."""
    best: list[int] = []
    for start in waits:
        paths, seen = [[start]], {start}
        for path in paths:  # the list grows while it is read: breadth first
            needs = waits[path[-1]].needs
            if start in needs:
                best = path if not best or len(path) < len(best) else best
                break
            further = [other for other in needs if other in waits and other not in seen]
            seen.update(further)
            paths += [[*path, other] for other in further]
    return best


def _sentence(rank: int, waiting: Waiting) -> str:
    needs = waiting.needs
    some = f"ranks {_listed(needs)}" if len(needs) > 1 else "itself" if needs[0] == rank else f"rank {needs[0]}"
    if waiting.any_of:
        what = f"any of ranks {_listed(needs)} to send" if len(needs) > 1 else f"{some} to send"
    elif waiting.name in ("send", "recv"):
        what = f"{some} to {'receive' if waiting.name == 'send' else 'send'}"
    else:
        what = f"{some} to call {waiting.name}"
    tag = f" with tag {waiting.tag}" if waiting.tag else ""
    at = line_text(waiting.line)
    posted = (
        f"; the {waiting.name} is {line_text(waiting.posted)}" if waiting.posted not in (None, waiting.line) else ""
    )
    return f"waits for {what}{tag}" + (f" ({at}{posted})" if at else "")


def _tag_hint(rank: int, waiting: Waiting, known: dict[int, RankState]) -> str:
    """Return a hint if the other end waits with another tag; else ""."""
    counterpart = {"send": "recv", "recv": "send"}.get(waiting.name)
    for other in waiting.needs:
        theirs = known[other].waiting
        if theirs and theirs.name == counterpart and rank in theirs.needs and theirs.tag != waiting.tag:
            return f"; the {theirs.name} of rank {other} has tag {theirs.tag}, not {waiting.tag}"
    return ""


def _will_never(name: str) -> str:
    return {"send": "receive", "recv": "send"}.get(name, f"call {name}")


def _listed(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks[:-1])) + f" and {ranks[-1]}"
