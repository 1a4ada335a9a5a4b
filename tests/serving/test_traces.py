"""Tests of random traces on a stub model: no block and no request is lost, even when memory is short.

The stub's text is a function of what it reads from the pages, so every wrong slot, lost copy or stale block shows as
another text than the one drawn from the prompt alone.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import pytest
from hypothesis import given, settings, strategies as st

from mlsys_labkit.serving import BlockPool, Engine, Limits, NgramDraft, Request, StepCost
from tests.serving.stub import VOCABULARY, StubDraft, StubRunner, continuation


class Trace(NamedTuple):
    requests: list[Request]
    aborts: list[tuple[int, int]]  # after which step, which request
    block_size: int
    blocks: int
    limits: Limits
    draft: str


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    block_size = draw(st.sampled_from([1, 2, 3, 4, 8]))
    running = draw(st.integers(1, 5))
    draft = draw(st.sampled_from(["", "", "", "stub", "ngram"]))
    limits = Limits(
        running=running,
        tokens=running * 4 + draw(st.sampled_from([0, 0, 1, 5, 60])),
        preemption=draw(st.sampled_from(["recompute", "swap"])),
        host_blocks=draw(st.sampled_from([0, 3, 1000])),
        reuse_prefixes=draw(st.booleans()),
    )
    shared = draw(st.lists(st.integers(0, VOCABULARY - 1), max_size=12))
    requests = []
    for number in range(draw(st.integers(1, 9))):
        own = draw(st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=14))
        prompt = shared[: draw(st.integers(0, len(shared)))] + own
        request = Request(
            f"r{number}",
            tuple(prompt),
            max_new_tokens=draw(st.integers(1, 12)),
            arrival_seconds=draw(st.integers(0, 12)),
            temperature=draw(st.sampled_from([0.0, 0.0, 0.0, 0.9])),
            seed=number,
            stop=draw(st.sampled_from([(), (), (3,), (0, 1)])),
            samples=draw(st.integers(1, min(3, running))),
        )
        requests.append(request)
    longest = max(len(request.prompt) + request.max_new_tokens - 1 for request in requests)
    blocks = -(-longest // block_size) + draw(st.sampled_from([0, 0, 1, 3, 40]))
    aborts = draw(st.lists(st.tuples(st.integers(0, 20), st.integers(0, len(requests) - 1)), max_size=2))
    return Trace(requests, aborts, block_size, blocks, limits, draft)


def check_memory(engine: Engine, pool: BlockPool, runner: StubRunner) -> None:
    """Check that references equal the tables' entries, and that slots of tables and of findable blocks are correct."""
    running = engine.scheduler.running
    order = [sequence.order for sequence in (*running, *engine.scheduler.waiting)]
    assert order == sorted(order), "nobody runs while one who came earlier waits"
    entries = Counter(block for sequence in running for block in sequence.table.blocks)
    assert pool.references == tuple(entries[block] for block in range(pool.size))
    assert pool.free == pool.references.count(0)
    assert not any(sequence.table.blocks for sequence in engine.scheduler.waiting)
    for sequence in running:
        table = sequence.table
        assert len(set(table.blocks)) == len(table.blocks), "a block stands in a table once"
        assert len(table.blocks) == -(-table.held // engine.block_size), "no block is reserved for nothing"
        assert runner.cache.read(table.blocks, table.held) == sequence.tokens[: table.held]
    for block, (key, tokens) in pool._contents.items():
        assert runner.cache.slots[block] == list(tokens)
        assert pool.find(key, tokens) == block


def check_trace(trace: Trace) -> None:
    pool, runner = BlockPool(trace.blocks), StubRunner(trace.blocks, trace.block_size)
    draft = {"": None, "stub": StubDraft(3), "ngram": NgramDraft(3)}[trace.draft]
    engine = Engine(
        runner=runner, pool=pool, block_size=trace.block_size, limits=trace.limits, draft=draft,
        cost=StepCost(1.0, 0.0), record=True,
    )  # fmt: skip
    for request in trace.requests:
        engine.add(request)
    aborted: set[str] = set()
    given: dict[str, list[int]] = {name: [] for request in trace.requests for name in request.sample_ids}
    ended: dict[str, int] = {}
    step = 0
    while engine.has_work:
        for output in engine.step():
            name = f"{output.request_id}#{output.sample}" if output.sample else output.request_id
            assert name not in ended, "a finished request gets no more"
            given[name].append(output.token)
            if output.finished:
                ended[name] = step
        check_memory(engine, pool, runner)
        for at, number in trace.aborts:
            if at == step and engine.abort(trace.requests[number].id):
                aborted.add(trace.requests[number].id)
                check_memory(engine, pool, runner)
        step += 1
        assert step < 10_000, "the engine goes round in circles"

    recording = engine.recording
    for request in trace.requests:
        for sample, name in enumerate(request.sample_ids):
            expected = continuation(request, sample)
            if request.id in aborted:
                assert recording.reasons[name] in ("abort", "stop", "length")
                assert given[name] == expected[: len(given[name])]
            else:
                assert given[name] == expected, name
                assert recording.reasons[name] == ("stop" if expected[-1] in request.stop else "length")
            assert recording.tokens[name] == tuple(given[name])
    assert pool.references == (0,) * trace.blocks, "all memory came back"
    assert not engine._names
    assert engine.scheduler._host_blocks == 0

    # First come, first served: who came earlier is first in a step no later.
    order = sorted(trace.requests, key=lambda request: request.arrival_seconds)
    begun: dict[str, int] = {}
    for each in recording.steps:
        assert each.tokens <= trace.limits.tokens
        assert len(each.scheduled) <= trace.limits.running
        for part in each.scheduled:
            begun.setdefault(part.request_id, each.index)
    starts = [begun[request.id] for request in order if request.id in begun]
    assert starts == sorted(starts)
    # No starvation: a step advances the oldest by a token at least, and the oldest is never set back.
    work = 0
    for request in order:
        work += (len(request.prompt) + request.max_new_tokens) * request.samples
        arrived = next((each.index for each in recording.steps if each.end_seconds > request.arrival_seconds), 0)
        for name in request.sample_ids:
            assert ended.get(name, 0) <= arrived + work


@given(traces())
@settings(max_examples=200)
def test_random_traces_keep_all_blocks_and_requests(trace: Trace) -> None:
    check_trace(trace)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@given(traces())
@settings(max_examples=10_000)
def test_ten_thousand_random_traces_keep_all_blocks_and_requests(trace: Trace) -> None:
    check_trace(trace)
