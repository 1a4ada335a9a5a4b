"""Tests of log-probabilities, echo, penalties and bias over HTTP, by OpenAI's own client against transformers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import torch

from mlsys_labkit.lm.checkpoint import WEIGHTS
from mlsys_labkit.serving.server.logprobs import text_of
from tests.serving.endpoint import BYTES, CODEC, alone, greedy, scripted
from tests.serving.running import Running, eventually

if TYPE_CHECKING:
    import openai

pytestmark = pytest.mark.xdist_group("endpoint")
PROMPT = "def read_file(path):\n    é = open("


@pytest.fixture(scope="module")
def theirs() -> Any:
    import transformers

    return transformers.AutoModelForCausalLM.from_pretrained(str(WEIGHTS), dtype=torch.float32).eval()


def rows_of(theirs: Any, tokens: list[int]) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = theirs(torch.tensor([tokens])).logits[0].log_softmax(-1)
    return found


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("echo", "count"), [(True, 6), (True, 1), (True, 0), (False, 6)])
def test_logprobs_of_prompt_and_text(client: openai.OpenAI, theirs: Any, echo: bool, count: int, stream: bool) -> None:
    given = client.completions.create(
        model="mlsys-tiny", prompt=PROMPT, max_tokens=count, temperature=0, logprobs=4, echo=echo, stream=stream
    )
    choices = [chunk.choices[0] for chunk in given] if stream else [given.choices[0]]
    text = "".join(choice.text for choice in choices)
    told: dict[str, list[Any]] = {name: [] for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset")}
    for choice in choices:
        for name, items in told.items():
            items += getattr(choice.logprobs, name)
    assert text == (PROMPT if echo else "") + (greedy(PROMPT, count) if count else "")
    assert choices[-1].finish_reason == "length"
    prompt = CODEC.encode(PROMPT)
    tokens = prompt + CODEC.encode(greedy(PROMPT, count)) if count else prompt
    rows = rows_of(theirs, tokens)
    first = 0 if echo else len(prompt)
    assert told["tokens"] == [text_of(CODEC, token) for token in tokens[first:]]
    for place, (logprob, top) in enumerate(zip(told["token_logprobs"], told["top_logprobs"], strict=True), first):
        if place == 0:
            assert (logprob, top) == (None, None)
            continue
        row = rows[place - 1]
        assert logprob == pytest.approx(float(row[tokens[place]]), abs=1e-4)
        best = {text_of(CODEC, token): float(row[token]) for token in row.topk(4).indices.tolist()}
        assert top == pytest.approx({**best, text_of(CODEC, tokens[place]): logprob}, abs=1e-4)
    for token, offset in zip(told["tokens"], told["text_offset"], strict=True):
        assert token.startswith("bytes:") or text[offset : offset + len(token)] == token


def test_chat_style_sampling_does_not_change_logprobs(client: openai.OpenAI, theirs: Any) -> None:
    """They are the model's own, whatever temperature, penalties and bias the tokens are drawn by."""
    tokens = CODEC.encode(PROMPT)
    answer = client.completions.create(
        model="mlsys-tiny", prompt=tokens, max_tokens=5, temperature=1.7, top_p=0.9, seed=5, logprobs=0, n=2,
        frequency_penalty=2.0, logit_bias={"300": -100, "65": 3}, extra_body={"repetition_penalty": 1.9},
    )  # fmt: skip
    assert answer.choices[0].text != answer.choices[1].text
    for choice in answer.choices:
        drawn = CODEC.encode(choice.text)
        assert [text_of(CODEC, token) for token in drawn] == choice.logprobs.tokens, (
            "take a seed without other encodings"
        )
        rows = rows_of(theirs, tokens + drawn)
        expected = [float(rows[len(tokens) - 1 + at, token]) for at, token in enumerate(drawn)]
        assert choice.logprobs.token_logprobs == pytest.approx(expected, abs=1e-4)


def test_greedy_text_under_a_penalty_is_that_of_transformers(client: openai.OpenAI) -> None:
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(str(WEIGHTS), dtype=torch.float32)
    tokens = CODEC.encode("for i in range(")
    for penalty, bias in ((1.3, {}), (1.0, {261: 4, 300: -100})):  # the two libraries apply both in another order
        with torch.no_grad():
            made = model.generate(
                torch.tensor([tokens]), max_new_tokens=20, do_sample=False, repetition_penalty=penalty,
                sequence_bias={(token,): float(value) for token, value in bias.items()} or None,
                eos_token_id=None, pad_token_id=0,
            )  # fmt: skip
        answer = client.completions.create(
            model="mlsys-tiny", prompt=tokens, max_tokens=20, temperature=0,
            logit_bias={str(token): value for token, value in bias.items()},
            extra_body={"repetition_penalty": penalty, "ignore_eos": True},
        )  # fmt: skip
        assert answer.choices[0].text == CODEC.decode(made[0, len(tokens) :].tolist())


