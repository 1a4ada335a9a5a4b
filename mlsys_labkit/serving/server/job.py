"""One client's completions: its requests to the engine, and the text of the tokens that come back."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from mlsys_labkit.serving.errors import RequestError
from mlsys_labkit.serving.records import Output, Request
from mlsys_labkit.serving.server.fields import ApiError
from mlsys_labkit.serving.server.logprobs import TextPiece, TextToken
from mlsys_labkit.serving.server.protocol import Completion
from mlsys_labkit.serving.server.text import StopFinder, TextStream
from mlsys_labkit.serving.server.worker import EngineThread, RefusedRequest

if TYPE_CHECKING:
    from mlsys_labkit.lm.checkpoint import TextCodec
    from mlsys_labkit.serving.server.template import TemplateProcess


class ClientGone(Exception):
    """The exception for a client that has disconnected."""


@dataclass(frozen=True)
class Served:
    """The model behind an endpoint.

    Attributes:
        name, codec: its name and its tokenizer.
        context, vocabulary: its positions, and the size of its vocabulary.
        ends: tokens that end a text; None takes the tokenizer's.
        slots: tokens that the cache holds; None: as many as the model has positions.
        template: makes a text of a chat; None for a base model.
    """

    name: str
    codec: TextCodec
    context: int
    vocabulary: int
    ends: tuple[int, ...] | None = None
    slots: int | None = None
    template: TemplateProcess | None = None

    @property
    def end_tokens(self) -> tuple[int, ...]:
        if self.ends is not None:
            return self.ends
        return () if self.codec.end is None else (self.codec.end,)

    @property
    def room(self) -> int:
        """Return how many tokens a text may have, with its prompt; the last one needs no slot."""
        return min(self.context, (self.slots or self.context) + 1)


@dataclass(frozen=True)
class Prompt:
    tokens: tuple[int, ...]
    text: str | None = None


def tokenize(asked: Completion, served: Served, field: str = "prompt") -> tuple[Completion, list[Prompt]]:
    """Return the prompts as tokens, and the request with a number of new tokens.

    Raises ApiError, for ``field``, if a prompt is empty or leaves no room in the model's context.
    """
    prompts = []
    for number, given in enumerate(asked.prompts):
        try:
            tokens = tuple(served.codec.encode(given)) if isinstance(given, str) else given
        except Exception as error:  # other tokenizers raise their own errors, for lone surrogates for example
            raise ApiError(400, f"prompt {number} is no text for this tokenizer ({error})", param=field) from None
        if not tokens:
            raise ApiError(400, f"prompt {number} is empty; give at least one token", param=field)
        if not 0 <= min(tokens) <= max(tokens) < served.vocabulary:
            stranger = next(token for token in tokens if not 0 <= token < served.vocabulary)
            expected = f"expected 0 to {served.vocabulary - 1}"
            raise ApiError(400, f"prompt {number} has the token {stranger}, {expected}", param=field)
        if len(tokens) + (1 if asked.max_tokens is None else asked.max_tokens) > served.context:
            also = "no token fits behind it" if asked.max_tokens is None else f"max_tokens is {asked.max_tokens}"
            raise ApiError(
                400,
                f"prompt {number} has {len(tokens)} tokens and {also}: together more than "
                f"the model's context of {served.context}; shorten one",
                param=field,
                code="context_length_exceeded",
            )
        prompts.append(Prompt(tokens, given if isinstance(given, str) else None))
    if asked.max_tokens is None:
        room = served.room - max(len(prompt.tokens) for prompt in prompts)
        asked = replace(asked, max_tokens=max(1, room))
    return asked, prompts


class Choice:
    """One continuation: its text so far, and how it ended."""

    def __init__(self, index: int, prompt: Prompt, codec: TextCodec, asked: Completion) -> None:
        self.index = index
        self.tokens = 0
        self.reason: str | None = None
        self._stream, self._finder = TextStream(codec, prompt.tokens), StopFinder(asked.stop)
        self._prompt, self._codec = prompt, codec
        self._tells_prompt = asked.echo and asked.logprobs is not None
        self._lead = ""
        if asked.echo:
            self._lead = codec.decode(prompt.tokens) if prompt.text is None else prompt.text
        self._certain = len(self._lead)  # characters before the next token

    def take(self, output: Output) -> TextPiece:
        """Return the text that is certain now. A token that ends the text is no part of it.

        With it come the tokens whose log-probabilities were asked for: every token, also one that ends the text, or
        whose text is held back or cut off by a stop string.
        """
        tokens = self._prompt_tokens(output) if self._tells_prompt else []
        self._tells_prompt = False
        text = ""
        if output.token is not None:
            self.tokens += 1
            ends = output.reason == "stop"
            if output.logprob:
                tokens.append(TextToken(output.token, self._certain, output.logprob, ends))
            made = "" if ends else self._stream.push(output.token)
            self._certain += len(made)
            text = self._finder.push(made)
        if output.finished and not self._finder.found:
            text += self._finder.push(self._stream.flush())
            text += self._finder.flush()
        if self._finder.found or output.finished:
            self.reason = "stop" if self._finder.found else output.reason
        text, self._lead = self._lead + text, ""
        return TextPiece(text, tokens)

    def _prompt_tokens(self, output: Output) -> list[TextToken]:
        stream, offset, tokens = TextStream(self._codec), 0, []
        for token, logprob in zip(self._prompt.tokens, (None, *output.prompt), strict=True):
            tokens.append(TextToken(token, offset, logprob))
            offset += len(stream.push(token))
        return tokens


class Job:
    """The requests of one client's call: one to the engine for each prompt, with ``n`` choices each.

    A job that is closed, for any reason, leaves nothing in the engine.
    """

    def __init__(self, thread: EngineThread, served: Served, name: str, arrival_seconds: float) -> None:
        self.name, self._thread, self._served, self._n = name, thread, served, 1
        self._arrival_seconds = arrival_seconds
        self._heard: asyncio.Queue[tuple[int, Output | RefusedRequest] | None] = asyncio.Queue()
        self._open: dict[int, str] = {}  # prompt -> its request, until its last choice has ended
        self.choices: list[Choice] = []
        self.prompt_tokens = 0

    def start(self, asked: Completion, prompts: Sequence[Prompt]) -> None:
        """Hand the prompts to the engine. Raises ApiError for fields that its requests refuse."""
        self._n, served = asked.n, self._served
        seed = secrets.randbits(32) if asked.seed is None else asked.seed
        end = () if asked.ignore_eos else served.end_tokens
        assert asked.max_tokens is not None, "tokenize() has chosen a number"
        try:
            requests = [
                Request(
                    id=self.name if len(prompts) == 1 else f"{self.name}.{number}",
                    prompt=prompt.tokens,
                    max_new_tokens=asked.max_tokens,
                    arrival_seconds=self._arrival_seconds,
                    temperature=asked.temperature,
                    top_k=asked.top_k,
                    top_p=asked.top_p,
                    seed=seed,
                    stop=end,
                    samples=asked.n,
                    logprobs=asked.logprobs,
                    prompt_logprobs=asked.echo and asked.logprobs is not None,
                    frequency_penalty=asked.frequency_penalty,
                    presence_penalty=asked.presence_penalty,
                    repetition_penalty=asked.repetition_penalty,
                    logit_bias=asked.logit_bias,
                )
                for number, prompt in enumerate(prompts)
            ]
        except RequestError as error:
            raise ApiError(400, str(error)) from None
        for number, (prompt, request) in enumerate(zip(prompts, requests, strict=True)):
            self.choices += [
                Choice(number * asked.n + sample, prompt, served.codec, asked) for sample in range(asked.n)
            ]
            self.prompt_tokens += len(prompt.tokens)
            self._open[number] = request.id
            self._thread.submit(request, partial(self._hear, number))

    def _hear(self, number: int, what: Output | RefusedRequest) -> None:
        self._heard.put_nowait((number, what))

    async def pieces(self) -> AsyncIterator[tuple[Choice, TextPiece]]:
        """Yield each new piece of text with its choice, until all choices have ended.

        Raises ApiError when the engine refuses or fails, ClientGone when the job was closed meanwhile.
        """
        while self._open:
            heard = await self._heard.get()
            if heard is None:
                raise ClientGone
            number, what = heard
            if isinstance(what, RefusedRequest):
                raise ApiError(what.status, what.message)
            choice = self.choices[number * self._n + what.sample]
            if choice.reason is None:  # otherwise the token was drawn before the engine learnt of the stop string
                piece = choice.take(what)
                self._release_if_ended(number, choice, what)
                yield choice, piece

    def _release_if_ended(self, number: int, choice: Choice, newest: Output) -> None:
        if choice.reason and not newest.finished:  # the engine does not look for stop strings
            self._thread.end(newest.request_id, "stop", newest.sample)
        n = self._n
        if all(choice.reason for choice in self.choices[number * n : (number + 1) * n]):
            del self._open[number]

    def close(self) -> None:
        """End this job's requests in the engine."""
        for request_id in self._open.values():
            self._thread.end(request_id, "abort")
        self._open.clear()
        self._heard.put_nowait(None)

    @property
    def usage(self) -> dict[str, Any]:
        """Count tokens of prompts and completions; a prompt counts once for all its choices."""
        made = sum(choice.tokens for choice in self.choices)
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": made,
            "total_tokens": self.prompt_tokens + made,
        }
