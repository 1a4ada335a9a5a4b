"""Tests of log-probabilities, penalties and bias in the engine, against transformers and the definitions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st

from mlsys_labkit import lm
from mlsys_labkit.lm.checkpoint import WEIGHTS
from mlsys_labkit.serving import Engine, Limits, ModelDraft, NgramDraft, Output, Recording, Request, RequestError
from mlsys_labkit.serving.sampling import shape_logits

MODEL, CODEC = lm.load()
TEXT = tuple(CODEC.encode(lm.held_out()[:1000])[:90])


@pytest.fixture(scope="module")
def theirs() -> Any:
    import transformers

    return transformers.AutoModelForCausalLM.from_pretrained(str(WEIGHTS), dtype=torch.float32).eval()


def rows_of(theirs: Any, tokens: tuple[int, ...]) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = theirs(torch.tensor([tokens])).logits[0].log_softmax(-1)
    return found


def outputs(engine: Engine, *requests: Request) -> dict[tuple[str, int], list[Output]]:
    for request in requests:
        engine.add(request)
    told: dict[tuple[str, int], list[Output]] = {}
    for output in engine.finish():
        told.setdefault((output.request_id, output.sample), []).append(output)
    assert engine.pool.free == engine.pool.size
    return told


def check(theirs: Any, request: Request, told: list[Output]) -> None:
    """Compare each log-probability, and the likeliest tokens, with those of transformers' forward."""
    drawn = [output.token for output in told if output.token is not None]
    rows = rows_of(theirs, (*request.prompt, *drawn))
    start = len(request.prompt)
    scored = [*(told[0].prompt if request.prompt_logprobs else ()), *(each.logprob for each in told if each.logprob)]
    tokens = [*(request.prompt[1:] if request.prompt_logprobs else ()), *drawn]
    assert [each.token for each in scored] == tokens
    first = 0 if request.prompt_logprobs else start - 1
    for row, each in zip(rows[first:], scored, strict=False):
        assert each.logprob == pytest.approx(float(row[each.token]), abs=1e-4)
        best = row.topk(request.logprobs or 0).values.tolist()
        assert [logprob for _, logprob in each.likeliest] == pytest.approx(best, abs=1e-4)
        assert all(logprob == pytest.approx(float(row[token]), abs=1e-4) for token, logprob in each.likeliest)


@pytest.mark.parametrize("preemption", ["recompute", "swap"])
@pytest.mark.parametrize("draft", [None, "ngram", "model"])
def test_logprobs_equal_those_of_transformers(theirs: Any, preemption: Any, draft: str | None) -> None:
    """Few blocks and small steps: prompts are cut, sequences lose their blocks, prefixes are shared, tokens guessed."""
    drafts = {"ngram": NgramDraft(3), "model": ModelDraft(MODEL, 2), None: None}
    guesses = 3 if draft else 0
    limits = Limits(running=4, tokens=max(24, 4 * (1 + guesses)), preemption=preemption)
    engine = Engine(MODEL, blocks=15, block_size=8, limits=limits, draft=drafts[draft])
    asked = [
        Request("prompt", TEXT[:50], 10, logprobs=3, prompt_logprobs=True),
        Request("again", TEXT[:50], 10, logprobs=0, prompt_logprobs=True),  # the prefix is cached, and needed anew
        Request("prefix", TEXT[:50], 12, logprobs=2),
        Request("none", TEXT[:30], 20),
        Request("drawn", TEXT[20:50], 15, logprobs=5, temperature=1.0, top_p=0.9, seed=3, samples=2),
        Request("scored", TEXT[:80], 0, logprobs=1, prompt_logprobs=True, samples=2),
        Request("one", TEXT[:1], 0, logprobs=1, prompt_logprobs=True),
    ]
    told = outputs(engine, *asked)
    assert set(told) == {(each.id, sample) for each in asked for sample in range(each.samples)}
    for (name, _), own in told.items():
        request = next(each for each in asked if each.id == name)
        if request.logprobs is not None:
            check(theirs, request, own)
    assert [(each.token, each.finished, each.reason) for each in told["scored", 1]] == [(None, True, "length")]
    assert len(told["scored", 0][0].prompt) == 79
    assert all(each.logprob is None and not each.prompt for each in told["none", 0])


def test_preempted_prompt_is_scored_once_and_whole(theirs: Any) -> None:
    for preemption in ("recompute", "swap"):
        engine = Engine(MODEL, blocks=12, block_size=8, limits=Limits(2, 16, preemption=preemption))  # type: ignore[arg-type]
        first = Request("old", TEXT[:40], 40)
        second = Request("young", TEXT[:50], 8, logprobs=1, prompt_logprobs=True, arrival_seconds=0.0)
        run = engine.run([first, second])
        assert run.reasons == {"old": "length", "young": "length"}
        assert any(step.preempted for step in run.steps), "the case is not the one that was meant"
        check(theirs, second, outputs(engine, first, second)["young", 0])


def test_request_without_new_tokens_keeps_recording_readable() -> None:
    engine = Engine(MODEL, blocks=16, limits=Limits(4))
    run = engine.run([Request("a", TEXT[:20], 0, logprobs=2, prompt_logprobs=True, logit_bias=((3, 1.0),))])
    assert (dict(run.tokens), dict(run.reasons)) == ({"a": ()}, {"a": "length"})
    assert Recording.from_lines(run.to_lines()) == run


