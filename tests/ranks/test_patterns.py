"""Each pattern does what its name says: chunks as sets of contributions, moved message by message."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from mlsys_labkit.ranks import Link, RanksError, bus_factor, collective_seconds, collective_traffic, pattern
from mlsys_labkit.ranks.simulation.patterns import ALGORITHMS, Pattern, split_sizes
from mlsys_labkit.ranks.simulation.theory import bus_bandwidth
from mlsys_labkit.ranks.trace.events import Event

ALL = [(collective, algorithm) for collective, ways in ALGORITHMS.items() for algorithm in ways]
ROOTED = ("broadcast", "reduce", "scatter", "gather")

Held = list[dict[int, frozenset[int]]]  # rank -> chunk -> whose contributions are in it


def begin(plan: Pattern, root: int) -> Held:
    """Return what each rank holds before: MPI's definition of the collective, in sets."""
    p, chunks = plan.ranks, range(plan.chunks)
    own = {
        "broadcast": lambda r: dict.fromkeys(chunks, frozenset([r])) if r == root else {},
        "scatter": lambda r: dict.fromkeys(chunks, frozenset([r])) if r == root else {},
        "gather": lambda r: {r: frozenset([r])},
        "all_gather": lambda r: {r: frozenset([r])},
        "barrier": lambda r: {r: frozenset([r])},
        "all_to_all": lambda r: {p * r + d: frozenset([r]) for d in range(p)},
    }.get(plan.collective, lambda r: dict.fromkeys(chunks, frozenset([r])))
    return [own(rank) for rank in range(p)]


def wanted(plan: Pattern, root: int) -> list[tuple[int, int, frozenset[int]]]:
    """Return the (rank, chunk, contributions) that must be there at the end."""
    p, chunks, everyone = plan.ranks, range(plan.chunks), frozenset(range(plan.ranks))
    match plan.collective:
        case "broadcast":
            return [(r, c, frozenset([root])) for r in range(p) for c in chunks]
        case "reduce":
            return [(root, c, everyone) for c in chunks]
        case "scatter":
            return [(r, r, frozenset([root])) for r in range(p)]
        case "gather":
            return [(root, c, frozenset([c])) for c in chunks]
        case "all_gather" | "barrier":
            return [(r, c, frozenset([c])) for r in range(p) for c in range(p)]
        case "reduce_scatter":
            return [(r, r, everyone) for r in range(p)]
        case "all_to_all":
            return [(d, p * s + d, frozenset([s])) for s in range(p) for d in range(p)]
    return [(r, c, everyone) for r in range(p) for c in chunks]


def play(plan: Pattern, held: Held) -> Held:
    for step in plan.rounds:
        assert len({m.source for m in step}) == len({m.destination for m in step}) == len(step), "one port each way"
        sent = [(m, [held[m.source][chunk] for chunk in m.chunks]) for m in step]  # a KeyError: it has not got it
        for message, values in sent:
            assert message.source != message.destination
            mine = held[message.destination]
            for chunk, value in zip(message.chunks, values, strict=True):
                if message.reduce:
                    assert not mine[chunk] & value, f"added twice: {message}"
                    mine[chunk] |= value
                else:
                    mine[chunk] = value
    return held


