"""Tests of what the endpoint does to protect itself: sizes, waits, keys, bursts of connections; and of its metrics."""

from __future__ import annotations

import resource
import socket
import struct
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain_text

from mlsys_labkit.serving.server import app, handler, run as server_run
from mlsys_labkit.serving.server.job import ClientGone
from tests.serving.endpoint import rest, scripted
from tests.serving.running import Running, eventually

pytestmark = pytest.mark.xdist_group("endpoint")
ASK = {"prompt": "a", "max_tokens": 3, "temperature": 0}


def sends(client: socket.socket, pieces: Iterator[bytes]) -> None:
    """Send everything before anything is read, as clients do; a reset shows as an error here."""
    for piece in pieces:
        client.sendall(piece)


def megabytes(count: int) -> Iterator[bytes]:
    return (b"x" * (1 << 20) for _ in range(count))


def in_chunks(pieces: Iterator[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        yield b"%x\r\n%s\r\n" % (len(piece), piece)
    yield b"0\r\n\r\n"


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/nowhere"])
@pytest.mark.parametrize("chunked", [False, True])
def test_oversized_body_is_answered_with_413_and_no_reset(path: str, chunked: bool) -> None:
    with scripted([65]) as running, socket.create_connection(("127.0.0.1", running.port)) as client:
        length = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % (101 << 20)
        client.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n" % (path.encode(), length))
        # Tornado's own limit is 100 MiB.
        sends(client, in_chunks(megabytes(101)) if chunked else megabytes(101))
        client.settimeout(60)
        got = client.recv(1 << 16)
        assert got.startswith(b"HTTP/1.1 413 ")
        assert b"Connection: close" in got
        assert b"the body is larger than 4 MiB; send fewer or shorter prompts" in got
        client.shutdown(socket.SHUT_WR)
        assert rest(client) == b""
        assert running.ask("/v1/completions", ASK)[0] == 200


def test_client_that_hangs_up_on_a_413_is_counted() -> None:
    with scripted([65]) as running:
        with socket.create_connection(("127.0.0.1", running.port)) as client:
            client.settimeout(60)
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (20 << 20))
            assert client.recv(1 << 16).startswith(b"HTTP/1.1 413 ")
        name = 'labkit_http_answers_total{route="/v1/completions",status="413"} 1.0'
        eventually(lambda: name in running.ask("/metrics")[1])


def test_client_that_waits_before_its_body_is_answered_at_once() -> None:
    with scripted([65]) as running, socket.create_connection(("127.0.0.1", running.port)) as client:
        client.settimeout(60)
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n")
        client.sendall(b"Content-Length: 99999999999\r\n\r\n")
        got = rest(client)
        assert got.startswith(b"HTTP/1.1 413 ")
        assert b"100 (Continue)" not in got


def test_body_of_the_largest_size_is_read() -> None:
    with scripted([65]) as running:
        text = b'{"prompt": "a", "max_tokens": 3, "user": "%s"}'
        body = text % (b"x" * (handler.MOST_BODY_BYTES - len(text) + 2))
        assert len(body) == handler.MOST_BODY_BYTES
        assert running.ask("/v1/completions", body)[0] == 200
        assert running.ask("/v1/completions", body + b" ")[0] == 413


def test_slow_and_idle_clients_are_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    """One stops in the head, one drips it byte by byte, one stops in the body, and one is idle after its answer."""
    monkeypatch.setattr(server_run, "HEAD_SECONDS", 1.0)
    monkeypatch.setattr(server_run, "BODY_SECONDS", 1.0)
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
    body = b'{"prompt": "a", "max_tokens": 3}'
    with scripted([65]) as running:
        silent, dripping, cut, idle = (socket.create_connection(("127.0.0.1", running.port)) for _ in range(4))
        silent.sendall(head)
        cut.sendall(head + b"Content-Length: 100\r\n\r\n" + body)
        idle.sendall(head + b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        ended = threading.Event()

        def drip() -> None:
            for letter in head * 100:
                try:
                    dripping.sendall(bytes([letter]))
                except OSError:
                    return
                if ended.wait(0.05):
                    return

        thread = threading.Thread(target=drip)
        thread.start()
        for client in (silent, cut, idle, dripping):
            client.settimeout(60)
            assert (b"AAA" in rest(client)) == (client is idle)  # it returns when the server has hung up
            client.close()
        ended.set()
        thread.join()
        assert running.ask("/v1/completions", ASK)[0] == 200


def test_client_that_reads_no_whole_answer_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "SLOWEST_SECONDS", 0.5)
    gone, wait = [], handler.Handler.wait_for_reader

    async def watched(self: handler.Handler, written: Any, seconds: float) -> None:
        try:
            await wait(self, written, seconds)
        except ClientGone:
            gone.append(seconds)
            raise

    monkeypatch.setattr(handler.Handler, "wait_for_reader", watched)
    plain = scripted([65])
    with Running(plain.engine, plain.served, send_buffer_bytes=4096) as running:
        # The log-probabilities of 400 tokens are more than the buffers of the connection hold.
        body = {"prompt": "a", "max_tokens": 200, "logprobs": 20, "n": 2}
        client = running.connect(body, receive_buffer_bytes=4096)
        eventually(lambda: bool(gone), 120)
        client.settimeout(60)
        assert b'"usage"' not in rest(client)
        client.close()


def test_a_thousand_connections_at_once_are_all_answered() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4096:
        pytest.skip(f"this user may open {hard} files, and both ends of 1,000 connections are in this process")
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, hard))
    try:
        with scripted([65], blocks=2000) as running:
            clients = [socket.socket() for _ in range(1000)]
            for client in clients:
                client.setblocking(False)
                client.connect_ex(("127.0.0.1", running.port))  # none waits for another
            body = b'{"prompt": "a", "max_tokens": 3, "temperature": 0}'
            asked = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s"

            def talk(client: socket.socket) -> bytes:
                client.settimeout(300)
                client.sendall(asked % (len(body), body))
                with client:
                    return rest(client)

            with ThreadPoolExecutor(200) as pool:
                answers = list(pool.map(talk, clients))
            assert [each[:15] for each in answers] == [b"HTTP/1.1 200 OK"] * 1000
            assert all(b'"AAA"' in each for each in answers)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell how many may wait at a socket")
