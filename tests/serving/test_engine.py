"""Tests of the engine: text equal to one-by-one decoding, samples, prefixes, aborts, errors, clocks."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

from mlsys_labkit import lm, specs
from mlsys_labkit.errors import LabkitError
from mlsys_labkit.serving import (
    BlockPool,
    Engine,
    Limits,
    ModelDraft,
    NgramDraft,
    Recording,
    Request,
    RequestError,
    StepCost,
)
from tests.serving.stub import StubRunner, continuation

COST = StepCost(1e-3, 1e-5, 1e-8)
TIE = 1e-4  # two logits this near may change places when a batch adds in another order
MODEL, TOKENIZER = lm.load()
TEXT = TOKENIZER.encode(lm.held_out())


def traces(count: int) -> list[list[Request]]:
    """Draw small traces of the tiny model's kind of text with varying lengths, arrivals and shared beginnings."""
    rng = random.Random(0)
    drawn = []
    for _ in range(count):
        shared = rng.randrange(0, len(TEXT) - 300)
        requests = []
        for number in range(rng.randint(2, 4)):
            start, length = rng.choice([shared, rng.randrange(0, len(TEXT) - 300)]), rng.randint(1, 60)
            prompt = tuple(TEXT[start : start + length])
            stop = rng.choice([(), (TOKENIZER.encode("\n")[0],)])
            requests.append(Request(f"r{number}", prompt, rng.randint(6, 18), 2e-3 * rng.randrange(6), stop=stop))
        drawn.append(requests)
    return drawn


ENGINES: list[dict[str, Any]] = [
    {"blocks": 60},
    {"blocks": 5, "limits": Limits(running=4, tokens=40)},
    {"blocks": 5, "limits": Limits(running=4, tokens=40, preemption="swap")},
    {"blocks": 28, "block_size": 3, "limits": Limits(running=3, tokens=19, reuse_prefixes=False)},
    {"blocks": 6, "draft": NgramDraft(4), "limits": Limits(running=4, tokens=48, preemption="swap")},
    {"blocks": 6, "draft": ModelDraft(MODEL, 2, COST), "limits": Limits(running=4, tokens=30)},
]


def tied(prompt: tuple[int, ...], drawn: tuple[int, ...]) -> bool:
    """Return True if the two likeliest tokens were ever nearer than TIE."""
    with torch.no_grad():
        logits = MODEL(torch.tensor([[*prompt, *drawn]]))[0, len(prompt) - 1 : -1]
    best = logits.topk(2).values
    return bool(((best[:, 0] - best[:, 1]) < TIE).any())


def test_greedy_text_of_random_traces_equals_one_by_one_decoding() -> None:
    ties = compared = preempted = 0
    engines = [Engine(MODEL, cost=COST, **options) for options in ENGINES]
    for number, requests in enumerate(traces(50)):
        engine = engines[number % len(engines)]
        run = engine.run(requests)
        preempted += sum(len(step.preempted) for step in run.steps)
        for request in requests:
            stop = request.stop[0] if request.stop else None
            expected = tuple(lm.generate(MODEL, request.prompt, request.max_new_tokens, stop=stop))
            if run.tokens[request.id] != expected and tied(request.prompt, expected):
                ties += 1
                continue
            compared += 1
            assert run.tokens[request.id] == expected
        assert engine.pool.free == engine.pool.size
    assert ties <= compared // 100
    assert preempted > 10, "the small pools were too large to tell anything"


def test_samples_share_prompt_blocks_and_draw_as_if_alone() -> None:
    prompt = tuple(TEXT[:37])
    asked = [Request(f"r{n}", prompt[: 37 - n], 12, temperature=0.9, top_p=0.95, seed=n, samples=3) for n in range(4)]
    together = Engine(MODEL, cost=COST, blocks=16, limits=Limits(running=6, tokens=64)).run(asked)
    for request in asked:
        for sample, name in enumerate(request.sample_ids):
            alone = Request("alone", request.prompt, 12, temperature=0.9, top_p=0.95, seed=request.seed + sample)
            assert Engine(MODEL, cost=COST).run([alone]).tokens["alone"] == together.tokens[name]
    assert len({together.tokens[name] for name in asked[0].sample_ids}) > 1, "samples differ"
    assert sum(len(step.copies) for step in together.steps) > 0, "half-full blocks were shared, then copied"
    first = next(step for step in together.steps if "r0#2" in step.block_tables)
    assert max(first.reference_counts.values()) == 3


