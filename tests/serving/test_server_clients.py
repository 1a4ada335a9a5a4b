"""Tests of the endpoint against clients that send what cannot be served, and clients that misbehave."""

from __future__ import annotations

import asyncio
import json
import random
import re
import socket
import struct
from typing import TYPE_CHECKING, Any

import pytest

from mlsys_labkit.serving import Engine
from mlsys_labkit.serving.scheduler import Limits
from mlsys_labkit.serving.server import app
from mlsys_labkit.serving.server.job import Served
from tests.serving.endpoint import BYTES, rest, scripted
from tests.serving.running import Running, Script, eventually, run

if TYPE_CHECKING:
    import openai

pytestmark = pytest.mark.xdist_group("endpoint")


BAD = [
    (b"{", 400, "the body is not JSON", None),
    (b"\xff\xfe", 400, "the body is not JSON", None),
    (b"[1]", 400, "the body is a list, expected an object", None),
    ({}, 400, "prompt is missing, expected a text", "prompt"),
    ({"prompt": ""}, 400, "prompt 0 is empty", "prompt"),
    ({"prompt": []}, 400, "prompt is an empty list", "prompt"),
    ({"prompt": [1.5]}, 400, "prompt is a list with 1.5 in it", "prompt"),
    ({"prompt": ["a", 3]}, 400, "prompt is a list with 3 in it", "prompt"),
    ({"prompt": ["a"] * 129}, 400, "129 texts, at most 128", "prompt"),
    ({"prompt": [5000]}, 400, "prompt 0 has the token 5000, expected 0 to 2047", "prompt"),
    ({"prompt": ["a", [3, -1]]}, 400, "prompt 1 has the token -1, expected 0 to 2047", "prompt"),
    ({"prompt": "a", "max_tokens": -1}, 400, "max_tokens is -1, expected a whole number from 0 up", "max_tokens"),
    ({"prompt": "a", "max_tokens": "9"}, 400, 'max_tokens is "9", expected a whole number', "max_tokens"),
    ({"prompt": "a", "max_tokens": True}, 400, "max_tokens is true", "max_tokens"),
    ({"prompt": "a " * 500}, 400, "together more than the model's context of 512; shorten one", "prompt"),
    ({"prompt": "a", "max_tokens": 512}, 400, "prompt 0 has 1 tokens and max_tokens is 512", "prompt"),
    ({"prompt": "a", "temperature": 3}, 400, "temperature is 3, expected a number from 0 to 2", "temperature"),
    (b'{"prompt": "a", "temperature": NaN}', 400, "temperature is NaN", "temperature"),
    ({"prompt": "a", "top_p": 0}, 400, "top_p is 0, expected a number above 0", "top_p"),
    ({"prompt": "a", "n": 9}, 400, "asks for 9 samples and 8 run at a time", None),
    ({"prompt": "a", "stop": ["a", ""]}, 400, "none of them empty", "stop"),
    ({"prompt": "a", "stop": ["a"] * 17}, 400, "up to 16 texts", "stop"),
    ({"prompt": "a", "stop": {"a": 1}}, 400, "stop takes a text", "stop"),
    ({"prompt": "a", "stream": "yes"}, 400, 'stream is "yes", expected true or false', "stream"),
    ({"prompt": "a", "stream_options": {"include_usage": True}}, 400, "goes with stream=true", "stream_options"),
    ({"prompt": "a", "logprobs": 21}, 400, "logprobs is 21, expected a whole number from 0 to 20", "logprobs"),
    ({"prompt": "a", "logprobs": True}, 400, "logprobs is true, expected a whole number from 0 to 20", "logprobs"),
    ({"prompt": "a", "frequency_penalty": 2.5}, 400, "from -2 to 2", "frequency_penalty"),
    ({"prompt": "a", "presence_penalty": "1"}, 400, 'presence_penalty is "1", expected a number', "presence_penalty"),
    (
        {"prompt": "a", "repetition_penalty": 0},
        400,
        "repetition_penalty is 0, expected a number above 0",
        "repetition_penalty",
    ),
    ({"prompt": "a", "logit_bias": [5]}, 400, "logit_bias is [5], expected an object from token numbers", "logit_bias"),
    ({"prompt": "a", "logit_bias": {"5": 101}}, 400, 'logit_bias has "5": 101, expected', "logit_bias"),
    ({"prompt": "a", "logit_bias": {"-5": 1}}, 400, 'logit_bias has "-5": 1, expected', "logit_bias"),
    (b'{"prompt": "a", "logit_bias": {"5": NaN}}', 400, 'logit_bias has "5": NaN', "logit_bias"),
    ({"prompt": "a", "logit_bias": {"2048": 1}}, 400, "logit_bias has the token 2048, expected 0 to 2047", None),
    ({"prompt": "a", "best_of": 2}, 400, "best_of is not supported", "best_of"),
    ({"prompt": "a", "max_tokns": 5}, 400, "there is no field 'max_tokns'", "max_tokns"),
    ({"prompt": "a", "model": "gpt-4"}, 404, "'gpt-4' is not served here; this server has 'mlsys-tiny'", "model"),
    ({"prompt": "a", "model": 7}, 404, "the model 7 is not served here", "model"),
]


