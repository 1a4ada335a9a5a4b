"""The HTTP routes /v1/models, /v1/completions, /v1/chat/completions, /health and /metrics on tornado."""

from __future__ import annotations

import asyncio
import hmac
import itertools
import json
import time
from dataclasses import replace
from typing import Any

from tornado import iostream, web

from mlsys_labkit.serving.server.fields import ApiError
from mlsys_labkit.serving.server.handler import Handler
from mlsys_labkit.serving.server.job import Choice, ClientGone, Job, Prompt, Served, tokenize
from mlsys_labkit.serving.server.logprobs import TextPiece, TextToken, chat_logprobs, completion_logprobs
from mlsys_labkit.serving.server.prometheus import EndpointMetrics
from mlsys_labkit.serving.server.protocol import Chat, Completion, no_such_model, read_chat, read_completion
from mlsys_labkit.serving.server.worker import EngineThread

MOST_JOBS = 1024
SLOWEST_SECONDS = 60.0  # a client that reads nothing for so long is disconnected


class Endpoint:
    """State that the handlers share: the engine's thread, the model's name, and the open jobs.

    With an ``api_key``, the routes below /v1 are for clients that send it.
    """

    def __init__(self, thread: EngineThread, served: Served, api_key: str | None = None) -> None:
        self.thread, self.served = thread, served
        self.metrics = EndpointMetrics(lambda: thread.counts)
        self._api_key = api_key.encode() if api_key else None
        self.created = int(time.time())
        self.draining = False
        self._jobs = 0
        self._numbers = itertools.count(1)
        self.idle = asyncio.Event()  # set while no job is open
        self.idle.set()

    def admit(self, authorization: str) -> None:
        """Raise ApiError 401 unless the header has the key, compared in a time that tells nothing about it."""
        scheme, _, given = authorization.partition(" ")
        if self._api_key and not (
            scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), self._api_key)
        ):
            message = "this server asks for its API key, and the request has another or none; send the right one"
            raise ApiError(401, message, code="invalid_api_key")

    def enter(self, kind: str) -> str:
        """Open a job and return its name. Raises ApiError 503 when no more are accepted."""
        if self.draining or not self.thread.alive:
            raise ApiError(503, "the server is stopping; ask again later")
        if self._jobs >= MOST_JOBS:
            raise ApiError(503, f"the server has {MOST_JOBS} requests open and takes no more; ask again later")
        self._jobs += 1
        self.idle.clear()
        return f"{kind}-{next(self._numbers)}"

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
        (r"/v1/chat/completions", _Chats),
        (r"/health", _Health),
        (r"/metrics", _Metrics),
    ]
    known = {path for path, _ in routes if "(" not in path}

    def count(handler: web.RequestHandler) -> None:
        # Any path and method may be asked for, and each new label would take memory for good.
        path = handler.request.path if handler.request.path in known else "other"
        endpoint.metrics.answers.labels(path, str(handler.get_status())).inc()

    return web.Application(
        [(path, handler, {"endpoint": endpoint}) for path, handler in routes],
        default_handler_class=_Nowhere,
        default_handler_args={"endpoint": endpoint},
        log_function=count,  # a line for each request would cost more than a token
    )