def test_backlog_allows_for_a_thousand_clients() -> None:
    (socket_,) = server_run.bind("127.0.0.1", 0)
    with socket_:
        told = socket_.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    (backlog,) = struct.unpack_from("I", told, 28)  # tcpi_sacked, which is the backlog of a listening socket
    assert backlog >= min(1000, int(Path("/proc/sys/net/core/somaxconn").read_text()))


def test_limit_of_open_files_is_raised() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, hard), hard))
        server_run.allow_open_files(2048)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == min(2048, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# --- keys ------------------------------------------------------------------------------------------------------------


def keyed() -> Running:
    plain = scripted([65])
    return Running(plain.engine, plain.served, api_key="correct horse")


def test_openai_client_needs_the_key() -> None:
    import openai

    with (
        keyed() as running,
        openai.OpenAI(base_url=f"{running.url}/v1", api_key="correct horse", max_retries=0) as client,
    ):
        answer = client.completions.create(model="scripted", prompt="a", max_tokens=2)
        assert answer.choices[0].text == "AA"
        for key in ("correct hors", "correct horsee", "none"):
            with pytest.raises(openai.AuthenticationError, match="asks for its API key") as caught:
                client.with_options(api_key=key).models.list()
            assert caught.value.code == "invalid_api_key"


def test_key_guards_the_routes_of_the_api_only() -> None:
    with keyed() as running:
        for path, body in (("/v1/models", None), ("/v1/models/scripted", None), ("/v1/completions", {})):
            status, _, headers = running.ask(path, body)
            assert (status, headers["Www-Authenticate"]) == (401, "Bearer")
            assert running.ask(path, body, Authorization="Bearer correct horsé")[0] == 401
            assert running.ask(path, body, Authorization="correct horse")[0] == 401
            assert running.ask(path, body, Authorization="bearer correct horse")[0] != 401
            assert running.ask(path, body, Authorization="Bearer correct horse")[0] != 401
        assert running.ask("/v1/chat/completions", {})[0] == 401
        assert running.ask("/health")[0] == running.ask("/metrics")[0] == 200


# --- metrics ---------------------------------------------------------------------------------------------------------


def test_metrics_are_read_by_prometheus_own_parsers() -> None:
    with scripted([65]) as running:
        for count in (3, 5):
            assert running.ask("/v1/completions", {**ASK, "max_tokens": count})[0] == 200
        assert running.ask("/v1/completions", {})[0] == 400
        assert running.ask("/" + "x" * 50)[0] == 404
        eventually(lambda: running.metric('http_answers_total{route="/v1/completions",status="200"}') == 2)
        plain, kind = running.ask("/metrics")[1], running.ask("/metrics")[2]["Content-Type"]
        newest = running.ask("/metrics", Accept="application/openmetrics-text; version=1.0.0")[1]
    assert kind.startswith("text/plain")
    for text, parser in ((plain, plain_text), (newest, open_metrics)):
        values = {
            (sample.name, *sorted(sample.labels.items())): sample.value
            for family in parser(text)
            for sample in family.samples
        }
        assert values["labkit_output_tokens_total",] == 8
        assert values["labkit_prompt_tokens_total",] == 2
        assert values["labkit_steps_total",] == 8
        assert values["labkit_requests_running",] == values["labkit_requests_waiting",] == 0
        assert (values["labkit_cache_blocks",], values["labkit_cache_blocks_used",]) == (64, 0)
        assert values["labkit_requests_ended_total", ("reason", "length")] == 2
        assert values["labkit_time_to_first_token_seconds_count",] == 2
        assert values["labkit_request_seconds_count",] == 2
        assert values["labkit_http_answers_total", ("route", "/v1/completions"), ("status", "400")] == 1
        assert values["labkit_http_answers_total", ("route", "other"), ("status", "404")] == 1
