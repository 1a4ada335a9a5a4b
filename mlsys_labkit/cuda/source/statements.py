"""Ends of statements, by the rules of C++ that need no types."""

from __future__ import annotations

from mlsys_labkit.cuda.source.source import Source


def statement_end(source: Source, begin: int) -> int:
    """Return the index in ``source.code`` just behind the statement that begins at ``begin``.

    Example:
        >>> source = Source("for (;;) if (a) b(); else { c(); } d();")
        >>> "".join(token.text for token in source.code[: statement_end(source, 0)])
        'for(;;)if(a)b();else{c();}'
    """
    code = source.code
    if begin >= len(code):
        return len(code)
    text = code[begin].text
    if text == "{":
        return source.closing[begin] + 1
    if text == "do":
        return _behind_semicolon(source, statement_end(source, begin + 1))
    if text in ("for", "while", "switch", "if"):
        opening = begin + 1
        while opening < len(code) and code[opening].text != "(":
            opening += 1  # if constexpr
        if opening == len(code):
            return len(code)
        end = statement_end(source, source.closing[opening] + 1)
        if text == "if" and end < len(code) and code[end].text == "else":
            return statement_end(source, end + 1)
        return end
    return _behind_semicolon(source, begin)


def _behind_semicolon(source: Source, index: int) -> int:
    code = source.code
    while index < len(code):
        if code[index].text in ("(", "[", "{"):
            index = source.closing[index]
        elif code[index].text == ";":
            return index + 1
        elif code[index].text == "}":
            return index
        index += 1
    return len(code)
