"""The texts and log-probabilities of tokens for a client, in the two forms of OpenAI's API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from mlsys_labkit.lm.checkpoint import TextCodec
    from mlsys_labkit.serving.records import TokenLogprob

_LEAST = -9999.0  # JSON has no minus infinity


class TextToken(NamedTuple):
    """A token, the place in the text where it begins, and its log-probability; the first of a prompt has none."""

    token: int
    offset: int
    logprob: TokenLogprob | None
    ends: bool = False


@dataclass
class TextPiece:
    """A new piece of a text, with the tokens that the client asked to be told about."""

    text: str
    tokens: list[TextToken] = field(default_factory=list)


def text_of(codec: TextCodec, token: int) -> str:
    """Return the text of one token; bytes that are no text of their own are written as OpenAI's API writes them.

    Example:
        >>> from mlsys_labkit.lm import Tokenizer
        >>> [text_of(Tokenizer.train(["x"], 257), token) for token in (97, 0xE2)]
        ['a', 'bytes:\\\\xe2']
    """
    raw = codec.token_bytes(token)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def completion_logprobs(codec: TextCodec, tokens: Sequence[TextToken]) -> dict[str, Any]:
    """Return ``logprobs`` of a completion: four lists with an item for each token."""
    return {
        "tokens": [text_of(codec, each.token) for each in tokens],
        "token_logprobs": [_finite(each.logprob.logprob) if each.logprob else None for each in tokens],
        "top_logprobs": [_by_text(codec, each.logprob) if each.logprob else None for each in tokens],
        "text_offset": [each.offset for each in tokens],
    }


def chat_logprobs(codec: TextCodec, tokens: Sequence[TextToken]) -> dict[str, Any]:
    """Return ``logprobs`` of a message: an item for each token of its content."""
    content = []
    for each in tokens:
        if each.logprob and not each.ends:
            top = [_item(codec, token, logprob) for token, logprob in each.logprob.likeliest]
            content.append({**_item(codec, each.token, each.logprob.logprob), "top_logprobs": top})
    return {"content": content, "refusal": None}


def _item(codec: TextCodec, token: int, logprob: float) -> dict[str, Any]:
    return {"token": text_of(codec, token), "logprob": _finite(logprob), "bytes": list(codec.token_bytes(token))}


def _by_text(codec: TextCodec, found: TokenLogprob) -> dict[str, float]:
    """Return text -> log-probability of a token and of the likeliest ones; a text that is taken gets its number."""
    logprobs = {text_of(codec, found.token): _finite(found.logprob)}
    for token, logprob in found.likeliest:
        if token != found.token:
            text = text_of(codec, token)
            logprobs[f"token_id:{token}" if text in logprobs else text] = _finite(logprob)
    return logprobs


def _finite(logprob: float) -> float:
    return max(logprob, _LEAST)
