"""Records of an engine's run: ``Request``, ``EngineStep``, ``Recording``.

They are plain data: the engine writes them, metrics and views read them, and files keep them as JSON lines.
"""

from __future__ import annotations

import json
import reprlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from math import inf, isfinite
from operator import index
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from mlsys_labkit.serving.errors import RecordError, RequestError
from mlsys_labkit.serving.files import write_whole

Phase = Literal["prefill", "decode"]
_FORMAT = "mlsys-labkit recording 1"
_SETTINGS = ("block_size", "blocks", "block_bytes", "clock")


@dataclass(frozen=True)
class Request:
    """One prompt to continue.

    Args:
        id: its name, unique among the requests in an engine.
        prompt: token numbers, at least one.
        max_new_tokens: how many tokens to add; 0 only runs the prompt, for its log-probabilities.
        arrival_seconds: when it arrives, on the engine's clock.
        temperature: 0 takes the likeliest token; above, one is drawn.
        top_k: draw from that many likeliest tokens; 0: from all.
        top_p: draw from the likeliest tokens that together have this probability; 1: from all.
        seed: the same seed draws the same text, whatever other requests the engine serves.
        stop: tokens that end the text, and are part of it.
        samples: continuations drawn from one prompt, whose blocks they share. The first is named ``id``, the
            others ``id#1``, ``id#2``, ...; sample k draws with the seed ``seed + k``.
        logprobs: a number gives each drawn token its log-probability, and those of so many likeliest tokens; None gives
            none. They are the model's own: temperature, penalties and bias do not change them.
        prompt_logprobs: give the tokens of the prompt theirs, too. The first token of a text has none.
        frequency_penalty, presence_penalty: subtracted from a token's logit, the first as often as the token was drawn
            in this text, the second once if it was.
        repetition_penalty: divides the positive logits and multiplies the negative ones of all tokens so far, with the
            prompt's.
        logit_bias: pairs of a token and a number that is added to its logit.

    Raises:
        RequestError: a value is out of its range.

    Example:
        >>> Request("a", prompt=(5, 6, 7), max_new_tokens=4, samples=2).sample_ids
        ('a', 'a#1')
    """

    id: str
    prompt: tuple[int, ...]
    max_new_tokens: int = 16
    arrival_seconds: float = 0.0
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    stop: tuple[int, ...] = ()
    samples: int = 1
    logprobs: int | None = None
    prompt_logprobs: bool = False
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.id, str):
            raise RequestError(f"a request's id is {self.id!r}, expected text")
        for name in ("prompt", "stop"):
            expected = "token numbers from 0 up; a tokenizer's encode() makes them of a text"
            self._take(name, _tokens, lambda tokens: min(tokens, default=0) >= 0, expected)
        if not self.prompt:
            raise RequestError(f"request {self.id!r} has an empty prompt; give at least one token")
        self._take("max_new_tokens", index, lambda count: count >= 0, "a whole number from 0 up")
        self._take("samples", index, lambda count: count >= 1, "a whole number from 1 up")
        self._take("arrival_seconds", float, lambda seconds: 0 <= seconds < inf, "seconds from 0 up")
        self._take("temperature", float, lambda value: 0 <= value < inf, "a number from 0 up")
        self._take("top_k", index, lambda count: count >= 0, "a whole number from 0 up; 0 keeps all tokens")
        self._take("seed", index, lambda seed: True, "a whole number")
        self._take("top_p", float, lambda share: 0 < share <= 1, "above 0 and at most 1; 1 keeps all tokens")
        if self.logprobs is not None:
            self._take("logprobs", index, lambda count: count >= 0, "a whole number from 0 up, or None")
        if self.prompt_logprobs and self.logprobs is None:
            raise RequestError(f"request {self.id!r}: prompt_logprobs needs logprobs, which is None; 0 is enough")
        for name in ("frequency_penalty", "presence_penalty"):
            self._take(name, float, isfinite, "a number; 0 changes nothing")
        self._take("repetition_penalty", float, lambda value: 0 < value < inf, "above 0; 1 changes nothing")
        self._take("logit_bias", _biases, lambda _: True, "pairs of a token number from 0 up and a number")

    def _take(self, name: str, kind: Callable[[Any], Any], holds: Callable[[Any], bool], expected: str) -> None:
        """Convert a field by ``kind``, so that numbers of NumPy and torch become plain ones, and check it."""
        given = getattr(self, name)
        try:
            value = kind(given)
        except (TypeError, ValueError, OverflowError):
            value = None
        if value is None or isinstance(given, str | bool) or not holds(value):
            raise RequestError(f"request {self.id!r}: {name} is {reprlib.repr(given)}, expected {expected}")
        object.__setattr__(self, name, value)

    @property
    def shapes_logits(self) -> bool:
        """Return True if a penalty or a bias changes the logits that tokens are drawn from."""
        penalties = self.frequency_penalty, self.presence_penalty, self.repetition_penalty - 1
        return any(penalties) or bool(self.logit_bias)

    @property
    def sample_ids(self) -> tuple[str, ...]:
        """Return the names of its continuations, as steps list them."""
        return (self.id, *(f"{self.id}#{sample}" for sample in range(1, self.samples)))


