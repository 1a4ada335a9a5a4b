"""Streamed text: whole characters only, and no part of a possible stop string."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlsys_labkit.lm.checkpoint import TextCodec

_BROKEN = "\ufffd"  # decoders write it for bytes that are no character, or no complete one
_CONTEXT = 6  # tokens before the text, because some decoders trim the first space of what they decode


class TextStream:
    """The text of tokens that arrive one by one. The pieces joined are the text of all tokens.

    Args:
        codec: a tokenizer.
        prompt: the tokens before the first one.

    Example:
        >>> from mlsys_labkit.lm import Tokenizer
        >>> codec = Tokenizer.train(["plain text"], 257)  # every token is a byte
        >>> stream = TextStream(codec)
        >>> [stream.push(token) for token in codec.encode("né")], stream.flush()
        (['n', '', 'é'], '')
    """

    def __init__(self, codec: TextCodec, prompt: Sequence[int] = ()) -> None:
        self._codec = codec
        before = list(prompt[-_CONTEXT:])
        self._context = before if not self._text(before).endswith(_BROKEN) else []
        self._pending: list[int] = []
        self._shown = 0  # characters of the pending tokens that were given out already

    def _text(self, tokens: list[int]) -> str:
        return self._codec.decode(tokens) if tokens else ""

    def push(self, token: int) -> str:
        """Return the text that this token makes certain; it is empty in the middle of a character."""
        self._pending.append(token)
        text = self._fresh()
        certain = len(text.rstrip(_BROKEN))
        piece = text[self._shown : certain]
        self._shown = max(self._shown, certain)
        if certain == len(text):
            self._context, self._pending, self._shown = self._pending, [], 0
        return piece

    def flush(self) -> str:
        """Return the rest when no token follows; bytes of an incomplete character become U+FFFD."""
        rest = self._fresh()[self._shown :]
        self._context, self._pending, self._shown = self._pending, [], 0
        return rest

    def _fresh(self) -> str:
        return self._text(self._context + self._pending)[len(self._text(self._context)) :]


class StopFinder:
    """A filter that cuts a text at the first complete stop string and holds back the possible beginning of one.

    Example:
        >>> finder = StopFinder(["end"])
        >>> finder.push("the e"), finder.push("nough en"), finder.push("d of"), finder.found
        ('the ', 'enough ', '', True)
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._held = ""
        self.found = False

    def push(self, text: str) -> str:
        """Return the text that is certain to be before any stop string; nothing after one was found."""
        if self.found:
            return ""
        self._held += text
        ends = [(at + len(stop), at) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if ends:
            self.found = True
            return self._release(min(ends)[1])
        kept = max((_overlap(self._held, stop) for stop in self._stops), default=0)
        return self._release(len(self._held) - kept)

    def flush(self) -> str:
        """Return the text that was held back, when no text follows."""
        return "" if self.found else self._release(len(self._held))

    def _release(self, count: int) -> str:
        piece, self._held = self._held[:count], self._held[count:]
        return piece


def _overlap(text: str, stop: str) -> int:
    """Return the length of the longest end of ``text`` that ``stop`` begins with."""
    longest = min(len(text), len(stop) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(stop[:size])), 0)
