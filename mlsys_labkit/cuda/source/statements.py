"""Where a statement ends: the few rules of C++ that need no types."""

from __future__ import annotations

from collections.abc import Sequence

from mlsys_labkit.cuda.source.tokens import Token, matching

__all__ = ["statement_end"]


def statement_end(code: Sequence[Token], begin: int) -> int:
    """Index just behind the statement that begins at ``begin``.

    Example:
        >>> from mlsys_labkit.cuda.source.tokens import code_tokens, tokenize
        >>> code = code_tokens(tokenize("for (;;) if (a) b(); else { c(); } d();"))
        >>> "".join(token.text for token in code[: statement_end(code, 0)])
        'for(;;)if(a)b();else{c();}'
    """
    if begin >= len(code):
        return len(code)
    text = code[begin].text
    if text == "{":
        return matching(code, begin) + 1
    if text == "do":
        return _behind_semicolon(code, statement_end(code, begin + 1))
    if text in ("for", "while", "switch", "if"):
        opening = begin + 1
        while opening < len(code) and code[opening].text != "(":
            opening += 1  # if constexpr
        if opening == len(code):
            return len(code)
        end = statement_end(code, matching(code, opening) + 1)
        if text == "if" and end < len(code) and code[end].text == "else":
            return statement_end(code, end + 1)
        return end
    return _behind_semicolon(code, begin)


def _behind_semicolon(code: Sequence[Token], index: int) -> int:
    while index < len(code):
        if code[index].text in ("(", "[", "{"):
            index = matching(code, index)
        elif code[index].text == ";":
            return index + 1
        elif code[index].text == "}":
            return index
        index += 1
    return len(code)