def test_frequency_penalty_ends_repetition_and_bias_bans_a_token(client: openai.OpenAI) -> None:
    loop = "x = x + x + x + x + x + x + x +"
    plain = greedy(loop, 30)
    asked = {"model": "mlsys-tiny", "prompt": loop, "max_tokens": 30, "temperature": 0}
    punished = client.completions.create(**asked, frequency_penalty=2, presence_penalty=2).choices[0].text
    assert len(set(CODEC.encode(punished))) > len(set(CODEC.encode(plain)))
    token = CODEC.encode(plain)[0]
    banned = client.completions.create(**asked, logit_bias={str(token): -100}).choices[0].text
    assert not banned.startswith(CODEC.decode([token]))
    assert client.completions.create(**asked, frequency_penalty=0, logit_bias={}).choices[0].text == plain


def test_logprobs_have_an_entry_for_every_token_also_the_one_that_ends(tiny: Running) -> None:
    """Tools such as lm-eval count them: a missing entry would shift all others."""
    with scripted([0, 72, 105, BYTES.end]) as running:
        body = {"prompt": [1, 72], "max_tokens": 5, "temperature": 0, "logprobs": 1, "echo": True}
        answer = running.ask("/v1/completions", body)[1]
        (choice,) = answer["choices"]
        assert choice["text"] == "\x01Hi"
        assert choice["logprobs"]["tokens"] == ["\x01", "H", "i", "<|endoftext|>"]
        assert choice["logprobs"]["text_offset"] == [0, 1, 2, 3]
        assert len(choice["logprobs"]["tokens"]) == answer["usage"]["total_tokens"]
        stopped = running.ask("/v1/completions", {**body, "echo": False, "stop": ["i"]})[1]["choices"][0]
        assert (stopped["text"], stopped["finish_reason"], stopped["logprobs"]["tokens"]) == ("", "stop", ["i"])


def test_logprobs_are_json_that_every_parser_reads() -> None:
    """A token of probability 0 has the logarithm minus infinity, which JSON does not have."""
    with scripted([0, 72]) as running:
        running.engine.runner.run = lambda chunks: torch.full(
            (sum(c.logits for c in chunks), 257), -math.inf
        ).index_fill(1, torch.tensor([72]), 0.0)  # type: ignore[method-assign]
        body = {"prompt": [1, 5], "max_tokens": 1, "temperature": 0, "logprobs": 2, "echo": True}
        (choice,) = running.ask("/v1/completions", body)[1]["choices"]
        assert choice["logprobs"]["token_logprobs"] == [None, -9999.0, 0.0]


def test_echo_without_logprobs_and_without_new_tokens(client: openai.OpenAI, tiny: Running) -> None:
    made = tiny.metric("output_tokens_total")
    answer = client.completions.create(model="mlsys-tiny", prompt=[PROMPT, "b"], max_tokens=0, echo=True, n=2)
    assert [(choice.text, choice.finish_reason) for choice in answer.choices] == [
        *[(PROMPT, "length")] * 2,
        *[("b", "length")] * 2,
    ]
    assert (answer.usage.completion_tokens, answer.usage.total_tokens) == (0, answer.usage.prompt_tokens)
    silent = client.completions.create(model="mlsys-tiny", prompt=PROMPT, max_tokens=0)
    assert silent.choices[0].text == ""
    eventually(lambda: tiny.metric("cache_blocks_used") == 0)
    assert tiny.metric("output_tokens_total") == made


def test_plain_request_beside_scored_ones_is_unchanged(client: openai.OpenAI) -> None:
    for _ in range(2):  # the second time the prefix is in the cache
        scored = client.completions.create(
            model="mlsys-tiny", prompt=PROMPT, max_tokens=20, temperature=0, logprobs=1, echo=True
        )
        assert scored.choices[0].text == PROMPT + greedy(PROMPT, 20)
        plain = client.completions.create(model="mlsys-tiny", prompt=PROMPT, max_tokens=20, temperature=0)
        assert (plain.choices[0].text, plain.choices[0].logprobs) == (alone(PROMPT, 20)[0], None)
