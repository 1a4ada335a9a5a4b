"""Formulas for the traffic and time of a collective. The messages themselves are in ``patterns``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from mlsys_labkit.errors import RanksError
from mlsys_labkit.ranks.simulation.patterns import ALGORITHMS, split_sizes
from mlsys_labkit.ranks.trace.events import Event
from mlsys_labkit.work.network_link import Link, Number


@dataclass(frozen=True)
class Traffic:
    """Messages and elements that each rank sends."""

    messages: tuple[int, ...]
    elements: tuple[int, ...]


def collective_traffic(collective: str, algorithm: str, ranks: int, elements: int) -> Traffic:
    """Return the messages and elements that each rank sends in a collective with root 0. Uneven sizes are exact.

    ``elements`` is the size of the tensor (all_gather: of the output; reduce_scatter, all_to_all: of the input), cut
    as ``torch.tensor_split`` cuts it. Where p divides it, a ring all-reduce sends 2(p-1)/p of it from every rank.

    Raises RanksError for no ranks, and a collective or algorithm that is not in ``patterns.ALGORITHMS``.

    Example:
        >>> collective_traffic("all_reduce", "ring", ranks=4, elements=100)
        Traffic(messages=(6, 6, 6, 6), elements=(150, 150, 150, 150))
        >>> collective_traffic("all_reduce", "ring", ranks=4, elements=10).elements  # chunks of 3, 3, 2 and 2
        (14, 15, 16, 15)

    Reference: Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH", 2005.
    """
    _known(collective, algorithm, ranks)
    parts = split_sizes(elements, ranks)
    sent = [_sent(collective, algorithm, rank, ranks, parts) for rank in range(ranks)]
    return Traffic(tuple(messages for messages, _ in sent), tuple(size for _, size in sent))


def collective_seconds(collective: str, algorithm: str, ranks: int, tensor_bytes: Number, link: Link) -> Number:
    """Return the seconds of a collective by formula: links of latency alpha and bandwidth B, a port per rank each way.

    For a tensor whose size p divides; exact if ``link`` and ``tensor_bytes`` are. Adding up is not counted.

    Raises RanksError for no ranks, and a collective or algorithm that is not in ``patterns.ALGORITHMS``.

    Example:
        >>> link = Link(latency_seconds=5e-6, bytes_per_second=100e9)
        >>> small, large = 4096, 400_000_000
        >>> [collective_seconds("all_reduce", "tree", 16, size, link) < collective_seconds(
        ...     "all_reduce", "ring", 16, size, link) for size in (small, large)]
        [True, False]

    Reference: Hockney, 1994; Thakur, Rabenseifner and Gropp, 2005, table of costs.
    """
    _known(collective, algorithm, ranks)
    messages, tensors = _rounds(collective, algorithm, ranks)
    return messages * link.latency_seconds + Link(0, link.bytes_per_second).seconds(tensors * tensor_bytes)


def bus_factor(collective: str, ranks: int) -> Fraction:
    """Return nccl-tests' factor of bytes over seconds that makes the result comparable with a link's bandwidth.

    Raises RanksError for no ranks, and a collective that nccl-tests does not have.

    Example:
        >>> bus_factor("all_reduce", 8), bus_factor("all_gather", 8), bus_factor("broadcast", 8)
        (Fraction(7, 4), Fraction(7, 8), Fraction(1, 1))

    Reference: NVIDIA, nccl-tests, doc/PERFORMANCE.md, "Bus bandwidth".
    """
    if collective not in _TENSORS_A_LINK:
        raise RanksError(f"no bus bandwidth for {collective!r}; expected one of {', '.join(_TENSORS_A_LINK)}")
    _some(ranks)
    return _TENSORS_A_LINK[collective](ranks)


def bus_bandwidth(event: Event, seconds: Number | None = None) -> float:
    """Return the bus bandwidth of a collective or a message in B/s; ``seconds`` replaces the time of the event.

    An event's time starts when its own rank calls. Therefore only the event of the last rank to call measures the
    links without the time that others waited.

    Raises RanksError for an event that took no time, and as ``bus_factor`` does.

    Example:
        >>> event = Event(0, "collective", "all_reduce", bytes=4000, group=(0, 1, 2, 3), start_seconds=0, end_seconds=2)
        >>> bus_bandwidth(event)  # 4000 B / 2 s * 2(p-1)/p
        3000.0

    Reference: NVIDIA, nccl-tests, doc/PERFORMANCE.md.
    """
    time = event.seconds if seconds is None else seconds
    if not time or time <= 0:
        raise RanksError(f"{event.name} of rank {event.rank} has no time of its own; give the seconds until its wait")
    factor = bus_factor(event.name, len(event.group)) if event.kind == "collective" else 1
    return float(event.bytes * factor / Fraction(time))


def _some(ranks: int) -> None:
    if ranks < 1:
        raise RanksError(f"expected 1 rank or more, got {ranks}")


def _known(collective: str, algorithm: str, ranks: int) -> None:
    _some(ranks)
    if algorithm not in ALGORITHMS.get(collective, {}):
        offered = "; ".join(f"{name} by {', '.join(ways)}" for name, ways in ALGORITHMS.items())
        raise RanksError(f"no formula for {collective!r} by {algorithm!r}; there are {offered}")


def _log(p: int) -> int:
    return (p - 1).bit_length()  # log2, rounded up


# An all-reduce is two halves, one after the other.
_HALVES = {
    **{name: (("reduce_scatter", name), ("all_gather", name)) for name in ("ring", "doubling", "direct")},
    "tree": (("reduce", "tree"), ("broadcast", "tree")),
    "star": (("reduce", "direct"), ("broadcast", "direct")),
}


def _sent(collective: str, algorithm: str, r: int, p: int, parts: tuple[int, ...]) -> tuple[int, int]:
    """Return (messages, elements) that rank ``r`` of ``p`` sends of a tensor cut into ``parts``; the root is rank 0."""
    n, others, log = sum(parts), sum(parts) - parts[r], _log(p)
    match collective, algorithm:
        case "all_reduce", _:
            halves = [_sent(*half, r, p, parts) for half in _HALVES[algorithm]]
            return sum(half[0] for half in halves), sum(half[1] for half in halves)
        case "broadcast", "tree":  # rank r receives in the round of its highest bit, and sends in each round after
            children = max(0, (p - 1 - r).bit_length() - r.bit_length())
            return children, children * n
        case "broadcast", "ring":
            return (p, n) if r < p - 1 else (0, 0)
        case "broadcast", "direct":
            return (p - 1, (p - 1) * n) if r == 0 else (0, 0)
        case "reduce", "ring":
            return (p, n) if r > 0 else (0, 0)
        case "reduce", _:
            return (1, n) if r > 0 else (0, 0)
        case "scatter", _:
            return (p - 1, others) if r == 0 else (0, 0)
        case "gather", _:
            return (1, parts[r]) if r > 0 else (0, 0)
        case "all_gather", "ring":  # passes on all chunks but its neighbour's own
            return p - 1, n - parts[(r + 1) % p]
        case "all_gather", "direct":
            return p - 1, (p - 1) * parts[r]
        case "all_gather", "doubling":  # the chunk k places on, in every round that moves more than k chunks
            strides = [1 << bit for bit in range(log)]
            return log, sum(parts[(r + k) % p] for d in strides for k in range(min(d, p - d)))
        case "barrier", _:
            return log, 0
        case _, "doubling":
            return log, others
    return p - 1, others  # reduce_scatter and all_to_all: each other rank gets its part, in any order


def _rounds(collective: str, algorithm: str, p: int) -> tuple[int, Fraction]:
    """Return (messages, whole tensors) that follow one another on the busiest port."""
    part, log = Fraction(p - 1, p), _log(p)
    match collective, algorithm:
        case "all_reduce", _:
            halves = [_rounds(*half, p) for half in _HALVES[algorithm]]
            return sum(half[0] for half in halves), sum((half[1] for half in halves), Fraction(0))
        case "barrier", _:
            return log, Fraction(0)
        case _, "tree":
            return log, Fraction(log)
        case _, "doubling":
            return log, part
        case "broadcast" | "reduce", "ring":  # p chunks, each a hop behind the one before
            return 2 * (p - 1), 2 * part
        case "broadcast" | "reduce", "direct":
            return p - 1, Fraction(p - 1)
        case "all_to_all", "pairwise" if p % 2 and p > 1:  # with odd p one rank rests in every round
            return p, Fraction(1)
    return p - 1, part


_TENSORS_A_LINK: dict[str, Callable[[int], Fraction]] = {
    "all_reduce": lambda p: Fraction(2 * (p - 1), p),
    **dict.fromkeys(("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"), lambda p: Fraction(p - 1, p)),
    **dict.fromkeys(("broadcast", "reduce"), lambda p: Fraction(1)),
}
