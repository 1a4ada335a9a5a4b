"""The handler below all routes: bodies of a limited size, errors in one form, and no wait for a client without end."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, cast

from tornado import http1connection, web

from mlsys_labkit.serving.server.fields import ApiError
from mlsys_labkit.serving.server.job import ClientGone

MOST_BODY_BYTES = 4 << 20
_METHODS = frozenset(method.lower() for method in web.RequestHandler.SUPPORTED_METHODS)


@web.stream_request_body
class Handler(web.RequestHandler):
    """A handler that reads the body itself, so that a body that is too large gets an answer.

    Tornado closes the connection on such a body. The rest of it is then unread, and the client sees a reset in the
    place of an answer. Here the answer is sent at once and the rest is read and dropped, within the time for bodies.
    """

    _too_large = False

    def __init_subclass__(cls) -> None:
        for method in _METHODS:
            if method in vars(cls):
                setattr(cls, method, _checked(vars(cls)[method]))

    def check(self) -> None:
        """Raise ApiError for a client that is not to be served."""

    async def prepare(self) -> None:
        self._read = bytearray()
        announced = self.request.headers.get("Content-Length", "0")
        if announced.isdigit() and int(announced) > MOST_BODY_BYTES:
            await self._refuse_body()

    async def data_received(self, chunk: bytes) -> None:
        if self._too_large:
            return
        if len(self._read) + len(chunk) > MOST_BODY_BYTES:
            await self._refuse_body()
        else:
            self._read += chunk

    def on_connection_close(self) -> None:
        super().on_connection_close()
        if self._too_large and not self._finished:  # it read the answer and sends no more: count it, as all others
            self.finish()

    @property
    def body(self) -> bytes:
        return bytes(self._read)

    async def _refuse_body(self) -> None:
        self._too_large = True
        self._read.clear()
        error = ApiError(413, f"the body is larger than {MOST_BODY_BYTES >> 20} MiB; send fewer or shorter prompts")
        self.set_status(error.status)
        self.set_header("Connection", "close")
        self.write(error.body)
        self.set_header("Content-Length", str(sum(map(len, self._write_buffer))))
        if self.request.headers.get("Expect", "").lower() == "100-continue":  # the client waits before it sends
            self.finish()
        else:
            await self.flush()

    def refuse(self, error: ApiError) -> None:
        """Answer with an error."""
        self.set_status(error.status)
        if error.status == HTTPStatus.SERVICE_UNAVAILABLE:
            self.set_header("Retry-After", "1")
        if error.status == HTTPStatus.UNAUTHORIZED:
            self.set_header("WWW-Authenticate", "Bearer")
        self.finish(error.body)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Answer errors that tornado raises in the form of all other errors."""
        told = {
            405: f"{self.request.path} does not take {self.request.method}",
            500: "the server failed; its own output has the traceback",
        }
        message = told.get(status_code, HTTPStatus(status_code).phrase)
        self.finish(ApiError(status_code, message).body)

    async def wait_for_reader(self, written: Awaitable[Any], seconds: float) -> None:
        """Wait until the client has read what was written. Raises ClientGone after ``seconds``, and disconnects it."""
        stream = cast(http1connection.HTTP1Connection, self.request.connection).stream
        try:
            await asyncio.wait_for(written, seconds)
        except TimeoutError:
            stream.close()
            raise ClientGone from None


def _checked(answer: Callable[..., Awaitable[None] | None]) -> Callable[..., Awaitable[None]]:
    """Return a method that answers a request whose body is of a good size and whose client is to be served."""

    @functools.wraps(answer)
    async def answer_checked(self: Handler, *arguments: str) -> None:
        if self._too_large:
            if not self._finished:
                self.finish()
            return
        try:
            self.check()
        except ApiError as error:
            self.refuse(error)
            return
        result = answer(self, *arguments)
        if result is not None:
            await result

    return answer_checked
