"""DualPipe's slots: every chunk after what it needs, in every size, and as idle as its authors say."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import pytest

from mlsys_labkit.errors import RanksError
from mlsys_labkit.ranks.simulation.clock import simulate
from mlsys_labkit.ranks.simulation.dual_pipe import UNITS, PipelineChunk, Slot, dual_pipe, dual_pipe_programs

SIZES = ((2, 4), (4, 8), (8, 16), (8, 20), (6, 14), (16, 120))


class Placed(NamedTuple):
    """A slot of a rank with the units of time at which it starts and ends."""

    slot: Slot
    start: float
    end: float


def placed(ranks: int, micro_batches: int) -> list[list[Placed]]:
    slots = dual_pipe(ranks, micro_batches)
    trace = simulate(dual_pipe_programs(slots))
    return [
        [
            Placed(slot, float(event.start_seconds or 0), float(event.end_seconds or 0))
            for slot, event in zip(row, trace.of(rank, "compute"), strict=True)
        ]
        for rank, row in enumerate(slots)
    ]


def needs(rank: int, chunk: PipelineChunk, ranks: int) -> list[tuple[int, PipelineChunk]]:
    """Return the (rank, chunk) that must have ended before ``chunk`` starts on ``rank``."""
    stage = rank if chunk.way == 0 else ranks - 1 - rank

    def at(stage: int, kind: str) -> tuple[int, PipelineChunk]:
        return stage if chunk.way == 0 else ranks - 1 - stage, chunk._replace(kind=kind)  # type: ignore[arg-type]

    if chunk.kind == "F":
        return [at(stage - 1, "F")] if stage else []
    if chunk.kind == "W":
        return [at(stage, "I")]
    own = [at(stage, "F")]
    return own if stage == ranks - 1 else [*own, at(stage + 1, "B")]


@pytest.mark.parametrize(("ranks", "micro_batches"), SIZES)
def test_chunks_follow_what_they_need(ranks: int, micro_batches: int) -> None:
    rows = placed(ranks, micro_batches)
    ends = {(rank, chunk): one.end for rank, row in enumerate(rows) for one in row for chunk in one.slot}
    for rank, row in enumerate(rows):
        for one in row:
            for chunk in one.slot:
                for where, before in needs(rank, chunk, ranks):
                    whole, half = (where, before), (where, before._replace(kind="I"))
                    assert ends[whole if whole in ends else half] <= one.start, (rank, str(chunk), where, str(before))


@pytest.mark.parametrize(("ranks", "micro_batches"), SIZES)
def test_rank_does_each_chunk_once_and_one_slot_at_a_time(ranks: int, micro_batches: int) -> None:
    for row in placed(ranks, micro_batches):
        assert all(before.end <= after.start for before, after in pairwise(row))
        assert all(one.end - one.start == sum(UNITS[chunk.kind] for chunk in one.slot) for one in row)
        chunks = [chunk for one in row for chunk in one.slot]
        assert len(chunks) == len(set(chunks))
        for way in (0, 1):
            did = {kind: {c.micro_batch for c in chunks if (c.kind, c.way) == (kind, way)} for kind in "FBIW"}
            assert did["F"] == did["B"] | did["I"] == set(range(micro_batches // 2))
            assert did["I"] == did["W"]
            assert not did["B"] & did["I"]


@pytest.mark.parametrize(("ranks", "micro_batches"), SIZES)
def test_pair_is_a_forward_and_a_backward_of_opposite_ways(ranks: int, micro_batches: int) -> None:
    pairs = [slot for row in dual_pipe(ranks, micro_batches) for slot in row if len(slot) > 1]
    assert pairs
    assert all(len(pair) == 2 for pair in pairs)
    assert all((one.kind, two.kind) == ("F", "B") and one.way != two.way for one, two in pairs)


@pytest.mark.parametrize(("ranks", "micro_batches"), SIZES)
def test_idle_time_and_memory_are_the_published_ones(ranks: int, micro_batches: int) -> None:
    """The README of deepseek-ai/DualPipe: (PP/2 - 1)(F&B + B - 3W) idle, and activations of PP + 1 micro-batches."""
    rows = placed(ranks, micro_batches)
    forward, backward, weight = UNITS["F"], UNITS["B"], UNITS["W"]
    idle = (ranks // 2 - 1) * (forward + backward + backward - 3 * weight)
    assert max(row[-1].end for row in rows) == micro_batches * (forward + backward) + idle
    for row in rows:
        held = most = 0
        for one in row:
            held += sum(chunk.kind == "F" for chunk in one.slot)
            most = max(most, held)
            held -= sum(chunk.kind in "BI" for chunk in one.slot)
        assert most <= ranks + 1
        assert held == 0


@pytest.mark.parametrize(("ranks", "micro_batches"), [(3, 8), (4, 7), (4, 6), (0, 4)])
def test_sizes_that_do_not_fit_are_refused(ranks: int, micro_batches: int) -> None:
    with pytest.raises(RanksError, match=f"got {ranks} and {micro_batches}"):
        dual_pipe(ranks, micro_batches)
