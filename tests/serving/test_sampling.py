"""Tests of sampling: distributions against their definitions, and speculation against the distribution to keep."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import scipy
import torch
from hypothesis import given, settings, strategies as st

from mlsys_labkit import lm
from mlsys_labkit.serving import Engine, Limits, ModelDraft, NgramDraft, Request, StepCost, accept
from mlsys_labkit.serving.sampling import draw, probabilities, uniform
from mlsys_labkit.serving.speculative import Guess

COST = StepCost(1e-3, 1e-5)


@given(
    temperature=st.sampled_from([0.3, 1.0, 2.5]),
    top_k=st.sampled_from([0, 1, 3, 20, 99]),
    top_p=st.sampled_from([1.0, 0.9, 0.5, 0.01]),
    seed=st.integers(0, 1000),
)
@settings(max_examples=60)
def test_probabilities_equal_transformers(temperature: float, top_k: int, top_p: float, seed: int) -> None:
    import transformers

    logits = torch.randn(1, 20, generator=torch.Generator().manual_seed(seed)) * 3
    warpers: list[Any] = [transformers.TemperatureLogitsWarper(temperature)]
    if top_k:
        warpers.append(transformers.TopKLogitsWarper(top_k))
    if top_p < 1:
        warpers.append(transformers.TopPLogitsWarper(top_p))
    expected = logits.double()
    for warper in warpers:
        expected = warper(None, expected)
    request = Request("a", (1,), temperature=temperature, top_k=top_k, top_p=top_p)
    torch.testing.assert_close(probabilities(logits, [request]), expected.softmax(-1))


def test_probabilities_use_each_rows_own_request() -> None:
    logits = torch.tensor([[3.0, 2.0, 1.0]] * 3)
    asked = [Request("a", (1,)), Request("b", (1,), temperature=1.0), Request("c", (1,), temperature=1.0, top_k=2)]
    shares = probabilities(logits, asked)
    assert shares[0].tolist() == [1, 0, 0]
    torch.testing.assert_close(shares[1], logits[0].double().softmax(-1))
    torch.testing.assert_close(shares[2, :2], logits[0, :2].double().softmax(-1))
    assert shares[2, 2] == 0
    beyond_floats = Request("d", (1,), temperature=1.0, top_k=10**400)
    assert torch.equal(probabilities(logits[:1], [beyond_floats]), shares[1:2])


def test_uniform_numbers_are_uniform_and_independent() -> None:
    numbers = np.array([[uniform(seed, place) for place in range(60)] for seed in range(60)])
    assert scipy.stats.kstest(numbers.ravel(), "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(numbers[:, :-1].ravel(), numbers[:, 1:].ravel())[0, 1]) < 0.06
    assert abs(np.corrcoef(numbers[:-1].ravel(), numbers[1:].ravel())[0, 1]) < 0.06


def test_draw_never_returns_token_of_probability_zero() -> None:
    shares = torch.tensor([[0.0, 0.3, 0.0, 0.7, 0.0]], dtype=torch.float64)
    assert draw(shares, [0.0]) == [1]
    assert draw(shares, [0.3 - 1e-12]) == [1]
    assert draw(shares, [0.3 + 1e-12]) == [3]
    assert draw(shares, [1 - 2**-53]) == [3]


def fits(counts: Counter[Any], expected: dict[Any, float]) -> float:
    """Return the p-value of the chi-square test."""
    total = sum(counts.values())
    assert set(counts) <= {key for key, share in expected.items() if share > 0}
    keys = [key for key, share in expected.items() if share > 0]
    return float(scipy.stats.chisquare([counts[key] for key in keys], [total * expected[key] for key in keys]).pvalue)


P = torch.tensor([[0.5, 0.2, 0.2, 0.1], [0.1, 0.1, 0.1, 0.7], [0.25, 0.25, 0.4, 0.1]], dtype=torch.float64)
Q = torch.tensor([[0.1, 0.6, 0.2, 0.1], [0.3, 0.3, 0.3, 0.1]], dtype=torch.float64)


def test_accept_keeps_the_models_distribution() -> None:
    """First tokens are distributed as P[0]; in longer texts the second as P[1] and the third as P[2]."""
    kept: list[list[int]] = []
    for seed in range(6000):
        guessed = [draw(Q[at : at + 1], [uniform(seed, at, "guess")])[0] for at in range(2)]
        kept.append(accept(Guess(guessed, Q), P, seed, 0))
    for place in range(2):
        counts = Counter(tokens[place] for tokens in kept if len(tokens) > place)
        assert fits(counts, dict(enumerate(P[place].tolist()))) > 1e-3, place
    third = Counter(tokens[2] for tokens in kept if len(tokens) > 2)
    assert fits(third, dict(enumerate(P[2].tolist()))) > 1e-3
    # A guess stands with probability sum(min(p, q)).
    stood = sum(len(tokens) > 1 for tokens in kept) / len(kept)
    assert stood == pytest.approx(float(torch.minimum(P[0], Q[0]).sum()), abs=0.02)


def test_accept_keeps_deterministic_guess_with_its_probability() -> None:
    kept = [accept(Guess([1, 3]), P, seed, 0) for seed in range(4000)]
    assert fits(Counter(tokens[0] for tokens in kept), dict(enumerate(P[0].tolist()))) > 1e-3
    assert sum(len(tokens) > 1 for tokens in kept) / 4000 == pytest.approx(0.2, abs=0.02)
    assert all(tokens[0] == 1 for tokens in kept if len(tokens) > 1)


def small_model(seed: int, layers: int = 2) -> lm.LanguageModel:
    torch.manual_seed(seed)
    model = lm.LanguageModel(lm.Config(12, 16, layers, 4, 2, 4, 24, context=64)).eval().requires_grad_(False)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    return model


def test_speculation_keeps_the_distribution_of_texts() -> None:
    """Compare exact probabilities of all texts of two tokens with the texts that the engine drew."""
    model, prompt, count = small_model(0), (3, 1, 4), 1500
    with torch.no_grad():
        first = (model(torch.tensor([prompt]))[0, -1] / 0.7).double().softmax(-1)
        seconds = model(torch.tensor([[*prompt, token] for token in range(12)]))[:, -1]
    exact = {
        (one, two): float(first[one] * share)
        for one in range(12)
        for two, share in enumerate((seconds[one] / 0.7).double().softmax(-1).tolist())
    }
    engine = Engine(model, cost=COST, draft=ModelDraft(small_model(1, 1), 2, COST), limits=Limits(running=32))
    run = engine.run([Request(str(n), prompt, 3, temperature=0.7, seed=10**6 * n) for n in range(count)])
    counts = Counter(tokens[:2] for tokens in run.tokens.values())
    likely = {text: share for text, share in exact.items() if share * count > 8}
    rest = {"rest": 1 - sum(likely.values())}
    grouped = Counter({text: counts[text] for text in likely})
    grouped["rest"] = count - sum(grouped.values())
    assert len(likely) > 10
    assert fits(grouped, {**likely, **rest}) > 1e-3
    assert any(part.tokens > 1 and part.phase == "decode" for step in run.steps for part in step.scheduled)


@pytest.mark.parametrize("preemption", ["recompute", "swap"])
def test_draft_equal_to_the_model_is_always_accepted(preemption: Any) -> None:
    """Every guess is accepted as long as the draft's own pages are correct, shared, copied and swapped ones too."""
    model = small_model(2)
    limits = Limits(running=4, tokens=40, preemption=preemption)
    engine = Engine(model, blocks=14, block_size=4, cost=COST, draft=ModelDraft(model, 3, COST), limits=limits)
    prompt = (3, 1, 4, 1, 5, 9, 2, 6)
    asked = [Request(str(n), prompt[: 8 - n % 3], 17, samples=1 + n % 2) for n in range(7)]
    run = engine.run(asked)
    for request in asked:
        expected = tuple(lm.generate(model, request.prompt, 17))
        assert [run.tokens[name] for name in request.sample_ids] == [expected] * request.samples
    drawn = sum(len(tokens) - 1 for tokens in run.tokens.values())
    passed = sum(part.tokens for step in run.steps for part in step.scheduled if part.phase == "decode")
    assert passed <= drawn, "a guess that falls goes through the model and gives no token"
    assert sum(len(step.preempted) for step in run.steps) > 0


