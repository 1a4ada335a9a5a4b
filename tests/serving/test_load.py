"""Tests of the load generator against the endpoint by real HTTP: requests are sent on time and none is lost."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from mlsys_labkit import serving
from mlsys_labkit._frontends import cli
from mlsys_labkit.errors import LabkitError
from mlsys_labkit.lm import Tokenizer
from mlsys_labkit.serving import Engine, Request
from mlsys_labkit.serving.scheduler import Limits
from mlsys_labkit.serving.server.job import Served
from mlsys_labkit.serving.server.load import _Answer, _hear, drive
from tests.serving.running import Running, Script, run

pytestmark = pytest.mark.xdist_group("endpoint")
BYTES = Tokenizer.train(["x"], 257)


def scripted(record: bool = True) -> Running:
    engine = Engine(runner=Script([65]), blocks=200, limits=Limits(running=4), record=record)
    return Running(engine, Served("scripted", BYTES, 4096, 257))


def test_load_metrics_equal_the_engines_recording() -> None:
    trace = serving.request_trace(12, 15.0, prompt_tokens=[3, 30], output_tokens=[1, 8, 20], source=200, seed=4)
    with scripted() as running:
        running.engine.runner.pace_seconds = 0.005
        load = run(lambda: asyncio.run(drive(f"{running.url}/v1", trace)))
        running.stop()
        running.join()
        inside = serving.measure(running.engine.recording)
    assert load.failures == ()
    rows = load.metrics.latencies
    assert [row.id for row in rows] == [request.id for request in trace]
    assert [row.output_tokens for row in rows] == [request.max_new_tokens for request in trace]
    assert {row.reason for row in rows} == {"length"}
    assert load.metrics.output_tokens == inside.output_tokens == sum(request.max_new_tokens for request in trace)
    assert load.metrics.prompt_tokens == inside.prompt_tokens
    # What a client waits holds what the engine took, and the way there and back.
    outside = sorted(row.ttft_seconds for row in rows)
    assert all(mine > its for mine, its in zip(outside, sorted(inside.values("ttft")), strict=True))
    came = [row.arrival_seconds for row in inside.latencies]
    assert came == sorted(came)
    lasts = trace[-1].arrival_seconds - trace[0].arrival_seconds
    assert came[-1] > lasts  # it did not send them all at once; the clock of the engine starts earlier
    assert "12 requests (12 length)" in str(load)
    assert "cache" not in str(load)


def test_load_reports_refused_request_and_continues() -> None:
    trace = [Request("a", (5,), 3), Request("b", (5,) * 4000, 200), Request("c", (999,), 3), Request("d", (5,), 4)]
    with scripted() as running:
        load = run(lambda: asyncio.run(drive(f"{running.url}/v1", trace)))
    assert [row.output_tokens for row in load.metrics.latencies] == [3, 0, 0, 4]
    assert [failure[:12] for failure in load.failures] == ["b: HTTP 400:", "c: HTTP 400:"]
    assert "4000 tokens and max_tokens is 200" in load.failures[0]
    assert load.metrics.service_level(9, 9).met == 2
    assert "2 requests failed, the first: b: HTTP 400" in str(load)


def test_load_reports_server_failure() -> None:
    with scripted() as running:
        running.engine.runner.fails = 1
        load = run(lambda: asyncio.run(drive(f"{running.url}/v1", [Request("a", (5,), 3)])))
    assert "fell off the bus" in load.failures[0]


EVENTS = [
    {"choices": [{"index": 0, "text": "é", "finish_reason": None}], "usage": None},
    {"choices": [{"index": 0, "text": "", "finish_reason": None}]},
    {"choices": [{"index": 0, "text": "b", "finish_reason": "stop"}]},
    {"choices": [], "usage": {"completion_tokens": 3}},
]


@given(st.lists(st.integers(0, 400)), st.sampled_from(["\n\n", "\r\n\r\n"]))
def test_load_reads_streams_cut_anywhere(cuts: list[int], end: str) -> None:
    events = [*(f"data: {json.dumps(event, ensure_ascii=False)}" for event in EVENTS), "data: [DONE]"]
    stream = "".join(f": ping{end}{event}{end}" for event in events).encode()
    answer, places = _Answer([]), sorted({0, len(stream), *(min(cut, len(stream)) for cut in cuts)})
    for sooner, later in pairwise(places):
        _hear(answer, stream[sooner:later], float(later))
    assert (len(answer.seconds), answer.tokens, answer.reason, answer.failure) == (2, 3, "stop", "")
    # A token is there as soon as its line has ended, and not before.
    assert answer.seconds[0] == min(place for place in places if place > stream.index(b"\n", stream.index(b"choices")))


def test_load_reports_error_inside_a_stream() -> None:
    answer = _Answer([])
    for event in (EVENTS[0], {"error": {"message": "the device fell off the bus"}}):
        _hear(answer, f"data: {json.dumps(event)}\n\n".encode(), 1.0)
    assert (answer.failure, len(answer.seconds), answer.reason) == ("the device fell off the bus", 1, "")


def test_load_command_prints_table_and_goodput(capsys: pytest.CaptureFixture[str], tmp_path: object) -> None:
    path = serving.save_requests([Request("a", (5, 6), 3), Request("b", (5, 6), 3)], f"{tmp_path}/trace.jsonl")
    with scripted() as running:
        options = ["--trace", str(path), "--ttft", "30", "--tpot", "30"]
        assert run(lambda: cli.main(["load", f"{running.url}/v1/", *options])) == 0
        out = capsys.readouterr().out
    assert "TTFT" in out
    assert "2 of 2 requests (100 %) met TTFT <= 30 s and TPOT <= 30 s" in out


def test_load_command_sends_the_key(
    capsys: pytest.CaptureFixture[str], tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = serving.save_requests([Request("a", (5, 6), 3)], f"{tmp_path}/trace.jsonl")
    plain = scripted()
    with Running(plain.engine, plain.served, api_key="sesame") as running:
        options = ["load", f"{running.url}/v1", "--trace", str(path)]
        assert run(lambda: cli.main(options)) == 2
        assert f"{running.url}/v1 asks for its API key (HTTP 401); give it by" in capsys.readouterr().err
        assert run(lambda: cli.main([*options, "--api-key", "sesame"])) == 0
        monkeypatch.setenv("LABKIT_API_KEY", "sesame")
        assert run(lambda: cli.main(options)) == 0
    assert "failed" not in capsys.readouterr().out


def test_load_command_without_endpoint_fails_in_one_line(capsys: pytest.CaptureFixture[str], tmp_path: object) -> None:
    path = serving.save_requests([Request("a", (5,), 3)], f"{tmp_path}/trace.jsonl")
    for options, says in (
        (["http://127.0.0.1:9/v1", "--trace", str(path)], "no endpoint answers at http://127.0.0.1:9/v1/models"),
        (["--ttft", "1"], "give both --ttft and --tpot"),
        (["--ttft", "1", "--tpot", "0"], "--ttft and --tpot are seconds above 0, got 1.0 and 0.0"),
        (["--trace", "/nowhere.jsonl"], "/nowhere.jsonl cannot be read (No such file or directory)"),
    ):
        assert run(partial(cli.main, ["load", *options])) == 2
        assert says in capsys.readouterr().err
    with pytest.raises(LabkitError, match="one sample each"):
        run(lambda: asyncio.run(drive("http://127.0.0.1:9/v1", [Request("a", (5,), 3, samples=2)])))