def test_repeated_prompt_is_found_in_the_prefix_cache() -> None:
    engine = Engine(MODEL, cost=COST, blocks=40)
    prompt = tuple(TEXT[:64])
    first, second = engine.run([Request("a", prompt, 4)]), engine.run([Request("b", prompt, 4)])
    parts = [run.steps[0].scheduled[0] for run in (first, second)]
    assert [(part.tokens, part.cached_tokens, part.hit_tokens) for part in parts] == [(64, 0, 0), (16, 48, 48)]
    assert first.tokens["a"] == second.tokens["b"]
    assert second.seconds < first.seconds


def test_long_prompt_is_chunked_beside_decodes() -> None:
    asked = [Request("short", tuple(TEXT[:8]), 20), Request("long", tuple(TEXT[:400]), 2, arrival_seconds=2e-3)]
    run = Engine(MODEL, cost=COST, limits=Limits(running=4, tokens=32)).run(asked)
    both = [step for step in run.steps if len(step.scheduled) == 2]
    assert all({part.phase for part in step.scheduled} == {"prefill", "decode"} for step in both[:10])
    assert len(both) > 10
    assert max(step.tokens for step in run.steps) == 32


def test_virtual_clock_keeps_arrival_times() -> None:
    asked = [Request("late", (1, 2), 2, arrival_seconds=5.0), Request("early", (1, 2), 2, arrival_seconds=1.0)]
    run = Engine(MODEL, cost=StepCost(0.5, 0.25, 0.125), limits=Limits(reuse_prefixes=False)).run(asked)
    assert run.clock == "virtual"
    assert [request.id for request in run.requests] == ["early", "late"]
    # Two prompt tokens: 0.5 + 2 · 0.25. Then one token that reads two: 0.5 + 0.25 + 2 · 0.125.
    assert run.token_seconds == {"early": (2.0, 3.0), "late": (6.0, 7.0)}
    assert Recording.from_lines(run.to_lines()) == run


def test_real_clock_waits_for_an_arrival() -> None:
    run = Engine(MODEL).run([Request("a", (1, 2), 2, arrival_seconds=0.03)])
    assert run.clock == "real"
    assert 0.03 <= run.steps[0].start_seconds < run.token_seconds["a"][0] < run.token_seconds["a"][1]


def test_step_cost_from_datasheet_and_from_run() -> None:
    llama = lm.Config(128256, 4096, 32, 32, 8, 128, 14336, tied=False)
    cost = StepCost.of_device(specs.get("h100-sxm"), llama)
    assert cost.seconds_per_step == pytest.approx(2 * 8.03e9 / 3.35e12, rel=1e-3)
    assert cost.seconds_per_cached_token == pytest.approx(131072 / 3.35e12)  # 2 · 32 layers · 8 heads · 128 · 2 bytes
    run = Engine(MODEL, cost=COST).run(traces(1)[0])
    fitted = StepCost.fitted(run.steps)
    assert (fitted.seconds_per_step, fitted.seconds_per_token) == pytest.approx((1e-3, 1e-5), rel=1e-6)
    with pytest.raises(LabkitError, match="at least 3 steps"):
        StepCost.fitted(run.steps[:2])


def test_abort_frees_memory_in_every_status() -> None:
    engine = Engine(MODEL, cost=COST, blocks=8, limits=Limits(running=2, tokens=16), record=True)
    for name, arrival in (("running", 0.0), ("second", 0.0), ("waiting", 0.0), ("later", 99.0)):
        engine.add(Request(name, tuple(TEXT[:40]), 8, arrival, samples=2))
    for _ in range(5):
        engine.step()
    assert engine.pool.free < 8
    assert [engine.abort(name) for name in ("running", "waiting", "later", "second", "nobody")] == [True] * 4 + [False]
    assert engine.pool.free == 8
    assert not engine.has_work
    assert engine.step() == []
    assert set(engine.recording.reasons.values()) == {"abort"}
    assert set(engine.recording.reasons) == set(engine.recording.tokens)