@dataclass(frozen=True)
class Scheduled:
    """One request's part in a step.

    Attributes:
        request_id: a request, or one of its samples (``Request.sample_ids``).
        phase: "prefill" until every token it came with is in the cache, then "decode".
        tokens: tokens that went through the model in this step.
        cached_tokens: tokens that were in the cache before and were only read.
        hit_tokens: cached tokens that were found in other requests' blocks in this step.
    """

    request_id: str
    phase: Phase
    tokens: int
    cached_tokens: int
    hit_tokens: int = 0


@dataclass(frozen=True)
class Preempted:
    """A request that lost its blocks, to be recomputed, or copied to host memory and back later."""

    request_id: str
    how: Literal["recompute", "swap"]


@dataclass(frozen=True)
class EngineStep:
    """One pass through the model, and the memory as it stood afterwards.

    Attributes:
        index: 0, 1, ... in the order of the run.
        start_seconds, end_seconds: on the engine's clock, real or virtual. Tokens appear at the end.
        scheduled: requests that took part. The sum of ``tokens`` is the size of the ragged batch.
        preempted: requests that lost their blocks before the pass.
        resumed: requests that came back from host memory before the pass.
        finished: requests that ended after the pass; their blocks are free already.
        waiting: requests that had arrived and got no part, in the order of the queue.
        copies: (from, to) of each block copied because it was shared and about to be written.
        block_tables: running request -> its blocks, in the order of its tokens.
        held_tokens: running request -> slots filled in those blocks.
        turned_blocks: blocks that in this step became cached (held by no table, and still found by their hash), or
            ceased to be. The symmetric difference over the steps so far is the set of all cached blocks.
    """

    index: int
    start_seconds: float
    end_seconds: float
    scheduled: tuple[Scheduled, ...] = ()
    preempted: tuple[Preempted, ...] = ()
    resumed: tuple[str, ...] = ()
    finished: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    copies: tuple[tuple[int, int], ...] = ()
    block_tables: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    held_tokens: Mapping[str, int] = field(default_factory=dict)
    turned_blocks: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in ("block_tables", "held_tokens"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    @property
    def tokens(self) -> int:
        """Return the tokens that went through the model."""
        return sum(each.tokens for each in self.scheduled)

    @property
    def reference_counts(self) -> Counter[int]:
        """Return block in use -> number of tables that hold it."""
        return Counter(block for blocks in self.block_tables.values() for block in blocks)


class TokenLogprob(NamedTuple):
    """The natural logarithm of the probability that the model gave a token, and ``likeliest`` (token, logarithm)."""

    token: int
    logprob: float
    likeliest: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Output:
    """One token of one continuation.

    Attributes:
        request_id, sample: its continuation.
        token: its number; None at the end of a request that adds no token.
        finished: True for the last token.
        reason: "stop" or "length" for the last token, else "".
        logprob: its log-probability, if the request asks for it.
        prompt: of the first output of a continuation: the log-probabilities of the prompt's tokens after the first, if
            the request asks for them.
    """

    request_id: str
    sample: int
    token: int | None
    finished: bool = False
    reason: str = ""
    logprob: TokenLogprob | None = None
    prompt: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True)
