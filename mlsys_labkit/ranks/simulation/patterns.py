"""Collectives as data: rounds of messages, and which chunks each message carries.

A tensor is cut as ``torch.tensor_split`` cuts it, so any number of ranks and any size will do. In a round every rank
sends at most one message and receives at most one, which is what one full-duplex port per rank can carry at once.

Three rules produce the table. A broadcast run backwards, with additions instead of copies, is a reduce. An all-gather
run backwards is a reduce-scatter (that of the ring keeps the direction of the ring). A reduce-scatter followed by an
all-gather is an all-reduce.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from mlsys_labkit.errors import RanksError


@dataclass(frozen=True)
class Message:
    """``source`` sends chunks to ``destination``, which adds them to its own (``reduce``) or keeps them as they are."""

    source: int
    destination: int
    chunks: tuple[int, ...]
    reduce: bool = False


Round = tuple[Message, ...]


@dataclass(frozen=True)
class Pattern:
    """A collective as rounds of messages among ``ranks`` ranks.

    Attributes:
        collective: "all_reduce", "broadcast", ...
        algorithm: "ring", "tree", "doubling", "direct", "star" or "pairwise".
        ranks: number of ranks, p.
        chunks: into how many chunks the tensor is cut; for all_to_all p chunks per rank, and chunk ``p*s + d`` is what
            rank s has for rank d.
        rounds: messages that may travel at the same time, round after round.
    """

    collective: str
    algorithm: str
    ranks: int
    chunks: int
    rounds: tuple[Round, ...]

    def sizes(self, elements: int) -> tuple[int, ...]:
        """Return the size of each chunk of a tensor of ``elements`` (for all_to_all: of the input of one rank)."""
        if self.collective == "all_to_all":
            return split_sizes(elements, self.ranks) * self.ranks
        return split_sizes(elements, self.chunks)

    def messages(self, rank: int) -> int:
        """Count the messages that ``rank`` sends."""
        return sum(message.source == rank for step in self.rounds for message in step)

    def sent(self, rank: int, elements: int) -> int:
        """Count the elements that ``rank`` sends."""
        sizes = self.sizes(elements)
        messages = (message for step in self.rounds for message in step if message.source == rank)
        return sum(sizes[chunk] for message in messages for chunk in message.chunks)


def split_sizes(elements: int, parts: int) -> tuple[int, ...]:
    """Return the sizes of ``torch.tensor_split(tensor, parts)``: a remainder goes to the first parts, one each.

    Example:
        >>> split_sizes(10, 4)
        (3, 3, 2, 2)
    """
    each, over = divmod(elements, parts)
    return tuple(each + (part < over) for part in range(parts))


def pattern(collective: str, ranks: int, algorithm: str = "", *, root: int = 0) -> Pattern:
    """Return the messages of a collective, for any number of ranks.

    ``algorithm`` is one of ``ALGORITHMS[collective]``, the first of them if empty. ``root`` matters to broadcast,
    reduce, gather, scatter, and to an all_reduce by tree or star. Raises RanksError for an unknown name.

    Example:
        >>> ring = pattern("all_reduce", 4, "ring")
        >>> len(ring.rounds), ring.messages(0), ring.sent(0, elements=100)
        (6, 6, 150)

    Reference: Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH", 2005;
    "doubling" is Bruck et al., "Efficient Algorithms for All-to-All Communications", 1997: for a power of two it has
    the counts of recursive halving and doubling.
    """
    offered = ALGORITHMS.get(collective)
    if offered is None:
        raise RanksError(f"no pattern for the collective {collective!r}; expected one of {', '.join(ALGORITHMS)}")
    if algorithm and algorithm not in offered:
        raise RanksError(f"{collective} goes by {', '.join(offered)}, got {algorithm!r}")
    if ranks < 1 or not 0 <= root < ranks:
        raise RanksError(f"expected at least 1 rank and a root among them, got {ranks} ranks and root {root}")
    return _build(collective, algorithm or next(iter(offered)), ranks, root)


@cache
def _build(collective: str, algorithm: str, ranks: int, root: int) -> Pattern:
    rounds = tuple(step for step in ALGORITHMS[collective][algorithm](ranks) if step)
    if root:
        rounds = tuple(tuple(_shifted(message, root, ranks, collective) for message in step) for step in rounds)
    whole = algorithm in ("tree", "star") or (algorithm == "direct" and collective in ("broadcast", "reduce"))
    chunks = 1 if whole else ranks**2 if collective == "all_to_all" else ranks
    return Pattern(collective, algorithm, ranks, chunks, rounds)


def _shifted(message: Message, root: int, p: int, collective: str) -> Message:
    """Return the message with rank ``root`` as the root. The parts of scatter and gather belong to ranks."""
    moved = replace(message, source=(message.source + root) % p, destination=(message.destination + root) % p)
    if collective in ("scatter", "gather"):
        return replace(moved, chunks=tuple((chunk + root) % p for chunk in message.chunks))
    return moved


Rounds = Sequence[Round]
Build = Callable[[int], Rounds]  # of the number of ranks


def _strides(p: int) -> list[int]:
    return [1 << bit for bit in range((p - 1).bit_length())]


def _broadcast_tree(p: int) -> Rounds:  # each rank that has it sends it to one more: 1, 2, 4, ... ranks
    return [tuple(Message(r, r + stride, (0,)) for r in range(stride) if r + stride < p) for stride in _strides(p)]


def _broadcast_ring(p: int) -> Rounds:  # p chunks in a pipeline along a chain: chunk c is one hop behind chunk c - 1
    hops = [[(r, step - r) for r in range(p - 1) if 0 <= step - r < p] for step in range(2 * p - 2)]
    return [tuple(Message(r, r + 1, (chunk,)) for r, chunk in step) for step in hops]


def _broadcast_direct(p: int) -> Rounds:
    return [(Message(0, r, (0,)),) for r in range(1, p)]


def _scatter_direct(p: int) -> Rounds:
    return [(Message(0, r, (r,)),) for r in range(1, p)]


def _gather_ring(p: int) -> Rounds:  # each passes on what came last
    return [tuple(Message(r, (r + 1) % p, ((r - step) % p,)) for r in range(p)) for step in range(p - 1)]


def _reduce_ring(p: int) -> Rounds:  # the same way round: chunk c starts at rank c + 1 and arrives at rank c complete
    hops = [[(r, (r - step - 1) % p) for r in range(p)] for step in range(p - 1)]
    return [tuple(Message(r, (r + 1) % p, (chunk,), reduce=True) for r, chunk in step) for step in hops]


def _gather_doubling(p: int) -> Rounds:  # after strides 1, 2, 4, ... each holds so many chunks, from its own upwards
    return [
        tuple(Message(r, (r - d) % p, tuple((r + k) % p for k in range(min(d, p - d)))) for r in range(p))
        for d in _strides(p)
    ]


def _gather_direct(p: int) -> Rounds:  # everyone's own chunk to everyone, from the next on, so that ports stay free
    return [tuple(Message(r, (r + d) % p, (r,)) for r in range(p)) for d in range(1, p)]


def _exchange_direct(p: int) -> Rounds:
    return [tuple(Message(r, (r + d) % p, (p * r + (r + d) % p,)) for r in range(p)) for d in range(1, p)]


def _exchange_pairwise(p: int) -> Rounds:
    """Return a round-robin tournament: in a round, pairs of ranks exchange. With odd p one rank rests."""
    seats = p + p % 2
    rounds = []
    for turn in range(seats - 1):
        meets = {rank: (turn - rank) % (seats - 1) for rank in range(seats - 1)}
        alone = next(rank for rank, other in meets.items() if rank == other)
        meets |= {alone: seats - 1, seats - 1: alone}
        pairs = sorted((a, b) for a, b in meets.items() if a < p and b < p)
        rounds.append(tuple(Message(a, b, (p * a + b,)) for a, b in pairs))
    return rounds


_BROADCAST: dict[str, Build] = {"tree": _broadcast_tree, "ring": _broadcast_ring, "direct": _broadcast_direct}
_GATHER: dict[str, Build] = {"ring": _gather_ring, "doubling": _gather_doubling, "direct": _gather_direct}


def _backwards(build: Build, *, reduce: bool = True) -> Build:
    """Send every message in the other direction, last round first: a broadcast becomes a reduction."""
    return lambda p: [
        tuple(Message(m.destination, m.source, m.chunks, reduce) for m in step) for step in reversed(build(p))
    ]


def _in_turn(*parts: Build) -> Build:
    return lambda p: [step for part in parts for step in part(p)]


_SCATTER = {name: _backwards(build) for name, build in _GATHER.items()} | {"ring": _reduce_ring}
_REDUCE = {name: _backwards(build) for name, build in _BROADCAST.items()}

ALGORITHMS: dict[str, dict[str, Build]] = {
    "all_reduce": {
        **{name: _in_turn(_SCATTER[name], _GATHER[name]) for name in _GATHER},
        "tree": _in_turn(_REDUCE["tree"], _BROADCAST["tree"]),
        "star": _in_turn(_REDUCE["direct"], _BROADCAST["direct"]),
    },
    "all_gather": _GATHER,
    "reduce_scatter": _SCATTER,
    "broadcast": _BROADCAST,
    "reduce": _REDUCE,
    "all_to_all": {"direct": _exchange_direct, "pairwise": _exchange_pairwise},
    "scatter": {"direct": _scatter_direct},
    "gather": {"direct": _backwards(_scatter_direct, reduce=False)},
    "barrier": {"doubling": _gather_doubling},
}