@pytest.mark.parametrize(("body", "status", "says", "param"), BAD)
def test_wrong_body_is_answered_with_the_expected_form(
    tiny: Running, body: Any, status: int, says: str, param: str | None
) -> None:
    streamed = {**body, "stream": True} if isinstance(body, dict) and "stream" not in str(body) else body
    for each in (body, streamed):
        got, answer, headers = tiny.ask("/v1/completions", each)
        assert got == status
        assert headers["Content-Type"].startswith("application/json")
        assert says in answer["error"]["message"]
        assert "\n" not in answer["error"]["message"]
        assert answer["error"]["param"] == param
        assert answer["error"]["type"] == "invalid_request_error"


def test_openai_client_raises_its_own_errors(client: openai.OpenAI) -> None:
    import openai

    with pytest.raises(openai.NotFoundError, match="not served here"):
        client.completions.create(model="gpt-4", prompt="a")
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="mlsys-tiny", prompt="a " * 600)
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "prompt")
    with pytest.raises(openai.NotFoundError, match="is a base model without a chat template"):
        client.chat.completions.create(model="mlsys-tiny", messages=[{"role": "user", "content": "hello"}])


@pytest.mark.parametrize(
    ("method", "path", "status", "says"),
    [
        ("GET", "/v1/nowhere", 404, "there is nothing at /v1/nowhere; this server has /v1/models"),
        ("GET", "/v1/completions", 405, "/v1/completions does not take GET"),
        ("DELETE", "/v1/models", 405, "does not take DELETE"),
    ],
)
def test_unknown_route_is_answered_in_json(tiny: Running, method: str, path: str, status: int, says: str) -> None:
    got, answer, _ = tiny.ask(path, method=method)
    assert got == status
    assert says in answer["error"]["message"]


def test_refused_prompt_among_several_leaves_no_request() -> None:
    with scripted([65], blocks=8) as running:  # 128 slots
        status, answer, _ = running.ask("/v1/completions", {"prompt": [[5], [6] * 100, [7]], "max_tokens": 100})
        assert status == 400
        assert "'cmpl-1.1' needs 199 slots and the cache has 128" in answer["error"]["message"]
        eventually(lambda: running.metric("cache_blocks_used") == 0)


# --- clients that misbehave ------------------------------------------------------------------------------------------