class Recording:
    """A whole run of an engine.

    Args:
        requests: what was asked, in the order of arrival.
        steps: what the engine did.
        tokens: request or sample -> the tokens it was given.
        token_seconds: request or sample -> when each of those tokens appeared, on the engine's clock.
        reasons: request or sample -> "stop", "length" or "abort"; one that did not end has none.
        block_size: tokens per block.
        blocks: blocks in the pool.
        block_bytes: bytes of keys and values per block, over all layers.
        clock: "real" or "virtual".

    Example:
        >>> asked = Request("a", prompt=(1, 2), max_new_tokens=1)
        >>> step = EngineStep(0, 0.0, 0.5, (Scheduled("a", "prefill", 2, 0),), finished=("a",))
        >>> run = Recording((asked,), (step,), {"a": (7,)}, {"a": (0.5,)}, {"a": "length"}, block_size=16, blocks=2)
        >>> Recording.from_lines(run.to_lines()) == run
        True
        >>> run.seconds, run.steps[0].tokens
        (0.5, 2)
    """

    requests: tuple[Request, ...]
    steps: tuple[EngineStep, ...]
    tokens: Mapping[str, tuple[int, ...]]
    token_seconds: Mapping[str, tuple[float, ...]]
    reasons: Mapping[str, str]
    block_size: int
    blocks: int
    block_bytes: int = 0
    clock: Literal["real", "virtual"] = "virtual"

    def __post_init__(self) -> None:
        for name in ("tokens", "token_seconds", "reasons"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    @property
    def seconds(self) -> float:
        """Return the seconds from the clock's zero to the end of the last step."""
        return self.steps[-1].end_seconds if self.steps else 0.0

    def to_lines(self) -> str:
        """Return JSON lines: a head, and a line per request, per step, and per continuation's tokens."""
        head = {"format": _FORMAT} | {name: getattr(self, name) for name in _SETTINGS}
        head |= {"requests": len(self.requests), "steps": len(self.steps), "continuations": len(self.tokens)}
        rows: list[dict[str, Any]] = [head, *(asdict(request) for request in self.requests)]
        for step in self.steps:
            row = {name: getattr(step, name) for name in step.__dataclass_fields__}
            row["scheduled"] = [asdict(each) for each in step.scheduled]
            row["preempted"] = [asdict(each) for each in step.preempted]
            rows.append(row | {"block_tables": dict(step.block_tables), "held_tokens": dict(step.held_tokens)})
        for name, tokens in self.tokens.items():
            times, reason = self.token_seconds.get(name, ()), self.reasons.get(name)
            rows.append({"id": name, "tokens": tokens, "token_seconds": times, "reason": reason})
        return "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)

    @classmethod
    def from_lines(cls, text: str) -> Recording:
        """Read the output of ``to_lines``. Raises RecordError for any other or incomplete text."""
        try:
            head, *rows = map(json.loads, text.splitlines())
            if head["format"] != _FORMAT:
                raise RecordError(f"the file's format is {head['format']!r}, expected {_FORMAT!r}; record the run anew")
            first, second = head["requests"], head["requests"] + head["steps"]
            if len(rows) != second + head["continuations"]:
                raise RecordError(
                    f"the recording has {len(rows)} lines after its head, expected {second + head['continuations']}; "
                    "it was cut: record the run anew"
                )
            ends = rows[second:]
            return cls(
                requests=tuple(Request(**row) for row in rows[:first]),
                steps=tuple(_step(row) for row in rows[first:second]),
                tokens={row["id"]: tuple(row["tokens"]) for row in ends},
                token_seconds={row["id"]: tuple(row["token_seconds"]) for row in ends},
                reasons={row["id"]: row["reason"] for row in ends if row["reason"]},
                **{name: head[name] for name in _SETTINGS},
            )
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, RecordError):
                raise
            raise RecordError(f"this is no recording of an engine ({error}); write one by Recording.save") from None

    def save(self, path: str | Path) -> Path:
        """Write JSON lines; the file appears complete or not at all."""
        return write_whole(path, self.to_lines())

    @classmethod
    def load(cls, path: str | Path) -> Recording:
        """Read a file that ``save`` wrote. Raises RecordError for any other file."""
        return cls.from_lines(Path(path).read_text(encoding="utf-8"))


def _tokens(given: Iterable[Any]) -> tuple[int, ...]:
    return tuple(map(index, given))


def _biases(given: Iterable[Any]) -> tuple[tuple[int, float], ...]:
    biases = tuple((index(token), float(bias)) for token, bias in given)
    if not all(token >= 0 and isfinite(bias) for token, bias in biases):
        raise ValueError
    return biases


def _step(row: dict[str, Any]) -> EngineStep:
    plain: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}
    plain["scheduled"] = tuple(Scheduled(**each) for each in row["scheduled"])
    plain["preempted"] = tuple(Preempted(**each) for each in row["preempted"])
    plain["copies"] = tuple((source, target) for source, target in row["copies"])
    plain["block_tables"] = {name: tuple(blocks) for name, blocks in row["block_tables"].items()}
    return EngineStep(**plain)
