"""The protocol of the endpoint: completions of OpenAI's API as plain data, and its errors.

Reference: OpenAI, "API reference", Completions; the fields top_k and ignore_eos are those that vLLM adds to them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MOST_STOPS = 4
MOST_PROMPTS = 128
_NEUTRAL: dict[str, tuple[Any, ...]] = {  # fields of the API that this engine cannot serve, and their neutral values
    "best_of": (None, 1),
    "frequency_penalty": (None, 0),
    "logit_bias": (None, {}),
    "logprobs": (None,),
    "presence_penalty": (None, 0),
    "suffix": (None, ""),
}
_IGNORED = ("user", "metadata", "store")


class ApiError(Exception):
    """An answer other than 200, with its reason in the form that OpenAI's clients read."""

    def __init__(
        self, status: int, message: str, *, param: str | None = None, code: str | None = None, kind: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        kind = kind or ("invalid_request_error" if status < 500 else "server_error")
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": code}}


@dataclass(frozen=True)
class Completion:
    """A request for completions, checked.

    Attributes:
        prompts: texts, or lists of tokens.
        n: continuations of each prompt.
        seed: None lets the server choose.
        stop: strings that end a text and are not part of it.
        usage: True if a stream ends in a count of tokens.
    """

    prompts: tuple[str | tuple[int, ...], ...]
    max_tokens: int = 16
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    n: int = 1
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stream: bool = False
    usage: bool = False
    echo: bool = False
    ignore_eos: bool = False


def read_completion(body: bytes, model: str) -> Completion:
    """Check the body of POST /v1/completions. Raises ApiError with what was expected.

    Example:
        >>> read_completion(b'{"prompt": "def", "max_tokens": 4}', model="tiny").max_tokens
        4
    """
    asked = _object(body)
    name = asked.pop("model", model)
    if name != model:
        raise no_such_model(name, model)
    for field, neutral in _NEUTRAL.items():
        if asked.pop(field, None) not in neutral:
            raise _wrong(field, f"{field} is not supported by this server; leave it out")
    for field in _IGNORED:
        asked.pop(field, None)
    options = _take(asked, "stream_options", (dict,), "an object", {})
    stream = _take(asked, "stream", (bool,), "true or false", False)
    if options and not stream:
        raise _wrong("stream_options", "stream_options goes with stream=true; set it, or leave the options out")
    completion = Completion(
        prompts=_prompts(asked.pop("prompt", None)),
        max_tokens=_number(asked, "max_tokens", 16, int, 1, None),
        temperature=float(_number(asked, "temperature", 1.0, float, 0, 2)),
        top_p=_top_p(asked),
        top_k=max(0, _number(asked, "top_k", 0, int, -1, None)),
        n=_number(asked, "n", 1, int, 1, 128),
        seed=_number(asked, "seed", None, int, -(2**63), 2**63 - 1),
        stop=_stops(asked.pop("stop", None)),
        stream=stream,
        usage=bool(options.get("include_usage", False)),
        echo=_take(asked, "echo", (bool,), "true or false", False),
        ignore_eos=_take(asked, "ignore_eos", (bool,), "true or false", False),
    )
    if asked:
        unknown = min(asked)
        raise _wrong(unknown, f"there is no field {unknown!r} in a request for completions; leave it out")
    return completion


def no_such_model(name: object, model: str) -> ApiError:
    """Return a 404 that names the served model."""
    return ApiError(
        404, f"the model {name!r} is not served here; this server has {model!r}", param="model", code="model_not_found"
    )


def _object(body: bytes) -> dict[str, Any]:
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"the body is not JSON ({error}); send an object with a prompt") from None
    if not isinstance(asked, dict):
        raise ApiError(400, f"the body is {_kind(asked)}, expected an object with a prompt")
    return asked


def _prompts(given: Any) -> tuple[str | tuple[int, ...], ...]:
    expected = "a text, a list of texts, a list of tokens, or a list of such lists"
    if isinstance(given, str):
        return (given,)
    if not isinstance(given, list) or not given:
        raise _wrong("prompt", f"prompt is {_kind(given)}, expected {expected}")
    if _tokens(given):
        return (tuple(given),)
    if len(given) > MOST_PROMPTS:
        raise _wrong("prompt", f"prompt has {len(given)} texts, at most {MOST_PROMPTS} are taken at once; send fewer")
    for each in given:
        if not isinstance(each, str) and not _tokens(each):
            raise _wrong("prompt", f"prompt is a list with {_kind(each)} in it, expected {expected}")
    return tuple(each if isinstance(each, str) else tuple(each) for each in given)


def _tokens(given: Any) -> bool:
    whole = isinstance(given, list) and bool(given)
    return whole and all(isinstance(token, int) and not isinstance(token, bool) for token in given)


def _stops(given: Any) -> tuple[str, ...]:
    stops = [given] if isinstance(given, str) else given or []
    if not isinstance(stops, list) or len(stops) > MOST_STOPS or not all(isinstance(s, str) and s for s in stops):
        raise _wrong("stop", f"stop takes a text or up to {MOST_STOPS} texts, none of them empty; got {_short(given)}")
    return tuple(stops)


def _top_p(asked: dict[str, Any]) -> float:
    share = float(_number(asked, "top_p", 1.0, float, 0, 1))
    if share == 0:
        raise _wrong(
            "top_p", "top_p is 0, expected a number above 0 and up to 1; for the likeliest token set temperature to 0"
        )
    return share


def _number(asked: dict[str, Any], field: str, default: Any, kind: type, low: float, high: float | None) -> Any:
    expected = "a whole number" if kind is int else "a number"
    expected += f" from {low} up" if high is None else f" from {low} to {high}"
    value = _take(asked, field, (int,) if kind is int else (int, float), expected, default)
    if value is not default and not (low <= value and (high is None or value <= high)):
        raise _wrong(field, f"{field} is {_short(value)}, expected {expected}")
    return value


def _take(asked: dict[str, Any], field: str, kinds: tuple[type, ...], expected: str, default: Any) -> Any:
    """Remove a field from the object and return its value; null is the default, as in OpenAI's API."""
    value = asked.pop(field, None)
    if value is None:
        return default
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise _wrong(field, f"{field} is {_short(value)}, expected {expected}")
    return value


def _wrong(field: str, message: str) -> ApiError:
    return ApiError(400, message, param=field)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _kind(value: Any) -> str:
    if value is None:
        return "missing"
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "an empty list" if not value else "a list"
    return _short(value)