def reset(client: socket.socket) -> None:
    """Close the connection without a goodbye, as a closed laptop does."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("leave", [socket.socket.close, reset])
def test_disconnected_client_frees_its_blocks(stream: bool, leave: Any) -> None:
    with scripted([65], blocks=256) as running:
        running.engine.runner.pace_seconds = 0.005  # 4000 tokens would take 20 s
        body = {"prompt": "a", "max_tokens": 4000, "stream": stream, "n": 3}
        client = running.connect(body)
        if stream:
            assert b"200 OK" in client.recv(200)
        eventually(lambda: running.metric("requests_running") == 3)
        leave(client)
        eventually(lambda: running.metric("requests_running") == 0)
        assert running.metric("cache_blocks_used") == 0
        assert running.metric('requests_ended_total{reason="abort"}') == 3
        assert running.metric("output_tokens_total") < 6000  # of 12000: it did not run to its end
        assert running.ask("/v1/completions", {"prompt": "a", "max_tokens": 4})[1]["choices"][0]["text"] == "AAAA"


def test_client_that_does_not_read_is_dropped_and_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "SLOWEST_SECONDS", 0.5)
    engine = Engine(runner=Script([65]), blocks=4200, limits=Limits(running=17))
    with Running(engine, Served("scripted", BYTES, 4096, 257), send_buffer_bytes=4096) as running:
        body = {"prompt": "a", "max_tokens": 2000, "stream": True, "n": 16}
        slow = running.connect(body, receive_buffer_bytes=4096)
        assert b"200 OK" in slow.recv(200)
        for _ in range(3):
            answer = running.ask("/v1/completions", {"prompt": "b", "max_tokens": 5})[1]
            assert answer["choices"][0]["text"] == "AAAAA"
        eventually(lambda: running.metric("requests_running") == 0)
        assert running.metric('requests_ended_total{reason="abort"}') == 16
        slow.settimeout(20)
        assert b"[DONE]" not in rest(slow)  # the server hung up
        slow.close()


def test_clients_over_the_limit_get_503_with_retry_after(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "MOST_JOBS", 1)
    with scripted([65]) as running:
        running.engine.runner.pace_seconds = 0.01
        client = running.connect({"prompt": "a", "max_tokens": 900, "stream": True})
        assert b"200 OK" in client.recv(200)
        status, answer, headers = running.ask("/v1/completions", {"prompt": "a"})
        assert (status, headers["Retry-After"]) == (503, "1")
        assert answer["error"]["type"] == "server_error"
        client.close()


@pytest.mark.parametrize("seed", [0, 1])
def test_clients_leaving_at_random_free_every_block(seed: int) -> None:
    """More clients than places, more tokens than blocks, and half of the clients hang up at random."""
    chance = random.Random(seed)
    script = [0, *(chance.randrange(97, 123) for _ in range(300))]

    async def one(port: int) -> None:
        await asyncio.sleep(chance.random() * 0.3)
        prompt, count, n = [1] * chance.randint(1, 40), chance.randint(1, 80), chance.randint(1, 2)
        stream, patience = chance.random() < 0.7, chance.choice([None, chance.random() * 0.5])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        body = {"prompt": prompt, "max_tokens": count, "n": n, "stream": stream, "temperature": 0}
        data = json.dumps(body).encode()
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n")
        writer.write(b"Content-Length: %d\r\n\r\n%s" % (len(data), data))
        try:
            got = await asyncio.wait_for(reader.read(), patience)
            assert got.startswith(b"HTTP/1.1 200")
            told = re.findall(rb'"index": ?(\d), ?"text": ?"([a-z]*)"', got)
            for index in range(n):
                want = bytes(script[len(prompt) : len(prompt) + count])
                assert b"".join(text for which, text in told if int(which) == index) == want
        except TimeoutError:
            writer.transport.abort()
        else:
            writer.close()

    async def crowd(port: int) -> None:
        await asyncio.gather(*(one(port) for _ in range(60)))

    engine = Engine(runner=Script(script), blocks=20, limits=Limits(running=6, tokens=48))
    with Running(engine, Served("scripted", BYTES, 4096, 257)) as running:
        running.engine.runner.pace_seconds = 0.001
        run(lambda: asyncio.run(crowd(running.port)))
        eventually(lambda: running.metric("requests_running") + running.metric("requests_waiting") == 0)
        assert running.metric("cache_blocks_used") == 0
        ended = {reason: running.metric(f'requests_ended_total{{reason="{reason}"}}') for reason in ("length", "abort")}
        assert min(ended.values()) > 0  # some of both


def test_oversized_body_is_refused(tiny: Running) -> None:
    with socket.create_connection(("127.0.0.1", tiny.port)) as client:
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 4")
