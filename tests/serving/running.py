"""An endpoint in this process, on a real port, in its own thread; and an engine whose texts are written by hand."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from mlsys_labkit.serving import Engine
from mlsys_labkit.serving.server.job import Served
from mlsys_labkit.serving.server.run import Stop, bind, serve


class Running:
    """An endpoint that runs inside ``with``. The test fails unless the engine ends idle and with all blocks free."""

    def __init__(self, engine: Engine, served: Served, send_buffer_bytes: int = 0, api_key: str | None = None) -> None:
        self.engine, self.served = engine, served
        self.sockets = bind("127.0.0.1", 0)
        if send_buffer_bytes:
            self.sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
        self.port = self.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._api_key = api_key
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()))

    async def _main(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), Stop()
        self._ready.set()
        await serve(self.engine, self.served, self.sockets, self._stop, self._api_key)

    def __enter__(self) -> Running:
        self._thread.start()
        self._ready.wait()
        return self

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop)

    def join(self) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive()

    def __exit__(self, *_: object) -> None:
        if self._thread.is_alive():
            self.stop()
        self.join()
        assert self.engine.pool.free == self.engine.pool.size
        assert not self.engine.has_work

    def ask(
        self, path: str, body: object = None, method: str | None = None, **headers: str
    ) -> tuple[int, Any, dict[str, str]]:
        """Return (status, body, headers), the body as JSON where possible."""
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(f"{self.url}{path}", data=data, method=method, headers=headers)
        try:
            with urllib.request.urlopen(asked, timeout=600) as answer:
                status, raw, told = answer.status, answer.read(), dict(answer.headers)
        except urllib.error.HTTPError as error:
            status, raw, told = error.code, error.read(), dict(error.headers)
        return status, json.loads(raw) if "json" in told["Content-Type"] else raw.decode(), told

    def metric(self, name: str) -> int:
        text = self.ask("/metrics")[1]
        return int(float(dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")[f"labkit_{name}"]))

    def connect(self, body: dict[str, Any], receive_buffer_bytes: int = 0) -> socket.socket:
        """Return a client that has asked for completions and reads nothing yet."""
        client = socket.socket()
        if receive_buffer_bytes:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        client.connect(("127.0.0.1", self.port))
        data = json.dumps(body).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n"
        client.sendall(head.encode() + data)
        return client


def run(call: Callable[[], Any]) -> Any:
    """Return the result of a call that starts an event loop, in a thread: browser tests leave a loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()


def eventually(holds: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait until a condition holds, with a deadline that a busy machine can meet."""
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "it never came to hold"
        time.sleep(0.01)


class Script:
    """A runner without a model: token ``p`` of every text is ``script[p]``, and after its end its last token."""

    def __init__(self, script: list[int], vocabulary: int = 257, context: int = 4096) -> None:
        self.script, self.vocabulary, self.context = script, vocabulary, context
        self.cache = _NoMemory()
        self.fails = 0  # how many of the next passes fail
        self.pace_seconds = 0.0

    def run(self, chunks: Any) -> torch.Tensor:
        time.sleep(self.pace_seconds)
        if self.fails:
            self.fails -= 1
            raise RuntimeError("the device fell off the bus")
        rows = []
        for chunk in chunks:
            end = chunk.past + len(chunk.tokens)
            for place in range(end - chunk.logits + 1, end + 1):
                row = torch.zeros(self.vocabulary)
                row[self.script[min(place, len(self.script) - 1)]] = 1000.0
                rows.append(row)
        return torch.stack(rows) if rows else torch.empty(0, self.vocabulary)


class _NoMemory:
    block_bytes = 1

    def copy(self, pairs: Any) -> None: ...
    def swap_out(self, blocks: Any) -> None: ...
    def swap_in(self, copy: Any, blocks: Any) -> None: ...
