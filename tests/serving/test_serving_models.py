"""Tests of the models behind the serving widgets: correct by brute force, and equal in Python and JavaScript."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mlsys_labkit import serving, widgets
from mlsys_labkit.serving import EngineStep, Preempted, Recording, Request, Scheduled
from mlsys_labkit.widgets.block_table import _changes, model as blocks
from mlsys_labkit.widgets.request_timeline import DECODE, PREEMPTED, PREFILL, QUEUED, STALLED, model as requests
from tests.labkit import twins
from tests.serving.sample_recording import RECORDING, STEPS

MODULES = {"blocks": blocks, "requests": requests}
SOURCES = {name: Path(module.__file__).with_name("model.js") for name, module in MODULES.items()}
RUNS: list[list[Any]] = [
    [[[], []]],
    [
        [[[0, 5, 0, 7, 8]], []],
        [[[0, 9, 2, 3], [1, 2, 0, 4]], [9]],
        [[[1, 0, 0]], [4, 9]],
        [[[0, 6, 1, 2], [2, 1, 0, 7]], []],
    ],
    [[[[11, 3, 0, 10], [2, 3, 0, 2], [1, 1, 0, 10]], [30, 4, 200]], [[[2, 4, 1]], [4, 5]]],
]
ROWS: list[list[Any]] = [
    ["a", 0.0, 0.4, 1.4, 11, "length"],
    ["b", 0.5, 0.5, 0.5, 1, "stop"],
    ["c", 1.0, 1.3, 1.3 + 30 * 0.1, 31, "stop"],
    ["d", 1.5, None, None, 0, ""],
    ["e", 1.75, 2.0, 3.0, 4, "abort"],
    ["f", 2.0, 2.25, 4.0, 3, ""],
]
BOUNDS = [1e-6, 0.1, 0.3, 0.4, 0.5, 9.0]


def _calls() -> list[twins.Call]:
    calls: list[twins.Call] = []
    for steps in RUNS:
        for at, size in itertools.product(range(len(steps)), (1, 4, 16)):
            now = blocks.tables(steps, at)
            used = blocks.pool(now, size)
            calls += [("blocks", "tables", [steps, at]), ("blocks", "cached", [steps, at])]
            calls += [("blocks", "pool", [now, size]), ("blocks", "counts", [used, size])]
    for row in ROWS:
        calls += [("requests", "ttft", [row]), ("requests", "tpot", [row])]
        calls += [("requests", "missed", [row, first, rest]) for first in BOUNDS for rest in BOUNDS]
    for first, rest, seconds in itertools.product(BOUNDS, BOUNDS, (0, 2.5)):
        calls.append(("requests", "goodput", [ROWS, first, rest, seconds]))
    for first, count in itertools.product(range(7), (1, 2, 9)):
        calls.append(("requests", "span", [ROWS, first, count, 5.0]))
    ranges = [(0, 1), (0.3, 2.2), (1, 1), (0, 1e-5), (99.5, 1234.5), (5, 2), (-1, 3), (0.04, 0.0401)]
    return calls + [("requests", "ticks", [low, high, most]) for low, high in ranges for most in (1, 4, 7)]


def test_python_and_javascript_models_agree() -> None:
    assert len(_calls()) > 350
    twins.compare(MODULES, _calls(), twins.in_node(SOURCES, _calls()))


@pytest.mark.browser
def test_python_and_browser_models_agree(browser: Any) -> None:
    page = browser.new_page()
    twins.compare(MODULES, _calls(), page.evaluate(twins.RUN, twins.job(SOURCES, _calls())))
    page.close()


# --- block table -----------------------------------------------------------------------------------------------------

pools = st.lists(st.integers(0, 9), max_size=5, unique=True)


@st.composite
def histories(draw: st.DrawFn) -> list[EngineStep]:
    steps = []
    for index in range(draw(st.integers(1, 8))):
        tables = draw(st.dictionaries(st.sampled_from("abcd"), pools.filter(len), max_size=4))
        held = {name: draw(st.integers(0, 4 * len(table))) for name, table in tables.items()}
        steps.append(
            EngineStep(
                index,
                index,
                index + 1,
                block_tables={name: tuple(table) for name, table in tables.items()},
                held_tokens=held,
                turned_blocks=tuple(draw(pools)),
            )
        )
    return steps


@given(histories())
def test_block_table_history_is_restored_from_its_changes(steps: list[EngineStep]) -> None:
    owners = {name: number for number, name in enumerate("abcd")}
    packed = _changes([[step] for step in steps], owners)
    cached: set[int] = set()
    for at, step in enumerate(steps):
        want = sorted((owners[name], step.held_tokens[name], list(table)) for name, table in step.block_tables.items())
        assert [tuple(each) for each in blocks.tables(packed, at)] == want
        cached ^= set(step.turned_blocks)
        assert blocks.cached(packed, at) == sorted(cached)
    assert blocks.cached(_changes([steps], owners), 0) == sorted(cached), "several steps as one"


def test_decode_step_takes_four_numbers() -> None:
    long = {"a": tuple(range(500))}
    steps = [EngineStep(at, at, at + 1, block_tables=long, held_tokens={"a": 7900 + at}) for at in range(3)]
    assert [len(changes[0]) for changes, _ in _changes([[step] for step in steps], {"a": 0})] == [503, 3, 3]


def test_block_table_counts_equal_the_metrics() -> None:
    widget = widgets.block_table(RECORDING)
    for at, row in enumerate(serving.measure(RECORDING).memory):
        used = blocks.pool(blocks.tables(widget.steps, at), RECORDING.block_size)
        assert blocks.counts(used, RECORDING.block_size)[::3] == [row.used_blocks, row.unfilled_slots]
        assert {int(block): entry[0] for block, entry in used.items()} == STEPS[at].reference_counts


def test_concurrent_requests_have_different_colours() -> None:
    names = [f"r{number}" for number in range(30)]
    steps = [
        EngineStep(at, at, at + 1, block_tables={n: (i,) for i, n in enumerate(names[at : at + 6])}) for at in range(25)
    ]
    run = Recording((), tuple(steps), {}, {}, {}, block_size=4, blocks=6)
    hues = dict(zip(names, widgets.block_table(run).hues, strict=True))
    assert all(len({hues[name] for name in step.block_tables}) == 6 for step in steps)
    # Three leave, three come at once: none of them takes the colour of one that stays, nor of another.
    gaps = [names[:6], ["r1", "r3", "r5", "r6", "r7", "r8"]]
    steps = [
        EngineStep(at, at, at + 1, block_tables={n: (i,) for i, n in enumerate(row)}) for at, row in enumerate(gaps)
    ]
    hues = widgets.block_table(Recording((), tuple(steps), {}, {}, {}, block_size=4, blocks=6)).hues
    assert sorted(hues[int(name[1:])] for name in gaps[1]) == list(range(6))


# --- request timeline ------------------------------------------------------------------------------------------------


def pieces(run: Recording) -> dict[str, list[tuple[int, float, float, int]]]:
    widget = widgets.request_timeline(run)
    found: dict[str, list[tuple[int, float, float, int]]] = {row[0]: [] for row in widget.rows}
    for row, kind, start, end, count in widget.segments:
        found[widget.rows[row][0]].append((kind, start, end, count))
    return found


def test_timeline_splits_each_request_into_its_phases() -> None:
    found = pieces(RECORDING)
    assert found["a"] == [(PREFILL, 1, 2, 1), (PREFILL, 2, 4, 1), (DECODE, 4, 6, 2)]
    assert found["b"] == [(QUEUED, 1.5, 2, 0), (PREFILL, 2, 4, 1), (DECODE, 4, 8, 3)]
    assert found["c"] == [
        *[(QUEUED, 2, 4, 0), (PREFILL, 4, 5, 1), (PREEMPTED, 5, 6, 0)],
        *[(PREFILL, 6, 8, 1), (DECODE, 8, 9, 1)],
    ]
    assert found["d"] == []


def test_timeline_shows_request_without_turn_as_waiting() -> None:
    decode = (Scheduled("a", "decode", 1, 5),)
    steps = (
        EngineStep(0, 0, 1, (Scheduled("a", "prefill", 5, 0),)),
        EngineStep(1, 1, 2, decode),
        EngineStep(2, 2, 5, (Scheduled("b", "prefill", 9, 0),)),
        EngineStep(3, 5, 6, decode),
        EngineStep(
            4, 6.5, 7, decode
        ),  # the next step of a real clock begins a moment later; a did not wait for anything
    )
    asked = (
        Request("a", (1,) * 5),
        Request("b", (1,) * 9, arrival_seconds=2.0),
        Request("c", (3,), arrival_seconds=4.0),
    )
    times = {"a": (1, 2, 6, 7), "b": (5,), "c": ()}
    run = Recording(asked, steps, {name: (0,) * len(each) for name, each in times.items()}, times, {}, 16, 4)
    found = pieces(run)
    assert found["a"] == [(PREFILL, 0, 1, 1), (DECODE, 1, 2, 1), (STALLED, 2, 5, 0), (DECODE, 5, 7, 2)]
    assert found["c"] == [(QUEUED, 4, 7, 0)]  # still waiting when the run ended


def test_timeline_shows_shared_prefill_of_samples() -> None:
    def step(at: int, *parts: Scheduled, preempted: tuple[Preempted, ...] = ()) -> EngineStep:
        return EngineStep(at, at, at + 1, parts, preempted)

    steps = (
        step(0, Scheduled("a", "prefill", 3, 0)),
        step(1, Scheduled("a", "prefill", 2, 3)),
        step(2, Scheduled("a", "decode", 1, 5), Scheduled("a#1", "decode", 1, 5)),
        step(3, Scheduled("a#1", "decode", 1, 6), preempted=(Preempted("a", "recompute"),)),
        step(4, Scheduled("a", "prefill", 7, 0), Scheduled("a#1", "decode", 1, 7)),
    )
    times = {"a": (2, 3, 5), "a#1": (2, 3, 4, 5)}
    run = Recording(
        (Request("a", (1,) * 5, samples=2),), steps, {n: (0,) * len(t) for n, t in times.items()}, times, {}, 16, 4
    )
    found = pieces(run)
    assert found["a"][:3] == [(PREFILL, 0, 1, 1), (PREFILL, 1, 2, 1), (DECODE, 2, 3, 1)]
    assert found["a"][3:] == [(PREEMPTED, 3, 4, 0), (PREFILL, 4, 5, 1)]
    assert found["a#1"] == [(PREFILL, 0, 1, 1), (PREFILL, 1, 2, 1), (DECODE, 2, 5, 3)]


def test_timeline_shows_request_preempted_until_the_end() -> None:
    steps = (
        EngineStep(0, 0, 1, (Scheduled("a", "prefill", 5, 0),)),
        EngineStep(1, 1, 4, preempted=(Preempted("a", "swap"),)),
    )
    run = Recording((Request("a", (1,) * 5),), steps, {"a": ()}, {"a": ()}, {}, 16, 4)
    assert pieces(run)["a"] == [(PREFILL, 0, 1, 1), (PREEMPTED, 1, 4, 0)]


def test_timeline_goodput_equals_the_metrics() -> None:
    widget = widgets.request_timeline(RECORDING)
    run = serving.measure(RECORDING)
    for first, rest in itertools.product((2.4, 2.5, 3.0, 9.0), (0.5, 1.0, 1.5, 2.0)):
        level = run.service_level(first, rest)
        assert requests.goodput(widget.rows, first, rest, widget.seconds) == [level.met, level.goodput]
    for row, latency in zip(widget.rows, run.latencies, strict=True):
        assert requests.ttft(row) == latency.ttft_seconds
        assert requests.tpot(row) == pytest.approx(latency.tpot_seconds)


def test_bound_sliders_start_as_given_and_reach_all_and_none() -> None:
    widget = widgets.request_timeline(RECORDING, ttft_seconds=2.7)
    assert widget.ttft == 2.7
    assert widget.ttft in widget.ttfts
    assert widget.tpot in widget.tpots
    worst = [max(widget.ttfts), max(widget.tpots)]
    assert requests.goodput(widget.rows, *worst, 1.0)[0] == 3
    assert requests.goodput(widget.rows, min(widget.ttfts), min(widget.tpots), 1.0)[0] == 0
    assert widget.ttfts == sorted(widget.ttfts)


@given(st.floats(-1e3, 1e3), st.floats(1e-6, 1e3), st.integers(1, 9))
def test_axis_ticks_are_round_and_inside(low: float, extent: float, most: int) -> None:
    high = low + extent
    found = requests.ticks(low, high, most)
    assert len(found) <= most
    rounding = 1e-9 * extent + 2 * math.ulp(max(abs(low), abs(high)))
    assert all(low - rounding <= tick <= high + rounding for tick in found)
    assert most < 3 or len(found) >= 1
