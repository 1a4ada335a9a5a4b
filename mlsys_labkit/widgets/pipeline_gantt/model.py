"""A pipeline schedule as bars in time, its bubble and its live activations; the twin of ``model.js``.

The functions are thin wrappers of ``mlsys_labkit.ranks``. A step is (kind, micro-batch, chunk), a bar (rank, kind,
label, start, end). Times are in whatever unit ``forward`` and ``backward`` have; a split backward gives half of it to
the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlsys_labkit.ranks.simulation import schedules
from mlsys_labkit.ranks.simulation.clock import simulate

Bar = tuple[int, str, str, float, float]


def steps(name: str, p: int, m: int, v: int) -> list[list[tuple[str, int, int]]]:
    """Return the steps of each stage in order."""
    plan = schedules.schedule(name, p, m, chunks=v)
    return [[(step.kind, step.micro_batch, step.chunk) for step in row] for row in plan.steps]


def bars(name: str, p: int, m: int, v: int, forward: float, backward: float) -> list[Bar]:
    """Return the times of each step, with messages that cost nothing.

    Example:
        >>> bars("gpipe", 2, 1, 1, 1.0, 2.0)
        [(0, 'F', '0', 0.0, 1.0), (0, 'B', '0', 4.0, 6.0), (1, 'F', '0', 1.0, 2.0), (1, 'B', '0', 2.0, 4.0)]
    """
    plan = schedules.schedule(name, p, m, chunks=v)
    trace = simulate(schedules.pipeline_programs(plan, forward_seconds=forward, backward_seconds=backward))
    computes: list[Any] = [event for event in trace if event.kind == "compute"]
    return [(e.rank, e.name[0], e.name[1:], float(e.start_seconds), float(e.end_seconds)) for e in computes]


def bubble(name: str, p: int, m: int, v: int, forward: float, backward: float) -> float:
    """Return the bubble fraction by formula."""
    return float(schedules.bubble(name, p, m, chunks=v, forward_seconds=forward, backward_seconds=backward))


def idle(drawn: Sequence[Bar], p: int, length: float) -> float:
    """Return the part of the time of ``p`` ranks, ``length`` each, that no bar fills."""
    return 1 - sum(end - start for *_, start, end in drawn) / (p * length)


def live(drawn: Sequence[Bar], rank: int) -> list[tuple[float, int]]:
    """Return (time, micro-batches whose activations the rank holds from then on), in order of time.

    A forward's activations are there from its start, and until the end of its backward, or of its weights' gradient.
    """
    last = "W" if any(bar[1] == "W" for bar in drawn) else "B"
    changes = [
        (bar[3], 1) if bar[1] == "F" else (bar[4], -1) for bar in drawn if bar[0] == rank and bar[1] in "F" + last
    ]
    held, out = 0, []
    for time, change in sorted(changes):
        held += change
        out.append((time, held))
    return out