def test_abort_of_one_sample_keeps_the_others() -> None:
    request = Request("a", tuple(TEXT[:20]), 12, temperature=0.9, samples=3)
    expected = Engine(MODEL, cost=COST).run([request])
    engine = Engine(MODEL, cost=COST, record=True)
    engine.add(request)
    assert not engine.abort("a", "stop", sample=1), "before the first token there is one sequence, which is all of them"
    for _ in range(4):
        engine.step()
    assert engine.abort("a", "stop", sample=1)
    assert not engine.abort("a", "stop", sample=1)
    engine.finish()
    run = engine.recording
    assert run.reasons == {"a": "length", "a#1": "stop", "a#2": "length"}
    assert run.tokens["a#1"] == expected.tokens["a#1"][:4]
    assert (run.tokens["a"], run.tokens["a#2"]) == (expected.tokens["a"], expected.tokens["a#2"])
    assert engine.pool.free == engine.pool.size


def test_failed_step_frees_all_memory() -> None:
    runner = StubRunner(8, 4)
    engine = Engine(runner=runner, pool=BlockPool(8), block_size=4, cost=COST)
    engine.add(Request("a", (1, 2, 3), 5))
    engine.step()
    runner.run = lambda chunks: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    with pytest.raises(ZeroDivisionError):
        engine.step()
    assert engine.pool.free == 8
    assert not engine.has_work
    del runner.run
    request = Request("a", (1, 2, 3), 5)
    assert list(engine.run([request]).tokens["a"]) == continuation(request)


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (lambda: Request("b", (), 4), "request 'b' has an empty prompt"),
        (lambda: Request("b", (1,), -1), "max_new_tokens is -1, expected a whole number from 0 up"),
        (lambda: Request("b", (1,), temperature=-1.0), "temperature is -1.0"),
        (lambda: Request("b", (1,), temperature=float("nan")), "temperature is nan"),
        (lambda: Request("b", (1,), top_p=0.0), "top_p is 0.0"),
        (lambda: Request("a", (1,), 4), "the id 'a' is taken"),
        (lambda: Request("a#1", (1,), 4), "the id 'a#1' is taken"),
        (lambda: Request("b", (1,) * 500, 13), "500 tokens and 13 new ones exceed the model's 512 positions"),
        (lambda: Request("b", (1,) * 60, 6), "request 'b' needs 65 slots and the cache has 64"),
        (lambda: Request("b", (1,), 4, samples=3), "asks for 3 samples and 2 run at a time"),
        (lambda: Request("b", (2048 + 9,), 4), "outside 0 to"),
        (lambda: Request("b", (-1,), 4), "prompt is .-1,., expected token numbers from 0 up"),
        (lambda: "hello", "expected a Request, got str"),
        (lambda: Request("b", "hello", 4), "prompt is 'hello', expected token numbers"),
        (lambda: Request("b", 5, 4), "prompt is 5, expected token numbers"),
        (lambda: Request("b", (1.5, 2), 4), "prompt is .1.5, 2., expected token numbers"),
        (lambda: Request("b", torch.ones(2, 3, dtype=torch.long), 4), "prompt is .*, expected token numbers"),
        (lambda: Request("b", (1,), 2.5), "max_new_tokens is 2.5, expected a whole number"),
        (lambda: Request("b", (1,), "5"), "max_new_tokens is '5', expected a whole number"),
        (lambda: Request("b", (1,), samples=True), "samples is True, expected a whole number"),
        (lambda: Request("b", (1,), temperature="1"), "temperature is '1', expected a number"),
        (lambda: Request("b", (1,), stop="end"), "stop is 'end', expected token numbers"),
        (lambda: Request("b", (1,), seed=0.5), "seed is 0.5, expected a whole number"),
        (lambda: Request(5, (1,)), "a request's id is 5, expected text"),
    ],
)
def test_impossible_requests_are_refused(request_: Any, says: str) -> None:
    engine = Engine(MODEL, cost=COST, blocks=4, limits=Limits(running=2))
    engine.add(Request("a", (1,), 4, samples=2))
    with pytest.raises(RequestError, match=says) as raised:
        engine.add(request_())
    assert "\n" not in str(raised.value)
    assert {output.request_id for output in engine.finish()} == {"a"}
    assert not engine.has_work


def test_request_converts_numpy_and_torch_numbers() -> None:
    request = Request("a", torch.tensor([1, 2]), np.int64(3), temperature=np.float32(0.5), stop=np.array([4]))  # type: ignore[arg-type]
    assert request == Request("a", (1, 2), 3, temperature=0.5, stop=(4,))
    assert {type(value) for value in (*request.prompt, *request.stop, request.max_new_tokens)} == {int}


