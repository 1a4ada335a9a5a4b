"""C++ text with comments, strings and ``#if 0`` blocks replaced by spaces; every position stays."""

from __future__ import annotations

from collections.abc import Sequence

from mlsys_labkit.cuda.source.tokens import Token, blanked, enabled_tokens, tokenize


def mask(text: str, tokens: Sequence[Token]) -> str:
    """Return the code alone, directives included, at the same positions and on the same lines.

    Example:
        >>> text = 'f("a<<<b"); // g<<<1, 1>>>()'
        >>> mask(text, tokenize(text))
        'f("     ");                 '
    """
    pieces = []
    at = 0
    for token in enabled_tokens(tokens):
        pieces += [blanked(text[at : token.start]), _visible(token)]  # between two tokens: what #if 0 takes out
        at = token.end
    return "".join([*pieces, blanked(text[at:])])


def _visible(token: Token) -> str:
    if token.kind == "comment":
        return blanked(token.text)
    if token.kind in ("string", "character") and len(token.text) > 1:
        quote = token.text[-1]
        if quote not in "\"'":  # the text ends before the literal does
            return blanked(token.text)
        return quote + blanked(token.text[1:-1]) + quote
    if token.kind == "directive":
        body = token.text[1:]
        return token.text[0] + mask(body, tokenize(body))
    return token.text
