"""The protocol of the endpoint: completions and chats of OpenAI's API as plain data.

Reference: OpenAI, "API reference", Completions and Chat completions; the fields top_k, repetition_penalty, ignore_eos
and chat_template_kwargs are those that vLLM adds to them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlsys_labkit.serving.server.fields import (
    ApiError,
    kind_of,
    read_object,
    refuse_rest,
    short,
    take,
    take_bool,
    take_number,
    wrong,
)

MOST_STOPS = 16
MOST_PROMPTS = 128
MOST_LOGPROBS = 20
# Fields of the API that this engine cannot serve, and their neutral values.
_NEUTRAL: dict[str, tuple[Any, ...]] = {"best_of": (None, 1), "suffix": (None, "")}
_NEUTRAL_CHAT: dict[str, tuple[Any, ...]] = {
    "audio": (None,),
    "function_call": (None, "none"),
    "functions": (None, []),
    "modalities": (None, ["text"]),
    "prediction": (None,),
    "reasoning_effort": (None,),
    "response_format": (None, {"type": "text"}),
    "tool_choice": (None, "none", "auto"),
    "tools": (None, []),
    "web_search_options": (None,),
}
_IGNORED = (
    "user",
    "metadata",
    "store",
    "parallel_tool_calls",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "verbosity",
)


@dataclass(frozen=True)
class Completion:
    """A request for completions, checked.

    Attributes:
        prompts: texts, or lists of tokens.
        max_tokens: None takes all the room that is left.
        n: continuations of each prompt.
        seed: None lets the server choose.
        stop: strings that end a text and are not part of it.
        usage: True if a stream ends in a count of tokens.
        logprobs: likeliest tokens to tell beside each token; None tells no log-probabilities.
        logit_bias: pairs of a token and what is added to its logit.
    """

    prompts: tuple[str | tuple[int, ...], ...]
    max_tokens: int | None = 16
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
    logprobs: int | None = None
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Chat:
    """A request for a chat, checked: the messages, and how to continue the text that a template makes of them."""

    messages: tuple[dict[str, Any], ...]
    completion: Completion
    settings: dict[str, Any]


def read_completion(body: bytes, model: str) -> Completion:
    """Check the body of POST /v1/completions. Raises ApiError with what was expected.

    Example:
        >>> read_completion(b'{"prompt": "def", "max_tokens": 4}', model="tiny").max_tokens
        4
    """
    asked = _begin(body, model, "a prompt", _NEUTRAL)
    own = {
        "prompts": _prompts(asked.pop("prompt", None)),
        "max_tokens": take_number(asked, "max_tokens", 16, int, 0),
        "echo": take_bool(asked, "echo"),
        "logprobs": take_number(asked, "logprobs", None, int, 0, MOST_LOGPROBS),
    }
    completion = Completion(**own, **_shared(asked))
    refuse_rest(asked, "completions")
    return completion


def read_chat(body: bytes, model: str) -> Chat:
    """Check the body of POST /v1/chat/completions. Raises ApiError with what was expected.

    Example:
        >>> asked = b'{"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}'
        >>> read_chat(asked, model="tiny").messages
        ({'role': 'user', 'content': 'Hello'},)
    """
    asked = _begin(body, model, "messages", _NEUTRAL_CHAT)
    messages = _messages(asked.pop("messages", None))
    longest = take_number(asked, "max_tokens", None, int, 1)
    longest = take_number(asked, "max_completion_tokens", longest, int, 1)
    logprobs = take_bool(asked, "logprobs")
    likeliest = take_number(asked, "top_logprobs", None, int, 0, MOST_LOGPROBS)
    if likeliest is not None and not logprobs:
        raise wrong("top_logprobs", "top_logprobs goes with logprobs=true; set it, or leave top_logprobs out")
    settings = take(asked, "chat_template_kwargs", (dict,), "an object", {})
    settings = {"add_generation_prompt": take_bool(asked, "add_generation_prompt", True), **settings}
    completion = Completion((), max_tokens=longest, logprobs=(likeliest or 0) if logprobs else None, **_shared(asked))
    refuse_rest(asked, "chat completions")
    return Chat(messages, completion, settings)


def no_such_model(name: object, model: str) -> ApiError:
    """Return a 404 that names the served model."""
    return ApiError(
        404, f"the model {name!r} is not served here; this server has {model!r}", param="model", code="model_not_found"
    )


def _begin(body: bytes, model: str, what: str, neutral: dict[str, tuple[Any, ...]]) -> dict[str, Any]:
    """Return the body's object without the fields that change nothing here."""
    asked = read_object(body, what)
    name = asked.pop("model", model)
    if name != model:
        raise no_such_model(name, model)
    for field, values in neutral.items():
        if asked.pop(field, None) not in values:
            raise wrong(field, f"{field} is not supported by this server; leave it out")
    for field in _IGNORED:
        asked.pop(field, None)
    return asked


