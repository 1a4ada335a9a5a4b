"""Rounds of a collective: messages, contributions held, counts and times; the twin of ``model.js``.

The functions are thin wrappers of ``mlsys_labkit.ranks``: a message is (source, destination, chunks, adds), and what a
rank holds of a chunk is a bit mask of the ranks whose contributions are in it.
"""

from __future__ import annotations

from mlsys_labkit.ranks import Link
from mlsys_labkit.ranks.simulation.patterns import ALGORITHMS, pattern
from mlsys_labkit.ranks.simulation.theory import collective_seconds, collective_traffic

COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "all_to_all")
Messages = list[tuple[int, int, list[int], bool]]


def ways(collective: str) -> list[str]:
    """Return the algorithms of a collective that the widget shows."""
    return [way for way in ALGORITHMS[collective] if way != "pairwise"]


def rounds(collective: str, algorithm: str, p: int) -> list[Messages]:
    """Return the messages of each round, among ranks 0 to p - 1 with root 0."""
    plan = pattern(collective, p, algorithm)
    return [[(m.source, m.destination, list(m.chunks), m.reduce) for m in step] for step in plan.rounds]


def held(collective: str, algorithm: str, p: int, step: int) -> list[list[int]]:
    """Return the contributions in each chunk of each rank after ``step`` rounds, as bit masks of ranks.

    Example:
        >>> held("all_reduce", "tree", 2, 0), held("all_reduce", "tree", 2, 2)
        ([[1], [2]], [[3], [3]])
    """
    plan = pattern(collective, p, algorithm)
    has = [[_at_first(collective, rank, chunk, p) for chunk in range(plan.chunks)] for rank in range(p)]
    for messages in plan.rounds[:step]:
        carried = [(m, [has[m.source][chunk] for chunk in m.chunks]) for m in messages]
        for m, masks in carried:
            for chunk, mask in zip(m.chunks, masks, strict=True):
                has[m.destination][chunk] = mask | (has[m.destination][chunk] if m.reduce else 0)
    return has


def _at_first(collective: str, rank: int, chunk: int, p: int) -> int:
    owners = {"broadcast": 0, "all_gather": chunk, "all_to_all": chunk // p}
    return (rank == owners.get(collective, rank)) << rank


def sent(collective: str, algorithm: str, p: int, step: int) -> list[list[int]]:
    """Return (messages, p-ths of the tensor) that each rank has sent after ``step`` rounds."""
    plan = pattern(collective, p, algorithm)
    each = p // plan.chunks or 1
    past = [m for messages in plan.rounds[:step] for m in messages]
    counts = ([m for m in past if m.source == rank] for rank in range(p))
    return [[len(own), each * sum(len(m.chunks) for m in own)] for own in counts]


def traffic(collective: str, algorithm: str, p: int) -> list[list[int]]:
    """Return (messages, p-ths of the tensor) that each rank sends in all, by formula."""
    theory = collective_traffic(collective, algorithm, p, p)
    return [list(pair) for pair in zip(theory.messages, theory.elements, strict=True)]


def seconds(collective: str, algorithm: str, p: int, size: float, latency: float, bandwidth: float) -> float:
    """Return the time in seconds for ``size`` bytes on links of this latency (s) and bandwidth (B/s), by formula."""
    return float(collective_seconds(collective, algorithm, p, float(size), Link(float(latency), float(bandwidth))))