@pytest.mark.parametrize(("collective", "algorithm"), ALL)
def test_pattern_does_what_its_name_says(collective, algorithm):
    for p in range(1, 17):
        for root in {0, p // 2, p - 1} if collective in (*ROOTED, "all_reduce") else {0}:
            plan = pattern(collective, p, algorithm, root=root)
            after = play(plan, begin(plan, root))
            for rank, chunk, contributions in wanted(plan, root):
                assert after[rank][chunk] == contributions, (plan.ranks, root, rank, chunk)


@pytest.mark.parametrize(("collective", "algorithm"), ALL)
def test_messages_and_bytes_of_a_rank_are_those_of_theory(collective, algorithm):
    for p in range(1, 10):
        for elements in (0, 1, p - 1, p, 3 * p, 3 * p + 1, 8 * p - 1, 1000):
            plan, theory = pattern(collective, p, algorithm), collective_traffic(collective, algorithm, p, elements)
            assert tuple(map(plan.messages, range(p))) == theory.messages
            if collective != "barrier":
                assert tuple(plan.sent(rank, elements) for rank in range(p)) == theory.elements


@given(st.integers(2, 64), st.integers(1, 50))
def test_ring_all_reduce_sends_twice_p_minus_1_over_p_of_the_tensor(p, each):
    n = p * each
    assert collective_traffic("all_reduce", "ring", p, n).elements == (2 * (p - 1) * n // p,) * p
    assert bus_factor("all_reduce", p) * n == 2 * (p - 1) * n // p


@given(st.integers(1, 64), st.integers(0, 1000), st.sampled_from([pair for pair in ALL if pair[0] != "all_reduce"]))
def test_patterns_send_no_chunk_twice_to_a_rank(p, n, pair):
    """All but the all-reduce are optimal in total: what a rank lacks comes once."""
    lacks = {
        "broadcast": (p - 1) * n,
        "reduce": (p - 1) * n,
        "scatter": n - split_sizes(n, p)[0],
        "gather": n - split_sizes(n, p)[0],
        "barrier": 0,
    }.get(pair[0], (p - 1) * n)
    assert sum(collective_traffic(*pair, p, n).elements) == lacks


def test_chunks_are_those_of_torch():
    torch = pytest.importorskip("torch")
    for n in (0, 1, 7, 12, 100):
        for p in (1, 2, 3, 7, 8):
            assert split_sizes(n, p) == tuple(len(part) for part in torch.tensor_split(torch.zeros(n), p))


def test_rounds_are_few_where_distances_double():
    for p in range(2, 65):
        for collective in ("all_gather", "broadcast"):
            algorithm = "doubling" if collective == "all_gather" else "tree"
            assert (
                2 ** (len(pattern(collective, p, algorithm).rounds) - 1)
                < p
                <= 2 ** len(pattern(collective, p, algorithm).rounds)
            )


def test_tree_beats_ring_for_small_tensors_and_loses_for_large_ones():
    """Equal where 2 log2 p (a + n/B) = 2(p-1)(a + n/(pB)); solved for n with p = 8, a = 1 s, B = 1 B/s: n = 32/17."""
    link, even = Link(1, 1), Fraction(32, 17)
    time = {way: collective_seconds("all_reduce", way, 8, even, link) for way in ("ring", "tree")}
    assert time["ring"] == time["tree"]
    for n, winner in ((even - 1, "tree"), (even + 1, "ring")):
        assert min(("ring", "tree"), key=lambda way: collective_seconds("all_reduce", way, 8, n, link)) == winner


def test_bus_bandwidth_is_that_of_nccl_tests():
    """The table of doc/PERFORMANCE.md, for 8 ranks."""
    table = {"all_reduce": 14 / 8, "reduce_scatter": 7 / 8, "all_gather": 7 / 8, "broadcast": 1, "reduce": 1}
    for name, factor in table.items():
        event = Event(0, "collective", name, bytes=800, group=tuple(range(8)), start_seconds=1.0, end_seconds=3.0)
        assert bus_bandwidth(event) == 400 * factor
        assert bus_bandwidth(event, seconds=4) == 200 * factor
    with pytest.raises(RanksError, match="no time of its own"):
        bus_bandwidth(Event(0, "collective", "all_reduce", bytes=8, group=(0, 1)))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: pattern("all_reduced", 4), "no pattern for the collective 'all_reduced'"),
        (lambda: pattern("all_reduce", 4, "rings"), "all_reduce goes by ring, doubling, direct, tree, star"),
        (lambda: pattern("broadcast", 4, root=4), "got 4 ranks and root 4"),
        (lambda: pattern("broadcast", 0), "at least 1 rank"),
        (lambda: collective_traffic("all_reduce", "rings", 4, 8), "no formula for 'all_reduce' by 'rings'"),
        (lambda: collective_traffic("all_reduce", "ring", 0, 8), "expected 1 rank or more, got 0"),
        (lambda: bus_factor("all_reduce", 0), "expected 1 rank or more, got 0"),
        (lambda: bus_factor("barrier", 4), "no bus bandwidth for 'barrier'"),
    ],
)
def test_pattern_and_theory_refuse_unknown_names(call, says):
    with pytest.raises(RanksError, match=says):
        call()


def test_a_broadcast_down_a_ring_is_a_pipeline():
    """No rank waits longer than its distance: chunk c reaches rank r in round r + c."""
    plan = pattern("broadcast", 5, "ring")
    arrivals = {(m.destination, c): at for at, step in enumerate(plan.rounds) for m in step for c in m.chunks}
    assert arrivals == {(rank, chunk): rank - 1 + chunk for rank in range(1, 5) for chunk in range(5)}
    assert all(later > earlier for earlier, later in pairwise(arrivals[4, chunk] for chunk in range(5)))
