"""Tests of the endpoint by real HTTP: OpenAI's own client, texts, ends and failures."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
import torch

from mlsys_labkit.serving import Engine
from mlsys_labkit.serving.scheduler import Limits
from mlsys_labkit.serving.server.job import Served
from tests.serving.endpoint import BYTES, CODEC, PROMPTS, alone, greedy, scripted
from tests.serving.running import Running, Script, eventually, run

if TYPE_CHECKING:
    import openai

pytestmark = pytest.mark.xdist_group("endpoint")


@pytest.mark.parametrize("prompt", PROMPTS)
def test_completion_equals_greedy_text_of_the_model(client: openai.OpenAI, prompt: str) -> None:
    answer = client.completions.create(model="mlsys-tiny", prompt=prompt, max_tokens=24, temperature=0)
    (choice,) = answer.choices
    assert (choice.text, answer.usage.completion_tokens, choice.finish_reason) == alone(prompt, 24)
    assert answer.usage.prompt_tokens == len(CODEC.encode(prompt))
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert (answer.object, answer.model) == ("text_completion", "mlsys-tiny")


def test_stream_equals_the_whole_completion(client: openai.OpenAI) -> None:
    chunks = list(
        client.completions.create(
            model="mlsys-tiny",
            prompt="def read",
            max_tokens=20,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    *texts, usage = chunks
    assert "".join(chunk.choices[0].text for chunk in texts) == greedy("def read", 20)
    assert len(texts) == 20
    assert [chunk.choices[0].finish_reason for chunk in texts] == [None] * 19 + ["length"]
    assert (usage.choices, usage.usage.completion_tokens) == ([], 20)
    assert len({chunk.id for chunk in chunks}) == 1


def test_stream_is_server_sent_events_ending_in_done(tiny: Running) -> None:
    status, text, headers = tiny.ask("/v1/completions", {"prompt": "x = ", "max_tokens": 3, "stream": True})
    assert (status, headers["Content-Type"]) == (200, "text/event-stream; charset=utf-8")
    *events, done, rest = text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    assert all("usage" not in json.loads(event.removeprefix("data: ")) for event in events)


def test_seed_fixes_texts_and_choices_differ(client: openai.OpenAI) -> None:
    def texts(n: int, seed: int) -> list[str]:
        answer = client.completions.create(
            model="mlsys-tiny", prompt="def ", max_tokens=12, temperature=1.0, top_p=0.95, n=n, seed=seed
        )
        assert [choice.index for choice in answer.choices] == list(range(n))
        return [choice.text for choice in answer.choices]

    three = texts(3, seed=7)
    assert three == texts(3, seed=7)
    assert len(set(three)) == 3
    assert three == [*texts(1, seed=7), *texts(1, seed=8), *texts(1, seed=9)]
    unseeded = {
        client.completions.create(model="mlsys-tiny", prompt="def ", max_tokens=12).choices[0].text for _ in range(4)
    }
    assert len(unseeded) > 1


def test_stream_interleaves_n_choices(client: openai.OpenAI) -> None:
    whole = client.completions.create(model="mlsys-tiny", prompt="def ", max_tokens=8, n=2, seed=3)
    pieces: dict[int, str] = {0: "", 1: ""}
    stream = client.completions.create(model="mlsys-tiny", prompt="def ", max_tokens=8, n=2, seed=3, stream=True)
    order = []
    for chunk in stream:
        pieces[chunk.choices[0].index] += chunk.choices[0].text
        order.append(chunk.choices[0].index)
    assert list(pieces.values()) == [choice.text for choice in whole.choices]
    assert order != sorted(order)


def test_prompts_may_be_texts_or_tokens_one_or_many(client: openai.OpenAI) -> None:
    def ask(prompt: Any, **options: Any) -> list[str]:
        answer = client.completions.create(model="mlsys-tiny", prompt=prompt, max_tokens=6, temperature=0, **options)
        return [choice.text for choice in answer.choices]

    one, two = PROMPTS[:2]
    assert ask([one, two]) == [greedy(one, 6), greedy(two, 6)]
    assert ask(CODEC.encode(one)) == [greedy(one, 6)]
    assert ask([CODEC.encode(one), CODEC.encode(two)]) == [greedy(one, 6), greedy(two, 6)]
    assert ask(one, echo=True) == [one + greedy(one, 6)]
    assert ask(CODEC.encode(two), echo=True) == [two + greedy(two, 6)]
    assert ask([one, two], n=2) == [greedy(one, 6)] * 2 + [greedy(two, 6)] * 2


@pytest.mark.parametrize("stream", [False, True])
def test_stop_string_ends_text_before_it(client: openai.OpenAI, tiny: Running, stream: bool) -> None:
    text = greedy("def read", 60)
    stop = text[20:23]
    assert text.index(stop) > 5
    made, ended = tiny.metric("output_tokens_total"), tiny.metric('requests_ended_total{reason="stop"}')
    answer = client.completions.create(
        model="mlsys-tiny", prompt="def read", max_tokens=60, temperature=0, stop=[stop, "\u2603"], stream=stream
    )
    chunks = list(answer) if stream else [answer]
    assert "".join(chunk.choices[0].text for chunk in chunks) == text[: text.index(stop)]
    assert chunks[-1].choices[0].finish_reason == "stop"
    eventually(lambda: tiny.metric("cache_blocks_used") == 0)
    assert tiny.metric("output_tokens_total") - made < 40  # the engine did not go on to 60
    assert tiny.metric('requests_ended_total{reason="stop"}') == ended + 1


def test_stop_string_ends_only_its_own_choice(client: openai.OpenAI) -> None:
    def ask(n: int, seed: int) -> tuple[list[tuple[str, str]], int]:
        asked = {"model": "mlsys-tiny", "prompt": "def ", "max_tokens": 40, "temperature": 1.0, "stop": "\n"}
        answer = client.completions.create(**asked, n=n, seed=seed)
        return [(choice.text, choice.finish_reason) for choice in answer.choices], answer.usage.completion_tokens

    singles = [ask(1, seed) for seed in range(4)]
    together, tokens = ask(4, 0)
    assert together == [choice for choices, _ in singles for choice in choices]
    assert tokens == sum(count for _, count in singles)
    assert len({count for _, count in singles}) > 1  # they did not end at once


class OneStops(Script):
    """Two samples; the first draws a "B" as its third token, every other token is "A"."""

    def run(self, chunks: Any) -> torch.Tensor:
        logits = super().run(chunks)
        if len(chunks) == 2 and chunks[0].past == 3:
            logits[0].zero_()[66] = 1000.0
        return logits


def test_stop_string_ends_drawing_for_its_choice() -> None:
    engine = Engine(runner=OneStops([65]), blocks=256, limits=Limits(running=2))
    engine.runner.pace_seconds = 0.002
    with Running(engine, Served("scripted", BYTES, 4096, 257)) as running:
        client = running.connect({"prompt": "ab", "max_tokens": 4000, "n": 2, "stop": "B", "stream": True})
        eventually(lambda: running.metric("requests_running") == 1)
        assert running.metric('requests_ended_total{reason="stop"}') == 1
        client.close()
        eventually(lambda: running.metric("requests_running") == 0)
        assert running.metric('requests_ended_total{reason="abort"}') == 1


def test_concurrent_clients_get_the_same_texts_as_alone(tiny: Running) -> None:
    import openai

    steps, tokens = tiny.metric("steps_total"), tiny.metric("output_tokens_total")

    async def one(client: openai.AsyncOpenAI, prompt: str, count: int, stream: bool) -> str:
        asked = {"model": "mlsys-tiny", "prompt": prompt, "max_tokens": count, "temperature": 0, "stream": stream}
        answer = await client.completions.create(**asked)
        return "".join([chunk.choices[0].text async for chunk in answer]) if stream else answer.choices[0].text

    async def all_at_once() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{tiny.url}/v1", api_key="none", max_retries=0) as client:
            return await asyncio.gather(*(one(client, *job) for job in jobs))

    jobs = [(PROMPTS[i % len(PROMPTS)], 10 + 3 * i, i % 2 == 0) for i in range(14)]
    assert run(lambda: asyncio.run(all_at_once())) == [greedy(prompt, count) for prompt, count, _ in jobs]
    made = tiny.metric("output_tokens_total") - tokens
    assert made == sum(alone(prompt, count)[1] for prompt, count, _ in jobs)
    assert tiny.metric("steps_total") - steps < made / 2  # they shared steps: continuous batching


def test_models_and_health_routes(client: openai.OpenAI, tiny: Running) -> None:
    import openai

    assert [model.id for model in client.models.list()] == ["mlsys-tiny"]
    assert client.models.retrieve("mlsys-tiny").id == "mlsys-tiny"
    with pytest.raises(openai.NotFoundError, match="'gpt-4' is not served here; this server has 'mlsys-tiny'"):
        client.models.retrieve("gpt-4")
    assert tiny.ask("/health")[:2] == (200, {"status": "ok"})


# --- text, ends and failures, with texts written by hand -------------------------------------------------------------


def test_stream_pieces_end_at_character_boundaries() -> None:
    import openai

    text = "né €uro 😀 ж!"
    with scripted([0, *BYTES.encode(text), BYTES.end]) as running:
        client = openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0)
        chunks = list(
            client.completions.create(model="scripted", prompt=[1], max_tokens=90, stream=True, temperature=0)
        )
        pieces = [chunk.choices[0].text for chunk in chunks]
        client.close()
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces)
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_end_token_ends_text_unless_ignored() -> None:
    with scripted([0, 72, 105, BYTES.end]) as running:
        body = {"prompt": [1], "max_tokens": 5, "temperature": 0}
        (choice,) = (answer := running.ask("/v1/completions", body)[1])["choices"]
        assert (choice["text"], choice["finish_reason"], answer["usage"]["completion_tokens"]) == ("Hi", "stop", 3)
        (choice,) = running.ask("/v1/completions", {**body, "ignore_eos": True})[1]["choices"]
        assert (choice["text"], choice["finish_reason"]) == ("Hi" + "<|endoftext|>" * 3, "length")


def test_incomplete_character_at_the_end_is_replaced() -> None:
    with scripted([0, *"a€".encode()]) as running:
        (choice,) = running.ask("/v1/completions", {"prompt": [1], "max_tokens": 2, "temperature": 0})[1]["choices"]
    assert choice["text"] == "a\ufffd"


def test_engine_failure_is_answered_and_the_next_request_served(caplog: pytest.LogCaptureFixture) -> None:
    with scripted([65]) as running:
        running.engine.runner.fails = 1
        status, answer, _ = running.ask("/v1/completions", {"prompt": "a", "max_tokens": 4})
        assert (status, answer["error"]["type"]) == (500, "server_error")
        assert "RuntimeError: the device fell off the bus" in answer["error"]["message"]
        assert running.ask("/v1/completions", {"prompt": "a", "max_tokens": 4})[0] == 200
    assert "fell off the bus" in caplog.text
    assert "Traceback" in caplog.text  # whoever runs the server learns where


def test_engine_failure_ends_an_open_stream_with_an_error() -> None:
    import openai

    with scripted([65]) as running:
        running.engine.runner.pace_seconds = 0.01
        client = openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0)
        stream = client.completions.create(model="scripted", prompt="a", max_tokens=900, stream=True)
        assert next(iter(stream)).choices[0].text == "A"
        running.engine.runner.fails = 1
        with pytest.raises(openai.APIError, match="fell off the bus"):
            list(stream)
        client.close()


# --- the end ---------------------------------------------------------------------------------------------------------


def test_stop_finishes_running_requests_and_refuses_new_ones() -> None:
    import openai

    with scripted([65]) as running:
        running.engine.runner.pace_seconds = 0.01
        client = openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0)
        stream = client.completions.create(model="scripted", prompt="a", max_tokens=50, stream=True)
        assert next(iter(stream)).choices[0].text == "A"
        running.stop()
        assert "".join(chunk.choices[0].text for chunk in stream) == "A" * 49
        running.join()
        with pytest.raises(openai.APIConnectionError):
            client.completions.create(model="scripted", prompt="a")
        client.close()


def test_second_stop_ends_at_once_and_reports_it() -> None:
    import openai

    with scripted([65]) as running:
        running.engine.runner.pace_seconds = 0.01
        client = openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0)
        stream = client.completions.create(model="scripted", prompt="a", max_tokens=900, stream=True)
        next(iter(stream))
        running.stop()
        running.stop()
        with pytest.raises(openai.APIError, match="the server is stopping"):
            list(stream)
        running.join()
        client.close()
