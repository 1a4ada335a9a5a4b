"""The lifetime of an endpoint: sockets, the engine's thread, requests, and a clean end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import signal
import socket
import sys
from collections.abc import Callable, Sequence

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets

from mlsys_labkit.errors import LabkitError
from mlsys_labkit.serving.engine import Engine
from mlsys_labkit.serving.server.app import Endpoint, make_app
from mlsys_labkit.serving.server.job import Served
from mlsys_labkit.serving.server.worker import EngineThread

DRAIN_SECONDS = 10.0
CLOSE_SECONDS = 2.0
BACKLOG = 4096  # connections that wait to be accepted, if the system allows as many (net.core.somaxconn)
OPEN_FILES = 16384  # a connection takes one; a shell often allows 1,024
# A client that is slower than this is disconnected: with the head of a request, or idle before it; with its body.
HEAD_SECONDS = 30.0
BODY_SECONDS = 60.0


class Stop:
    """A signal to an endpoint to end: the first call lets running requests finish, the second does not."""

    def __init__(self) -> None:
        self.asked, self.at_once = asyncio.Event(), asyncio.Event()

    def __call__(self) -> None:
        (self.at_once if self.asked.is_set() else self.asked).set()


def bind(host: str, port: int) -> list[socket.socket]:
    """Return listening sockets; port 0 takes a free one. Raises LabkitError with advice where that fails."""
    if not 0 <= port < 1 << 16:  # the system would silently use the lowest 16 bits
        raise LabkitError(f"--port takes 0 to 65535, got {port}")
    try:
        return bind_sockets(port, host, backlog=BACKLOG)
    except socket.gaierror as error:
        raise LabkitError(f"--host {host} is no address of this machine ({error.strerror}); try 127.0.0.1") from None
    except OSError as error:
        told = {
            errno.EADDRINUSE: f"port {port} is taken; name another by --port, or --port 0 for any that is free",
            errno.EACCES: f"port {port} is not for this user; name one from 1024 up by --port",
            errno.EADDRNOTAVAIL: f"--host {host} is no address of this machine; try 127.0.0.1",
        }
        message = told.get(error.errno or 0, f"cannot listen at {host}, port {port}: {error.strerror}")
        raise LabkitError(message) from None


def is_loopback(host: str) -> bool:
    """Return True for an address that other machines cannot reach."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def serve(
    engine: Engine, served: Served, sockets: Sequence[socket.socket], stop: Stop, api_key: str | None = None
) -> None:
    """Serve until ``stop`` is called. In every case the engine ends idle with all blocks free."""
    thread = EngineThread(engine)
    endpoint = Endpoint(thread, served, api_key)
    server = HTTPServer(
        make_app(endpoint),
        max_body_size=sys.maxsize,  # handlers measure bodies themselves
        idle_connection_timeout=HEAD_SECONDS,
        body_timeout=BODY_SECONDS,
    )
    server.add_sockets(sockets)
    try:
        await stop.asked.wait()
        endpoint.draining = True
        server.stop()
        await _first(endpoint.idle.wait(), stop.at_once.wait(), seconds=DRAIN_SECONDS)
    finally:
        server.stop()
        await thread.stop()  # remaining clients get an answer
        await _first(endpoint.idle.wait(), seconds=CLOSE_SECONDS)
        await _first(server.close_all_connections(), seconds=CLOSE_SECONDS)
        if served.template:
            await served.template.stop()


def allow_open_files(count: int = OPEN_FILES) -> None:
    """Raise this process's limit of open files to ``count``, or to as many as the user may have."""
    try:
        import resource
    except ImportError:  # Windows
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def stop_on_signals(stop: Stop) -> Callable[[], None]:
    """Let Ctrl-C and SIGTERM call ``stop``, and return a function that restores the handlers."""
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        try:
            loop.add_signal_handler(number, stop)
        except NotImplementedError:  # Windows
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop))

    def restore() -> None:
        for number, handler in before.items():
            with contextlib.suppress(NotImplementedError):
                loop.remove_signal_handler(number)
            signal.signal(number, handler)

    return restore


async def _first(*waits: object, seconds: float) -> None:
    """Wait until one of several coroutines is done, for ``seconds`` at most."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]  # type: ignore[call-overload]
    await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