class _EndpointHandler(Handler):
    guarded = False

    def initialize(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint

    def check(self) -> None:
        if self.guarded:
            self.endpoint.admit(self.request.headers.get("Authorization", ""))


class _Nowhere(_EndpointHandler):
    def answer(self, *_: str) -> None:
        paths = "/v1/models, /v1/completions, /v1/chat/completions, /health and /metrics"
        self.refuse(ApiError(404, f"there is nothing at {self.request.path}; this server has {paths}"))

    get = post = put = patch = delete = options = head = answer


class _Models(_EndpointHandler):
    guarded = True

    def get(self) -> None:
        self.finish({"object": "list", "data": [self.endpoint.model_card]})


class _Model(_EndpointHandler):
    guarded = True

    def get(self, name: str) -> None:
        if name == self.endpoint.served.name:
            self.finish(self.endpoint.model_card)
        else:
            self.refuse(no_such_model(name, self.endpoint.served.name))


class _Health(_EndpointHandler):
    def get(self) -> None:
        well = self.endpoint.thread.alive and not self.endpoint.draining
        self.set_status(200 if well else 503)
        self.finish({"status": "ok" if well else "stopping"})


class _Metrics(_EndpointHandler):
    def get(self) -> None:
        text, content_type = self.endpoint.metrics.exposition(self.request.headers.get("Accept"))
        self.set_header("Content-Type", content_type)
        self.finish(text)


class _Completions(_EndpointHandler):
    """The route of completions; ``_Chats`` changes how a request is read, and the form of the answer."""

    guarded = True
    kind, whole_object, chunk_object = "cmpl", "text_completion", "text_completion"
    job: Job | None = None
    gone = False

    async def post(self) -> None:
        endpoint = self.endpoint
        self.arrival = endpoint.thread.now
        try:
            asked = self.read()
            name = endpoint.enter(self.kind)
        except ApiError as error:
            self.refuse(error)
            return
        job = self.job = Job(endpoint.thread, endpoint.served, name, self.arrival)
        try:
            completion, prompts = await self.prompts(asked)
            if not self.gone:
                self.asked = completion
                job.start(completion, prompts)
                await (self._stream(job) if completion.stream else self._whole(job))
                endpoint.metrics.whole.observe(endpoint.thread.now - self.arrival)
        except ApiError as error:
            self._fail(error)
        except (ClientGone, iostream.StreamClosedError):
            pass  # the client has disconnected
        finally:
            job.close()
            endpoint.leave()

    def read(self) -> Any:
        return read_completion(self.body, self.endpoint.served.name)

    async def prompts(self, asked: Any) -> tuple[Completion, list[Prompt]]:
        # Long texts take a while, and others wait for the event loop.
        return await asyncio.to_thread(tokenize, asked, self.endpoint.served)

    def on_connection_close(self) -> None:
        super().on_connection_close()
        self.gone = True
        if self.job:
            self.job.close()

    async def _pieces(self, job: Job) -> Any:
        first = True
        async for choice, piece in job.pieces():
            if first:
                self.endpoint.metrics.first_token.observe(self.endpoint.thread.now - self.arrival)
                first = False
            yield choice, piece

    async def _whole(self, job: Job) -> None:
        texts: list[list[str]] = [[] for _ in job.choices]
        tokens: list[list[TextToken]] = [[] for _ in job.choices]
        async for choice, piece in self._pieces(job):
            texts[choice.index].append(piece.text)
            tokens[choice.index] += piece.tokens
        choices = [
            self.choice(choice, TextPiece("".join(texts[choice.index]), tokens[choice.index])) for choice in job.choices
        ]
        answer = {**self._head(job, self.whole_object), "choices": choices, "usage": job.usage}
        await self.wait_for_reader(self.finish(answer), SLOWEST_SECONDS)

    async def _stream(self, job: Job) -> None:
        self.set_header("Content-Type", "text/event-stream; charset=utf-8")
        self.set_header("Cache-Control", "no-cache")
        head, also = self._head(job, self.chunk_object), {"usage": None} if self.asked.usage else {}
        for delta in self.opening(job):
            await self._send({**head, "choices": [delta], **also})
        async for choice, piece in self._pieces(job):
            if piece.text or piece.tokens or choice.reason:
                await self._send({**head, "choices": [self.delta(choice, piece)], **also})
        if self.asked.usage:
            await self._send({**head, "choices": [], "usage": job.usage})
        await self.wait_for_reader(self.finish("data: [DONE]\n\n"), SLOWEST_SECONDS)

    async def _send(self, event: dict[str, Any]) -> None:
        """Write one event and wait until the client has read it, so that unread output stays in its own job."""
        self.write(f"data: {json.dumps(event, separators=(',', ':'))}\n\n")
        await self.wait_for_reader(self.flush(), SLOWEST_SECONDS)

    def _fail(self, error: ApiError) -> None:
        if self._headers_written:  # a stream has begun: its status is sent, so the error is an event
            self.finish(f"data: {json.dumps(error.body)}\n\n")
        else:
            self.set_header("Content-Type", "application/json; charset=UTF-8")
            self.refuse(error)

    def _head(self, job: Job, form: str) -> dict[str, Any]:
        model, created = self.endpoint.served.name, int(self.request._start_time)
        return {"id": job.name, "object": form, "created": created, "model": model}

    def opening(self, job: Job) -> list[dict[str, Any]]:
        """Return the choices of the events before the first token."""
        return []

    def choice(self, choice: Choice, piece: TextPiece) -> dict[str, Any]:
        logprobs = None
        if self.asked.logprobs is not None:
            logprobs = completion_logprobs(self.endpoint.served.codec, piece.tokens)
        return {"index": choice.index, "text": piece.text, "logprobs": logprobs, "finish_reason": choice.reason}

    def delta(self, choice: Choice, piece: TextPiece) -> dict[str, Any]:
        return self.choice(choice, piece)


class _Chats(_Completions):
    kind, whole_object, chunk_object = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def read(self) -> Chat:
        asked, served = read_chat(self.body, self.endpoint.served.name), self.endpoint.served
        if not served.template:
            without = "is a base model without a chat template; send its text to /v1/completions"
            raise ApiError(404, f"{served.name!r} {without}")
        return asked

    async def prompts(self, asked: Chat) -> tuple[Completion, list[Prompt]]:
        served = self.endpoint.served
        assert served.template, "read() refuses a chat without a template"
        text = await served.template.render(asked.messages, asked.settings)

        def encode() -> tuple[Completion, list[Prompt]]:
            tokens = tuple(served.codec.encode_special(text))
            return tokenize(replace(asked.completion, prompts=(tokens,)), served, "messages")

        return await asyncio.to_thread(encode)

    def opening(self, job: Job) -> list[dict[str, Any]]:
        start = {"role": "assistant", "content": ""}
        return [{"index": each.index, "delta": start, "logprobs": None, "finish_reason": None} for each in job.choices]

    def _logprobs(self, piece: TextPiece) -> dict[str, Any] | None:
        return None if self.asked.logprobs is None else chat_logprobs(self.endpoint.served.codec, piece.tokens)

    def choice(self, choice: Choice, piece: TextPiece) -> dict[str, Any]:
        message = {"role": "assistant", "content": piece.text, "refusal": None}
        logprobs, reason = self._logprobs(piece), choice.reason
        return {"index": choice.index, "message": message, "logprobs": logprobs, "finish_reason": reason}

    def delta(self, choice: Choice, piece: TextPiece) -> dict[str, Any]:
        content = {"content": piece.text} if piece.text else {}
        logprobs, reason = self._logprobs(piece), choice.reason
        return {"index": choice.index, "delta": content, "logprobs": logprobs, "finish_reason": reason}
