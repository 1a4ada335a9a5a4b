"""Tests of metrics: a run written by hand against figures worked out on paper, and random runs by brute force."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mlsys_labkit import serving
from mlsys_labkit.serving import EngineStep, RecordError, Recording, Request
from tests.serving.sample_recording import RECORDING


def rows() -> dict[str, Any]:
    return {row.id: row for row in serving.measure(RECORDING).latencies}


def test_latencies_of_each_request() -> None:
    a, b, c, d = (rows()[name] for name in "abcd")
    assert [row.queue_seconds for row in (a, b, c, d)] == [0.0, 0.5, 2.0, None]
    assert [row.ttft_seconds for row in (a, b, c, d)] == [3.0, 2.5, 3.0, None]
    assert [row.tpot_seconds for row in (a, b, c, d)] == [1.0, pytest.approx(4 / 3), 2.0, None]
    assert [row.e2e_seconds for row in (a, b, c, d)] == [5.0, 6.5, 7.0, None]
    assert b.token_gaps_seconds == (1.0, 1.0, 2.0)
    assert [row.preemptions for row in (a, b, c, d)] == [0, 0, 1, 0]
    assert [row.hit_tokens for row in (a, b, c, d)] == [0, 4, 0, 0]
    assert [row.reason for row in (a, b, c, d)] == ["length", "stop", "length", "abort"]
    assert [row.prompt_tokens for row in (a, b, c, d)] == [6, 6, 3, 1]


def test_tpot_follows_its_definition() -> None:
    for row in rows().values():
        if row.tpot_seconds is not None:
            assert row.tpot_seconds == pytest.approx((row.e2e_seconds - row.ttft_seconds) / (row.output_tokens - 1))


def test_metrics_of_a_whole_run() -> None:
    run = serving.measure(RECORDING)
    assert run.seconds == 8.0  # from a's arrival at 1 to 9
    assert (run.output_tokens, run.tokens_per_second) == (10, 10 / 8)
    assert run.requests_per_second == 3 / 8  # d was not served
    assert (run.prompt_tokens, run.prefill_tokens, run.hit_tokens) == (16, 15, 4)
    assert run.hit_rate == 4 / 19
    assert (run.recomputed, run.swapped, run.copies) == (1, 0, 1)


def test_memory_over_time() -> None:
    run = serving.measure(RECORDING)
    assert [row.used_blocks for row in run.memory] == [2, 3, 4, 2, 1, 0]
    # Of 8 slots 5 hold a token; of 12, 8 (the shared block counts once); of 16, 4+3+3+3; of 8, 8; of 4, 4.
    assert [row.unfilled_slots for row in run.memory] == [3, 4, 3, 0, 0, 0]
    assert [row.cached_blocks for row in run.memory] == [0, 0, 0, 1, 2, 0]
    assert run.waste == 10 / (4 * 12)
    # 2 blocks for 2 s, 3 for 1, 4 for 1, 2 for 2, 1 for 1, of 6 for 7 s.
    assert run.occupancy == pytest.approx((4 + 3 + 4 + 4 + 1) / (6 * 7))
    assert run.peak_blocks == 4


@pytest.mark.parametrize(
    ("ttft", "tpot", "met"),
    [
        (3.0, 2.0, "abc"),
        (3.0, 1.5, "ab"),
        (2.5, 9.0, "b"),
        (9.0, 1.0, "a"),
        (2.4, 9.0, ""),
        (math.inf, math.inf, "abc"),
    ],
)
def test_goodput_counts_requests_within_both_bounds(ttft: float, tpot: float, met: str) -> None:
    level = serving.measure(RECORDING).service_level(ttft, tpot)
    assert level.met == len(met)
    assert level.attainment == len(met) / 4  # d counts: it was requested and not served
    assert level.goodput == len(met) / 8
    assert "".join(name for name, row in rows().items() if row.meets(ttft, tpot)) == met


def test_latency_equal_to_the_bound_meets_it() -> None:
    step = 0.1  # 0.1 + 0.2 is not 0.3
    times = tuple(np.cumsum([0.3, *[step] * 30]).tolist())
    asked = Request("a", prompt=(1,), max_new_tokens=31)
    run = Recording((asked,), (EngineStep(0, 0.0, 3.3),), {"a": (1,) * 31}, {"a": times}, {"a": "length"}, 16, 1)
    assert serving.measure(run).service_level(0.3, step).met == 1
    assert serving.measure(run).service_level(0.3, step * 0.999).met == 0


def test_unfinished_request_meets_no_bound() -> None:
    row = dataclasses.replace(rows()["a"], reason="abort")
    assert row.ttft_seconds == 3.0
    assert not row.meets(math.inf, math.inf)


def test_percentiles_equal_numpys() -> None:
    run = serving.measure(RECORDING)
    for name, values in (
        ("ttft", [3.0, 2.5, 3.0]),
        ("queue", [0.0, 0.5, 2.0]),
        ("token_gaps", [1, 1, 1, 1, 2, 3, 1]),
        ("e2e", [5.0, 6.5, 7.0]),
    ):
        assert run.percentile(name, 90) == pytest.approx(np.percentile(values, 90))
    with pytest.raises(RecordError, match="no latency 'speed'; expected one of queue, ttft"):
        run.percentile("speed", 50)


def test_metrics_table_text() -> None:
    text = str(serving.measure(RECORDING))
    lines = dict(line.split("  ", 1) for line in text.splitlines()[1:6])
    assert lines["TTFT"].split() == ["3", "s", "3", "s", "3", "s", "3", "s"]
    assert lines["queued"].split() == ["500", "ms", "1.7", "s", "1.97", "s", "2", "s"]
    for words in (
        "4 requests (1 abort, 2 length, 1 stop) in 8 s of virtual time",
        "10 tokens, 1.25 tokens/s; 0.375 requests/s",
        "4 of 6 blocks at the peak, 38.1 % on average; 20.8 % of slots in use unfilled",
        "prefix hits 21.1 % of tokens; preempted 1 by recompute, 0 by swap; 1 blocks copied",
    ):
        assert words in text


def test_an_empty_run_has_no_latencies_and_no_division_by_zero() -> None:
    run = serving.measure(Recording((), (), {}, {}, {}, block_size=16, blocks=4))
    assert (run.waste, run.occupancy, run.hit_rate, run.tokens_per_second) == (0, 0, 0, 0)
    assert run.percentile("ttft", 50) is None
    assert run.service_level(1, 1).attainment == 0
    assert "  -" in str(run)


def test_samples_have_their_own_latency_rows() -> None:
    asked = Request("a", prompt=(1, 2), max_new_tokens=1, samples=2)
    part = serving.Scheduled("a", "prefill", 2, 0)
    tokens = {"a": (5,), "a#1": (6,)}
    times = {"a": (3.0,), "a#1": (3.0,)}
    run = serving.measure(
        Recording((asked,), (EngineStep(0, 1.0, 3.0, (part,)),), tokens, times, {"a": "length", "a#1": "stop"}, 16, 1)
    )
    assert [(row.id, row.queue_seconds, row.ttft_seconds) for row in run.latencies] == [("a", 1, 3), ("a#1", 1, 3)]
    assert run.prompt_tokens == 2
    assert "1 requests, 2 continuations (1 length, 1 stop) in 3 s" in str(run)


@st.composite
def tables(draw: st.DrawFn) -> Recording:
    """Draw tables that share a prefix of full blocks, as in a paged cache."""
    size = draw(st.integers(1, 5))
    shared = draw(st.integers(0, 3))
    blocks, held, number = {}, {}, shared
    for name in draw(st.lists(st.sampled_from("abcdef"), unique=True)):
        own = draw(st.integers(0, 3))
        blocks[name] = (*range(shared), *range(number, number + own))
        held[name] = draw(st.integers(0, (shared + own) * size))  # who shares a block may see less of it
        number += own
    step = EngineStep(0, 0.0, 1.0, block_tables=blocks, held_tokens=held)
    return Recording((), (step,), {}, {}, {}, block_size=size, blocks=max(1, number))


@given(tables())
def test_unfilled_slots_are_counted_slot_by_slot(run: Recording) -> None:
    step = run.steps[0]
    used = {block for table in step.block_tables.values() for block in table}
    filled = {
        (table[at // run.block_size], at % run.block_size)
        for name, table in step.block_tables.items()
        for at in range(step.held_tokens[name])
    }
    found = serving.measure(run).memory[0]
    assert found.used_blocks == len(used)
    assert found.unfilled_slots == len(used) * run.block_size - len(filled)
