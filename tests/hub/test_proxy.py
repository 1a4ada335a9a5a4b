"""The proxy alone, in front of a server at a Unix socket that closes each connection of which it is asked so."""

from __future__ import annotations

import os
import socketserver
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import quote

import pytest
import requests

from mlsys_grading.hub.proxy import proxy_command
from tests.hub.hub_process import PATIENCE_SECONDS, free_ports, needs_hub, until

pytestmark = [needs_hub, pytest.mark.timeout(900)]


@contextmanager
def server(path: Path) -> Iterator[list[int]]:
    """Answer requests at a Unix socket. Yield the ids of the connections, one for each request."""
    connections: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            connections.append(id(self))  # a handler serves one connection
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(403)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with socketserver.ThreadingUnixStreamServer(str(path), Handler) as made:
        made.daemon_threads = True
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield connections
        made.shutdown()


@contextmanager
def proxy(target: str) -> Iterator[str]:
    port, api = free_ports(2)
    words = [*proxy_command(), "--ip=127.0.0.1", f"--port={port}", "--api-ip=127.0.0.1", f"--api-port={api}"]
    environment = os.environ | {"CONFIGPROXY_AUTH_TOKEN": ""}
    with subprocess.Popen([*words, f"--default-target={target}"], env=environment) as process:
        try:
            until("a proxy", lambda: _listens(f"http://127.0.0.1:{api}/api/routes"))
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


def _listens(address: str) -> bool:
    try:
        return requests.get(address, timeout=PATIENCE_SECONDS).ok
    except requests.ConnectionError:
        return False


def test_proxy_keeps_its_connections_to_unix_sockets(tmp_path: Path) -> None:
    """A server that closes its connection between the writes of a request's body makes the proxy answer 503."""
    path = tmp_path / "server"
    with server(path) as connections, proxy(f"http+unix://{quote(str(path), safe='')}") as url:
        for _ in range(5):
            assert requests.post(url, data="x", timeout=PATIENCE_SECONDS).status_code == 403
    assert len(connections) == 5
    assert len(set(connections)) == 1
