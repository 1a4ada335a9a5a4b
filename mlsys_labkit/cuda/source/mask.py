"""C++ text without what is no code: comments, strings and ``#if 0`` blocks become spaces, every position stays."""

from __future__ import annotations

import re
from collections.abc import Iterable

from mlsys_labkit.cuda.source.tokens import Token, enabled_tokens, tokenize

__all__ = ["mask"]


def mask(text: str) -> str:
    """The code alone, directives included, at the same positions and on the same lines.

    Example:
        >>> mask('f("a<<<b"); // g<<<1, 1>>>()')
        'f("     ");                 '
    """
    tokens = tokenize(text)
    return _masked(text, enabled_tokens(tokens))


def _masked(text: str, tokens: Iterable[Token]) -> str:
    pieces = []
    at = 0
    for token in tokens:
        pieces.append(_blank(text[at : token.start]))  # what #if 0 took out
        pieces.append(_visible(token))
        at = token.end
    return "".join([*pieces, _blank(text[at:])])


def _visible(token: Token) -> str:
    if token.kind == "comment":
        return _blank(token.text)
    if token.kind in ("string", "character") and len(token.text) > 1:
        return token.text[-1] + _blank(token.text[1:-1]) + token.text[-1]
    if token.kind == "directive":
        return token.text[0] + _masked(token.text[1:], tokenize(token.text[1:]))
    return token.text


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)