def test_prompt_as_long_as_the_context_is_scored() -> None:
    whole = tuple(CODEC.encode(lm.held_out())[: MODEL.config.context])
    engine = Engine(MODEL, blocks=32, block_size=16)
    told = outputs(engine, Request("a", whole, 0, logprobs=0, prompt_logprobs=True))["a", 0]
    mean = -sum(each.logprob for each in told[0].prompt) / (len(whole) - 1)
    assert mean == pytest.approx(lm.nats_per_token(MODEL, torch.tensor(whole)), rel=1e-5)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"max_new_tokens": -1}, "max_new_tokens is -1, expected a whole number from 0 up"),
    ({"logprobs": -1}, "logprobs is -1, expected a whole number from 0 up"),
    ({"prompt_logprobs": True}, "prompt_logprobs needs logprobs"),
    ({"frequency_penalty": float("nan")}, "frequency_penalty is nan, expected a number"),
    ({"repetition_penalty": 0}, "repetition_penalty is 0, expected above 0"),
    ({"logit_bias": ((-1, 1.0),)}, "expected pairs of a token number from 0 up and a number"),
    ({"logit_bias": (3,)}, "expected pairs"),
    ({"logit_bias": ((9999, 1.0),)}, "logit_bias has the token 9999, expected 0 to 2047"),
]


@pytest.mark.parametrize(("options", "says"), WRONG)
def test_wrong_option_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(RequestError, match=says):
        Engine(MODEL, blocks=8).add(Request("a", (1, 2), **options))


# --- penalties and bias ----------------------------------------------------------------------------------------------


@given(
    seed=st.integers(0, 1000),
    drawn=st.lists(st.integers(0, 11), max_size=12),
    repetition=st.sampled_from([1.0, 1.3, 0.7]),
    bias=st.dictionaries(st.integers(0, 11), st.sampled_from([-100.0, -1.5, 2.0, 100.0]), max_size=4),
)
@settings(max_examples=60)
def test_repetition_penalty_and_bias_equal_transformers(
    seed: int, drawn: list[int], repetition: float, bias: dict[int, float]
) -> None:
    import transformers

    logits = torch.randn(1, 12, generator=torch.Generator().manual_seed(seed)) * 3
    tokens = [4, 4, 7, *drawn]
    expected = logits.clone()
    if bias:
        pairs = {(token,): value for token, value in bias.items()}
        expected = transformers.SequenceBiasLogitsProcessor(pairs)(torch.tensor([tokens]), expected)
    expected = transformers.RepetitionPenaltyLogitsProcessor(repetition)(torch.tensor([tokens]), expected)
    request = Request("a", (4, 4, 7), repetition_penalty=repetition, logit_bias=tuple(bias.items()))
    torch.testing.assert_close(shape_logits(logits[0], request, tokens), expected[0])


@given(drawn=st.lists(st.integers(0, 5), max_size=12), frequency=st.floats(-2, 2), presence=st.floats(-2, 2))
def test_penalties_follow_the_formula_of_the_api(drawn: list[int], frequency: float, presence: float) -> None:
    """mu[j] - c[j] · alpha_frequency - (c[j] > 0) · alpha_presence, where c[j] counts the tokens sampled so far."""
    request = Request("a", (0, 0, 1), frequency_penalty=frequency, presence_penalty=presence)
    found = shape_logits(torch.zeros(6, dtype=torch.float64), request, [0, 0, 1, *drawn])
    for token in range(6):
        count = drawn.count(token)
        assert float(found[token]) == pytest.approx(-count * frequency - (count > 0) * presence)


@pytest.mark.parametrize("draft", [None, NgramDraft(3), ModelDraft(MODEL, 3)])
def test_shaped_greedy_text_equals_step_by_step(theirs: Any, draft: Any) -> None:
    """Each token is the likeliest of transformers' logits less the penalties, however it is guessed and preempted."""
    asked = [
        Request("plain", TEXT[:20], 25),
        Request("frequency", TEXT[:20], 25, frequency_penalty=1.5),
        Request("presence", TEXT[:20], 25, presence_penalty=-0.8, logit_bias=((261, 3.0), (5, -100.0))),
        Request("repetition", TEXT[:20], 25, repetition_penalty=1.4),
    ]
    engine = Engine(MODEL, blocks=14, block_size=8, limits=Limits(4, 24), draft=draft)
    told = outputs(engine, *asked)
    texts = {name: [output.token for output in own] for (name, _), own in told.items()}
    assert len({tuple(text) for text in texts.values()}) == 4
    for request in asked:
        tokens = list(request.prompt)
        for token in texts[request.id]:
            with torch.no_grad():
                row = theirs(torch.tensor([tokens])).logits[0, -1]
            assert token == int(shape_logits(row, request, tokens).argmax())
            tokens.append(token)


def test_drawn_tokens_follow_the_shaped_distribution() -> None:
    """A bias of 100 decides each draw, and the log-probability stays that of the model."""
    request = Request("a", TEXT[:9], 5, temperature=1.0, logit_bias=((77, 100.0),), logprobs=0, seed=1)
    told = outputs(Engine(MODEL, blocks=8), request)["a", 0]
    assert [output.token for output in told] == [77] * 5
    assert all(output.logprob and output.logprob.logprob < -2 for output in told)