def _shared(asked: dict[str, Any]) -> dict[str, Any]:
    """Take the fields that completions and chats have in common."""
    options = take(asked, "stream_options", (dict,), "an object", {})
    stream = take_bool(asked, "stream")
    if options and not stream:
        raise wrong("stream_options", "stream_options goes with stream=true; set it, or leave the options out")
    return {
        "temperature": take_number(asked, "temperature", 1.0, float, 0, 2),
        "top_p": _above_zero(asked, "top_p", 1.0, 1, "for the likeliest token set temperature to 0"),
        "top_k": max(0, take_number(asked, "top_k", 0, int, -1)),
        "n": take_number(asked, "n", 1, int, 1, 128),
        "seed": take_number(asked, "seed", None, int, -(2**63), 2**63 - 1),
        "stop": _stops(asked.pop("stop", None)),
        "stream": stream,
        "usage": bool(options.get("include_usage", False)),
        "ignore_eos": take_bool(asked, "ignore_eos"),
        "frequency_penalty": take_number(asked, "frequency_penalty", 0.0, float, -2, 2),
        "presence_penalty": take_number(asked, "presence_penalty", 0.0, float, -2, 2),
        "repetition_penalty": _above_zero(asked, "repetition_penalty", 1.0, 2, "1 changes nothing"),
        "logit_bias": _biases(asked.pop("logit_bias", None)),
    }


def _prompts(given: Any) -> tuple[str | tuple[int, ...], ...]:
    expected = "a text, a list of texts, a list of tokens, or a list of such lists"
    if isinstance(given, str):
        return (given,)
    if not isinstance(given, list) or not given:
        raise wrong("prompt", f"prompt is {kind_of(given)}, expected {expected}")
    if _tokens(given):
        return (tuple(given),)
    if len(given) > MOST_PROMPTS:
        raise wrong("prompt", f"prompt has {len(given)} texts, at most {MOST_PROMPTS} are taken at once; send fewer")
    for each in given:
        if not isinstance(each, str) and not _tokens(each):
            raise wrong("prompt", f"prompt is a list with {kind_of(each)} in it, expected {expected}")
    return tuple(each if isinstance(each, str) else tuple(each) for each in given)


def _tokens(given: Any) -> bool:
    whole = isinstance(given, list) and bool(given)
    return whole and all(isinstance(token, int) and not isinstance(token, bool) for token in given)


def _messages(given: Any) -> tuple[dict[str, Any], ...]:
    expected = "a list of messages such as {'role': 'user', 'content': 'Hello'}"
    if not isinstance(given, list) or not given:
        raise wrong("messages", f"messages is {kind_of(given)}, expected {expected}")
    messages = []
    for number, message in enumerate(given):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise wrong("messages", f"message {number} is {short(message)}, expected an object with a role")
        messages.append({**message, "content": _content(number, message.get("content"))})
    return tuple(messages)


def _content(number: int, given: Any) -> str:
    """Return a message's text; its parts become lines of it."""
    if given is None:  # an assistant's message that called a tool
        return ""
    if isinstance(given, str):
        return given
    if not isinstance(given, list):
        raise wrong(
            "messages", f"the content of message {number} is {short(given)}, expected a text or a list of parts"
        )
    for part in given:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise wrong("messages", f"message {number} has the part {short(part)}; this server takes text only")
    return "\n".join(part["text"] for part in given)


def _stops(given: Any) -> tuple[str, ...]:
    stops = [given] if isinstance(given, str) else given or []
    if not isinstance(stops, list) or len(stops) > MOST_STOPS or not all(isinstance(s, str) and s for s in stops):
        raise wrong("stop", f"stop takes a text or up to {MOST_STOPS} texts, none of them empty; got {short(given)}")
    return tuple(stops)


def _biases(given: Any) -> tuple[tuple[int, float], ...]:
    expected = 'an object from token numbers to numbers from -100 to 100, such as {"50": -100}'
    if given is None:
        return ()
    if not isinstance(given, dict):
        raise wrong("logit_bias", f"logit_bias is {short(given)}, expected {expected}")
    for token, bias in given.items():
        number = isinstance(bias, int | float) and not isinstance(bias, bool)
        if not (token.isascii() and token.isdigit() and len(token) < 10 and number and -100 <= bias <= 100):
            raise wrong("logit_bias", f"logit_bias has {short(token)}: {short(bias)}, expected {expected}")
    return tuple((int(token), float(bias)) for token, bias in given.items())


def _above_zero(asked: dict[str, Any], field: str, default: float, high: float, advice: str) -> float:
    value: float = take_number(asked, field, default, float, 0, high)
    if value == 0:
        raise wrong(field, f"{field} is 0, expected a number above 0 and up to {high}; {advice}")
    return value