class Watched(ModelDraft):
    """A draft whose every guess is compared with its model's prediction from the text alone."""

    def guess(self, parts: Any) -> list[Guess]:
        found = super().guess(parts)
        for part, guess in zip(parts, found, strict=True):
            assert guess.tokens == list(lm.generate(self.model, part.sequence.tokens, part.guesses))
        return found


@pytest.mark.parametrize("preemption", ["recompute", "swap"])
def test_draft_cache_forgets_rejected_guesses(preemption: Any) -> None:
    model, near = small_model(3), small_model(3)
    for weight in near.parameters():
        weight += 0.05 * torch.randn_like(weight)
    draft = Watched(near, 3, COST)
    limits = Limits(running=4, tokens=40, preemption=preemption)
    engine = Engine(model, blocks=14, block_size=4, cost=COST, draft=draft, limits=limits)
    run = engine.run([Request(str(n), (3, 1, 4, 1, 5, 9, 2, 6)[: 8 - n % 3], 17, samples=1 + n % 2) for n in range(7)])
    decodes = [part for step in run.steps for part in step.scheduled if part.phase == "decode"]
    drawn = sum(len(tokens) - 1 for tokens in run.tokens.values())
    assert len(decodes) < drawn < sum(part.tokens for part in decodes), "some guesses stand, and some fall"
    assert sum(len(step.preempted) for step in run.steps) > 0


def test_look_up_finds_the_latest_longest_ending() -> None:
    draft = NgramDraft(guesses=3, longest=2)
    assert draft.look_up([1, 2, 8, 1, 2, 9, 5, 1, 2], 3) == [9, 5, 1]
    assert draft.look_up([4, 2, 8, 1, 2], 3) == [8, 1, 2]
    assert draft.look_up([1, 2, 3], 3) == []
    assert draft.look_up([1], 3) == []
    assert draft.look_up([6, 6], 3) == [6]


@given(st.lists(st.sampled_from([0, 1, 256, 2**32, 2**40]), min_size=1, max_size=14), st.integers(1, 4))
def test_look_up_equals_a_search_through_tokens(tokens: list[int], longest: int) -> None:
    found: list[int] = []
    for length in range(1, min(longest, len(tokens) - 1) + 1):
        for start in range(len(tokens) - length):
            if tokens[start : start + length] == tokens[-length:]:
                found = tokens[start + length :][:3]
    assert NgramDraft(3, longest).look_up(tokens, 3) == found


def test_ngram_draft_saves_steps_on_repetitive_text() -> None:
    model, tokenizer = lm.load()
    prompt = tuple(tokenizer.encode("x = 1\nx = 1\nx = 1\nx = 1\nx = 1\n"))
    plain = Engine(model, cost=COST).run([Request("a", prompt, 30)])
    ahead = Engine(model, cost=COST, draft=NgramDraft(4)).run([Request("a", prompt, 30)])
    assert ahead.tokens == plain.tokens
    assert len(ahead.steps) < 0.7 * len(plain.steps)
