"""Namespaces around each token of a source."""

from __future__ import annotations

from collections.abc import Sequence

from mlsys_labkit.cuda.source.tokens import Token

ANONYMOUS = ""  # the name of a namespace without one


def namespaces(code: Sequence[Token]) -> list[tuple[str, ...]]:
    """Return for each token the names of the namespaces around it, the outermost first.

    Example:
        >>> from mlsys_labkit.cuda.source.tokens import code_tokens, tokenize
        >>> namespaces(code_tokens(tokenize("namespace a::b { x }")))[5]
        ('a', 'b')
    """
    found: list[tuple[str, ...]] = []
    around: list[tuple[str, ...]] = [()]
    opening: tuple[str, ...] | None = None  # names read since the word namespace
    for index, token in enumerate(code):
        found.append(around[-1])
        text = token.text
        if text == "namespace" and (index == 0 or code[index - 1].text != "using"):
            opening = ()
        elif text == "{":
            around.append(around[-1] + ((opening or (ANONYMOUS,)) if opening is not None else ()))
            opening = None
        elif text == "}" and len(around) > 1:
            around.pop()
        elif opening is not None and token.kind == "identifier" and text != "inline":
            opening = (*opening, text)
        elif opening is not None and text in (";", "="):
            opening = None
    return found
