"""The diagnosis of a deadlock, against graph theory and against sentences written by hand."""

from __future__ import annotations

import networkx
import pytest
from hypothesis import given, strategies as st

from mlsys_labkit.ranks.trace.deadlock import RankState, Waiting, diagnosis, stuck


def waits(rank: int, name: str, *needs: int, **more: object) -> RankState:
    return RankState(rank, "waiting", Waiting(name, needs, **more))  # type: ignore[arg-type]


@st.composite
def worlds(draw: st.DrawFn, any_of: bool) -> list[RankState]:
    p = draw(st.integers(2, 7))
    states = []
    for rank in range(p):
        others = [other for other in range(p) if other != rank]
        state = draw(st.sampled_from(["running", "ended", "waiting", "waiting", "waiting"]))
        needs = draw(st.lists(st.sampled_from(others), min_size=1, max_size=3, unique=True))
        waiting = Waiting("recv", tuple(needs), any_of=any_of)
        states.append(RankState(rank, state, waiting if state == "waiting" else None))
    return states


def graph_of(states: list[RankState]) -> networkx.DiGraph:
    graph = networkx.DiGraph()
    graph.add_nodes_from(range(len(states)))
    graph.add_edges_from((s.rank, other) for s in states if s.waiting for other in s.waiting.needs)
    return graph


@given(worlds(any_of=False))
def test_stuck_finds_ranks_whose_needs_reach_a_cycle_or_an_ended_rank(states: list[RankState]) -> None:
    """The theorem for the AND model: deadlock is a cycle that one can get to, or a rank that is gone."""
    graph = graph_of(states)
    bad = {rank for cycle in networkx.simple_cycles(graph) for rank in cycle}
    bad |= {state.rank for state in states if state.state == "ended"}
    expected = [s.rank for s in states if s.waiting and (networkx.descendants(graph, s.rank) | {s.rank}) & bad]
    assert list(stuck(states)) == expected


@given(worlds(any_of=True))
def test_stuck_finds_any_source_receives_that_reach_no_running_rank(states: list[RankState]) -> None:
    """The theorem for the OR model: deadlock is a knot."""
    graph = graph_of(states)
    running = {state.rank for state in states if state.state == "running"}
    expected = [s.rank for s in states if s.waiting and not networkx.descendants(graph, s.rank) & running]
    assert list(stuck(states)) == expected
    assert (diagnosis(states) != "") == bool(expected)


@given(worlds(any_of=False))
def test_diagnosis_has_one_line_for_each_stuck_rank(states: list[RankState]) -> None:
    lines = diagnosis(states).splitlines()
    named = [int(line.split()[1]) for line in lines[1:] if " waits for " in line]
    assert named == list(stuck(states))


DIAGNOSES = {
    "cycle of three": (
        [waits(r, "send", (r + 1) % 3, line=("ring.py", 4)) for r in range(3)],
        """deadlock: a cycle of ranks: 0 waits for 1, 1 waits for 2, 2 waits for 0
  rank 0 waits for rank 1 to receive (ring.py:4)
  rank 1 waits for rank 2 to receive (ring.py:4)
  rank 2 waits for rank 0 to receive (ring.py:4)""",
    ),
    "one is gone": (
        [RankState(0, "ended"), waits(1, "recv", 0), waits(2, "all_reduce", 0, 1)],
        """deadlock: rank 1 waits for rank 0, which has ended
  rank 1 waits for rank 0 to send
  rank 2 waits for ranks 0 and 1 to call all_reduce
  rank 0 has ended and will never call all_reduce or send""",
    ),
    "anyone": (
        [waits(0, "recv", 1, 2, any_of=True), RankState(1, "ended"), RankState(2, "ended")],
        """deadlock: rank 0 waits for rank 1, which has ended
  rank 0 waits for any of ranks 1 and 2 to send
  rank 1 has ended and will never send
  rank 2 has ended and will never send""",
    ),
    "tags": (
        [waits(0, "send", 1, tag=1), waits(1, "recv", 0, tag=2)],
        """deadlock: ranks 0 and 1 wait for each other
  rank 0 waits for rank 1 to receive with tag 1; the recv of rank 1 has tag 2, not 1
  rank 1 waits for rank 0 to send with tag 2; the send of rank 0 has tag 1, not 2""",
    ),
    "a wait": (
        [waits(0, "recv", 1, line=("a.py", 9), posted=("a.py", 5)), RankState(1, "ended")],
        """deadlock: rank 0 waits for rank 1, which has ended
  rank 0 waits for rank 1 to send (a.py:9; the recv is a.py:5)
  rank 1 has ended and will never send""",
    ),
    "itself": (
        [waits(0, "send", 0)],
        """deadlock: rank 0 waits for itself
  rank 0 waits for itself to receive""",
    ),
    "the others run": (
        [waits(0, "recv", 1), waits(1, "recv", 0), RankState(2, "running")],
        """deadlock: ranks 0 and 1 wait for each other
  rank 0 waits for rank 1 to send
  rank 1 waits for rank 0 to send""",
    ),
    "on its way": ([waits(0, "recv"), waits(1, "all_reduce", 0)], ""),
}


@pytest.mark.parametrize("what", DIAGNOSES)
def test_diagnosis_sentences_name_call_tag_and_line(what: str) -> None:
    states, text = DIAGNOSES[what]
    assert diagnosis(states) == text
