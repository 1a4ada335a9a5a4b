"""The HTTP routes /v1/models, /v1/completions, /health and /metrics on tornado."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from http import HTTPStatus
from typing import Any

from tornado import iostream, web

from mlsys_labkit.serving.server.job import ClientGone, Job, Served, tokenize
from mlsys_labkit.serving.server.prometheus import CONTENT_TYPE, exposition
from mlsys_labkit.serving.server.protocol import ApiError, no_such_model, read_completion
from mlsys_labkit.serving.server.worker import EngineThread

MOST_JOBS = 1024
SLOWEST_SECONDS = 60.0  # a client that reads nothing for so long is disconnected


class Endpoint:
    """State that the handlers share: the engine's thread, the model's name, and the open jobs."""

    def __init__(self, thread: EngineThread, served: Served) -> None:
        self.thread, self.served = thread, served
        self.created = int(time.time())
        self.draining = False
        self._jobs = 0
        self._numbers = itertools.count(1)
        self.idle = asyncio.Event()  # set while no job is open
        self.idle.set()

    def enter(self) -> str:
        """Open a job and return its name. Raises ApiError 503 when no more are accepted."""
        if self.draining or not self.thread.alive:
            raise ApiError(503, "the server is stopping; ask again later")
        if self._jobs >= MOST_JOBS:
            raise ApiError(503, f"the server has {MOST_JOBS} requests open and takes no more; ask again later")
        self._jobs += 1
        self.idle.clear()
        return f"cmpl-{next(self._numbers)}"

    def leave(self) -> None:
        self._jobs -= 1
        if not self._jobs:
            self.idle.set()

    @property
    def model_card(self) -> dict[str, Any]:
        name, context = self.served.name, self.served.context
        return {"id": name, "object": "model", "created": self.created, "owned_by": "labkit", "max_model_len": context}


def make_app(endpoint: Endpoint) -> web.Application:
    """Return the tornado application of an endpoint."""
    routes: list[Any] = [
        (r"/v1/models", _Models),
        (r"/v1/models/(.+)", _Model),
        (r"/v1/completions", _Completions),
        (r"/v1/chat/completions", _Chat),
        (r"/health", _Health),
        (r"/metrics", _Metrics),
    ]
    return web.Application(
        [(path, handler, {"endpoint": endpoint}) for path, handler in routes],
        default_handler_class=_Nowhere,
        default_handler_args={"endpoint": endpoint},
        log_function=lambda handler: None,  # /metrics counts; a line for each request would cost more than a token
    )


class _Handler(web.RequestHandler):
    def initialize(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint

    def refuse(self, error: ApiError) -> None:
        self.set_status(error.status)
        if error.status == HTTPStatus.SERVICE_UNAVAILABLE:
            self.set_header("Retry-After", "1")
        self.finish(error.body)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Answer errors that tornado raises in the form of all other errors."""
        told = {
            405: f"{self.request.path} does not take {self.request.method}",
            500: "the server failed; its own output has the traceback",
        }
        message = told.get(status_code, HTTPStatus(status_code).phrase)
        self.finish(ApiError(status_code, message).body)


class _Nowhere(_Handler):
    def prepare(self) -> None:
        paths = "/v1/models, /v1/completions, /health and /metrics"
        self.refuse(ApiError(404, f"there is nothing at {self.request.path}; this server has {paths}"))


class _Models(_Handler):
    def get(self) -> None:
        self.finish({"object": "list", "data": [self.endpoint.model_card]})


class _Model(_Handler):
    def get(self, name: str) -> None:
        if name == self.endpoint.served.name:
            self.finish(self.endpoint.model_card)
        else:
            self.refuse(no_such_model(name, self.endpoint.served.name))


class _Health(_Handler):
    def get(self) -> None:
        well = self.endpoint.thread.alive and not self.endpoint.draining
        self.set_status(200 if well else 503)
        self.finish({"status": "ok" if well else "stopping"})


class _Metrics(_Handler):
    def get(self) -> None:
        self.set_header("Content-Type", CONTENT_TYPE)
        self.finish(exposition(self.endpoint.thread.counts))


class _Chat(_Handler):
    def post(self) -> None:
        name = self.endpoint.served.name
        self.refuse(
            ApiError(404, f"{name!r} is a base model without a chat template; send its text to /v1/completions")
        )


class _Completions(_Handler):
    job: Job | None = None
    gone = False

    async def post(self) -> None:
        endpoint = self.endpoint
        arrival_seconds = endpoint.thread.now
        try:
            asked = read_completion(self.request.body, endpoint.served.name)
            name = endpoint.enter()
        except ApiError as error:
            self.refuse(error)
            return
        job = self.job = Job(endpoint.thread, endpoint.served, asked, name, arrival_seconds)
        try:
            # Long texts take a while, and others wait for the event loop.
            prompts = await asyncio.to_thread(tokenize, asked, endpoint.served)
            if not self.gone:
                job.start(prompts)
                await (self._stream(job, asked.usage) if asked.stream else self._whole(job))
        except ApiError as error:
            self._fail(error)
        except (ClientGone, iostream.StreamClosedError):
            pass  # the client has disconnected
        finally:
            job.close()
            endpoint.leave()

    def on_connection_close(self) -> None:
        self.gone = True
        if self.job:
            self.job.close()

    async def _whole(self, job: Job) -> None:
        texts: list[list[str]] = [[] for _ in job.choices]
        async for choice, piece in job.pieces():
            texts[choice.index].append(piece)
        choices = [_choice(choice.index, "".join(texts[choice.index]), choice.reason) for choice in job.choices]
        self.finish({**self._head(job), "choices": choices, "usage": job.usage})

    async def _stream(self, job: Job, usage: bool) -> None:
        self.set_header("Content-Type", "text/event-stream; charset=utf-8")
        self.set_header("Cache-Control", "no-cache")
        also = {"usage": None} if usage else {}
        async for choice, piece in job.pieces():
            if piece or choice.reason:
                await self._send({**self._head(job), "choices": [_choice(choice.index, piece, choice.reason)], **also})
        if usage:
            await self._send({**self._head(job), "choices": [], "usage": job.usage})
        self.finish("data: [DONE]\n\n")

    async def _send(self, event: dict[str, Any]) -> None:
        """Write one event and wait until the client has read it, so that unread output stays in its own job."""
        self.write(f"data: {json.dumps(event, separators=(',', ':'))}\n\n")
        try:
            await asyncio.wait_for(self.flush(), SLOWEST_SECONDS)
        except TimeoutError:
            self.detach().close()
            raise ClientGone from None

    def _fail(self, error: ApiError) -> None:
        if self._headers_written:  # a stream has begun: its status is sent, so the error is an event
            self.finish(f"data: {json.dumps(error.body)}\n\n")
        else:
            self.set_header("Content-Type", "application/json; charset=UTF-8")
            self.refuse(error)

    def _head(self, job: Job) -> dict[str, Any]:
        model, created = self.endpoint.served.name, int(self.request._start_time)
        return {"id": job.name, "object": "text_completion", "created": created, "model": model}

    def data_received(self, chunk: bytes) -> None:
        """Do nothing: bodies are read as a whole."""


def _choice(index: int, text: str, reason: str | None) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": None, "finish_reason": reason}
