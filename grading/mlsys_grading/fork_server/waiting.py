"""A confined process that waits for its work: it is made before the work is known, and does one piece of it.

What the work takes whatever it is, such as a shell, the process makes before it waits.
"""

from __future__ import annotations

import importlib
import json
import socket
import struct
from collections.abc import Callable
from typing import Any

from mlsys_grading.fork_server.request import ForkRequest
from mlsys_grading.sandbox.confine import Sandbox

_LENGTH = struct.Struct("<Q")


def waiting_request(function: str, sandbox: Sandbox | None, wall_seconds: float) -> ForkRequest:
    """Build the request for a process that waits for a job, on the first of its sockets.

    ``function`` is the path of ``name(sockets)``, which makes ready what does the job: ``work(job)``.
    """
    job = {"function": function}
    return ForkRequest("mlsys_grading.fork_server.waiting:serve", job, sandbox, wall_seconds, waits=True)


def send_job(orders: socket.socket, job: dict[str, Any]) -> None:
    """Send a waiting process its job. Raises OSError if the process has ended."""
    data = json.dumps(job).encode()
    orders.sendall(_LENGTH.pack(len(data)) + data)


def serve(job: dict[str, Any], sockets: list[socket.socket]) -> None:
    """Make ready in a fork what ``job`` names, wait for its job and do it; end if the other side hangs up."""
    orders, *others = sockets
    work: Callable[[dict[str, Any]], None] = named(job["function"])(others)
    with orders, orders.makefile("rb") as stream:
        head = stream.read(_LENGTH.size)
        data = stream.read(*_LENGTH.unpack(head)) if len(head) == _LENGTH.size else b""
    if data:
        work(json.loads(data))


def named(path: str) -> Any:
    """Return ``name`` for a path "package.module:name"."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)