def test_largest_fitting_request_is_served() -> None:
    engine = Engine(MODEL, cost=COST, blocks=4)
    run = engine.run([Request("a", (1,) * 60, 5), Request("b", (2,), 64)])
    assert [len(run.tokens[name]) for name in "ab"] == [5, 64]
    with pytest.raises(RequestError, match="the id 'a' is taken"):
        engine.run([Request("a", (1,), 1), Request("a", (1,), 1)])
    assert not engine.has_work
    assert engine.pool.free == 4


def test_request_id_is_free_after_its_end() -> None:
    engine = Engine(MODEL, cost=COST)
    for _ in range(2):
        engine.add(Request("a", (1,), 2, samples=2))
        assert len(engine.finish()) == 4


def test_engine_refuses_wrong_settings_in_one_line() -> None:
    with pytest.raises(LabkitError, match="needs a model or a runner"):
        Engine()
    with pytest.raises(LabkitError, match=r"a model or a runner, got tuple; model, tokenizer = lm\.load"):
        Engine(lm.load())  # type: ignore[arg-type]
    with pytest.raises(LabkitError, match="got threads=0"):
        Engine(MODEL, threads=0)
    with pytest.raises(LabkitError, match="got block_size=0"):
        Engine(MODEL, block_size=0)
    with pytest.raises(LabkitError, match="cannot hold 16 decodes of 5 tokens"):
        Engine(MODEL, limits=Limits(tokens=64), draft=NgramDraft(4))
    with pytest.raises(LabkitError, match="expected 'recompute' or 'swap'"):
        Limits(preemption="drop")  # type: ignore[arg-type]
    with pytest.raises(LabkitError, match="give ModelDraft its cost"):
        Engine(MODEL, cost=COST, draft=ModelDraft(MODEL))
    small = lm.LanguageModel(lm.Config(60, 8, 1, 2, 1, 4, 16))
    with pytest.raises(LabkitError, match="the draft model has 60 tokens and the model"):
        Engine(MODEL, draft=ModelDraft(small))
    with pytest.raises(LabkitError, match="keeps no record"):
        _ = Engine(MODEL).recording
    with pytest.raises(LabkitError, match="no draft makes any; give a draft"):
        Engine(MODEL, limits=Limits(guesses=4))
    with pytest.raises(LabkitError, match="takes a list of requests, got one"):
        Engine(MODEL).run(Request("a", (1,), 1))  # type: ignore[arg-type]
    with pytest.raises(LabkitError, match="seconds_per_token is -1, expected seconds from 0 up"):
        StepCost(1e-3, -1)
    busy = Engine(MODEL)
    busy.add(Request("a", (1,), 1))
    with pytest.raises(LabkitError, match="unfinished requests"):
        busy.run([])


class OwnPool:
    """A custom pool with only the methods that the protocol requires without prefixes."""

    def __init__(self, size: int) -> None:
        self.size, self._free, self._held = size, list(range(size)), [0] * size

    @property
    def free(self) -> int:
        return len(self._free)

    def take(self) -> int:
        block = self._free.pop()
        self._held[block] = 1
        return block

    def share(self, block: int) -> None:
        self._held[block] += 1

    def drop(self, block: int) -> None:
        self._held[block] -= 1
        if not self._held[block]:
            self._free.append(block)

    def holders(self, block: int) -> int:
        return self._held[block]


def test_engine_accepts_a_custom_pool() -> None:
    engine = Engine(MODEL, cost=COST, pool=OwnPool(9), limits=Limits(running=4, tokens=40, reuse_prefixes=False))
    requests = traces(1)[0]
    run = engine.run([*requests, Request("two", requests[0].prompt, 3, samples=2)])
    for request in requests:
        stop = request.stop[0] if request.stop else None
        assert list(run.tokens[request.id]) == list(
            lm.generate(MODEL, request.prompt, request.max_new_tokens, stop=stop)
        )
    assert engine.pool.free == 9


class NumpyPool(OwnPool):
    """A custom pool whose block numbers are numpy integers."""

    def take(self) -> int:
        return np.int64(super().take())  # type: ignore[return-value]


def test_recording_holds_plain_block_numbers_of_a_custom_pool() -> None:
    engine = Engine(MODEL, cost=COST, pool=NumpyPool(9), limits=Limits(reuse_prefixes=False))
    run = engine.run([Request("a", (1, 2, 3), 4)])
    blocks = [block for step in run.steps for table in step.block_tables.values() for block in table]
    assert blocks
    assert {type(block) for block in blocks} == {int}
