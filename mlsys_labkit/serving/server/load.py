"""``labkit load``: sends a trace of requests to any OpenAI-compatible endpoint and measures latencies.

The loop is open: requests are sent at the times of the trace, however slow the answers are.

Reference: Schroeder et al., "Open Versus Closed: A Cautionary Tale", NSDI 2006.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from itertools import pairwise
from typing import Any

from mlsys_labkit.errors import LabkitError, require
from mlsys_labkit.serving.metrics import Latency, RunMetrics
from mlsys_labkit.serving.records import Request

FAILED = 1
KEY_VARIABLE = "LABKIT_API_KEY"
_ANSWER_SECONDS = 3600.0


@dataclass(frozen=True)
class Load:
    """The result of a load: latencies as a client sees them, and a line for each request that failed."""

    metrics: RunMetrics
    failures: tuple[str, ...] = ()

    def __str__(self) -> str:
        told = [f"{len(self.failures)} requests failed, the first: {self.failures[0]}"] if self.failures else []
        return "\n".join([str(self.metrics), *told])


@dataclass
class _Answer:
    """A stream as it is read. A piece of text counts as a token, which is nearly always true."""

    seconds: list[float]
    tokens: int = 0
    reason: str = ""
    failure: str = ""
    head: bytes = b""  # the first bytes: the error's text if the answer is no stream
    rest: bytes = b""


async def drive(url: str, requests: Sequence[Request], api_key: str | None = None) -> Load:
    """Send requests to the endpoint at ``url`` (its ``/v1``) at their arrival times, and wait for all answers.

    Raises LabkitError when there is no endpoint, or a request asks for several samples.
    """
    require("tornado", "labs")
    from tornado.simple_httpclient import SimpleAsyncHTTPClient

    if any(request.samples > 1 for request in requests):
        raise LabkitError("a load sends requests of one sample each; give every sample a request of its own")
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    client = SimpleAsyncHTTPClient(force_instance=True, max_clients=max(1, len(requests)))
    try:
        model = await _model(client, url, headers)
        loop = asyncio.get_running_loop()
        zero = loop.time()
        answers = await asyncio.gather(*(_ask(client, url, model, request, zero, headers) for request in requests))
        end = loop.time() - zero
    finally:
        client.close()
    rows = [_latency(request, answer) for request, answer in zip(requests, answers, strict=True)]
    first = min((request.arrival_seconds for request in requests), default=0.0)
    metrics = RunMetrics(
        requests=len(rows),
        latencies=tuple(rows),
        seconds=end - first,
        prompt_tokens=sum(row.prompt_tokens for row in rows),
        output_tokens=sum(row.output_tokens for row in rows),
        clock="real",
    )
    return Load(metrics, tuple(f"{r.id}: {a.failure}" for r, a in zip(requests, answers, strict=True) if a.failure))


async def _model(client: Any, url: str, headers: dict[str, str]) -> str:
    try:
        answer = await client.fetch(f"{url}/models", headers=headers, raise_error=False)
        if answer.code == HTTPStatus.UNAUTHORIZED:
            raise LabkitError(f"{url} asks for its API key (HTTP 401); give it by --api-key or {KEY_VARIABLE}")
        answer.rethrow()
        return str(json.loads(answer.body)["data"][0]["id"])
    except (OSError, ValueError, KeyError, IndexError, TypeError, _http_error()) as error:
        raise LabkitError(f"no endpoint answers at {url}/models ({error}); start one by: labkit serve") from None


def _http_error() -> type[Exception]:
    from tornado.httpclient import HTTPError

    return HTTPError


async def _ask(client: Any, url: str, model: str, request: Request, zero: float, headers: dict[str, str]) -> _Answer:
    loop = asyncio.get_running_loop()
    answer = _Answer([])
    body: dict[str, Any] = {
        "model": model,
        "prompt": request.prompt,
        "max_tokens": request.max_new_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "seed": request.seed,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.top_k:  # not a field of OpenAI's own
        body["top_k"] = request.top_k
    await asyncio.sleep(zero + request.arrival_seconds - loop.time())
    try:
        done = await client.fetch(
            f"{url}/completions",
            method="POST",
            headers=headers,
            body=json.dumps(body),
            streaming_callback=lambda piece: _hear(answer, piece, loop.time() - zero),
            request_timeout=_ANSWER_SECONDS,
            raise_error=False,
        )
    except (OSError, _http_error()) as error:
        answer.failure = str(error)
    else:
        if done.code != 200:
            answer.failure = f"HTTP {done.code}: {answer.head.decode(errors='replace')[:300]}"
    return answer


def _hear(answer: _Answer, piece: bytes, now: float) -> None:
    """Add the bytes of a stream to an answer; they need not end where a line does."""
    answer.head += piece[: max(0, 1000 - len(answer.head))]
    *lines, answer.rest = (answer.rest + piece).split(b"\n")
    for line in lines:
        data = line.removeprefix(b"data:").strip()
        if data in (b"", b"[DONE]") or not line.startswith(b"data:"):
            continue
        told = json.loads(data)
        if "error" in told:
            answer.failure = told["error"]["message"]
        for choice in told.get("choices", ()):
            if choice["text"]:
                answer.seconds.append(now)
            answer.reason = choice["finish_reason"] or answer.reason
        answer.tokens = (told.get("usage") or {}).get("completion_tokens", answer.tokens)


def _latency(request: Request, answer: _Answer) -> Latency:
    seconds, since = answer.seconds, request.arrival_seconds
    return Latency(
        id=request.id,
        prompt_tokens=len(request.prompt),
        output_tokens=answer.tokens or len(seconds),
        arrival_seconds=since,
        queue_seconds=None,  # known to the server only
        ttft_seconds=seconds[0] - since if seconds else None,
        token_gaps_seconds=tuple(later - sooner for sooner, later in pairwise(seconds)),
        e2e_seconds=seconds[-1] - since if seconds and answer.reason else None,
        reason=answer.reason,
    )


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``load`` to the ``labkit`` command."""
    parser = verbs.add_parser("load", help="send requests to an endpoint, and print latencies and throughput")
    parser.add_argument(
        "url", nargs="?", default="http://127.0.0.1:8000/v1", help="address of the endpoint, up to and with /v1"
    )
    parser.add_argument("--trace", metavar="FILE", help="requests to send, in a file that serving.save_requests wrote")
    parser.add_argument("--count", type=int, default=32, help="without --trace: the number of requests (default: 32)")
    parser.add_argument("--rate", type=float, default=8.0, metavar="PER_SECOND", help="their mean rate (default: 8)")
    parser.add_argument(
        "--variation",
        type=float,
        default=1.0,
        help="coefficient of variation of the gaps (default: 1, a Poisson process; more makes bursts)",
    )
    parser.add_argument(
        "--prompt-tokens", type=int, default=64, metavar="N", help="length of each prompt (default: 64)"
    )
    parser.add_argument(
        "--output-tokens", type=int, default=32, metavar="N", help="length of each answer, at most (default: 32)"
    )
    parser.add_argument("--seed", type=int, default=0, help="the same seed sends the same requests (default: 0)")
    parser.add_argument(
        "--ttft",
        type=float,
        metavar="SECONDS",
        help="limit of the time to first token; with --tpot: print the goodput under both limits",
    )
    parser.add_argument("--tpot", type=float, metavar="SECONDS")
    parser.add_argument("--api-key", metavar="KEY", help=f"key to send (default: the variable {KEY_VARIABLE})")
    parser.set_defaults(run=_run)


def _run(chosen: argparse.Namespace) -> int:
    from mlsys_labkit.serving.arrivals import load_requests, request_trace

    bounds = [bound for bound in (chosen.ttft, chosen.tpot) if bound is not None]
    if len(bounds) == 1:
        raise LabkitError("goodput takes a bound on each: give both --ttft and --tpot")
    if not all(bound > 0 for bound in bounds):
        raise LabkitError(f"--ttft and --tpot are seconds above 0, got {chosen.ttft} and {chosen.tpot}")
    requests = (
        load_requests(chosen.trace)
        if chosen.trace
        else request_trace(
            chosen.count,
            chosen.rate,
            variation=chosen.variation,
            prompt_tokens=chosen.prompt_tokens,
            output_tokens=chosen.output_tokens,
            seed=chosen.seed,
        )
    )
    key = os.environ.get(KEY_VARIABLE) if chosen.api_key is None else chosen.api_key
    load = asyncio.run(drive(chosen.url.rstrip("/"), requests, key))
    print(load)
    if bounds:
        print(load.metrics.service_level(*bounds))
    return FAILED if load.failures else 0
