"""C++ text cut into tokens. Joined again they are the text, so that what is found has a place and a line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["Kind", "Token", "code_tokens", "enabled_tokens", "matching", "tokenize"]

Kind = Literal["identifier", "number", "string", "character", "punctuation", "comment", "directive", "space"]

# The order decides: a raw string before a name that begins with R, a comment before a division.
_TOKEN = re.compile(
    r"""
      (?P<string>    (?:u8|[uUL])?R"(?P<delimiter>[^()\\\s"]{0,16})\(.*?(?:\)(?P=delimiter)"|\Z)
                   | (?:u8|[uUL])?"(?:[^"\\\n]|\\[ \t\r]*\n|\\.)*(?:"|\\|(?=\n)|\Z) )
    | (?P<character> (?:u8|[uUL])?'(?:[^'\\\n]|\\[ \t\r]*\n|\\.)*(?:'|\\|(?=\n)|\Z) )
    | (?P<comment>   //(?:[^\\\n]|\\[ \t\r]*\n|\\)*
                   | /\*.*?(?:\*/|\Z) )
    | (?P<number>    \.?[0-9](?:[eEpP][+-]|'\w|[\w.])* )
    | (?P<identifier>[^\W\d][\w$]* | \$[\w$]* )
    | (?P<space>     \\[ \t\r]*\n | [ \t\r\f\v]+ | \n | [^\S\n]+ )
    | (?P<punctuation> ::|->|\#\#|%:%:|%:|<%|%>|<:|:>|. )
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Token:
    """``text`` begins at ``start`` (characters from 0) on ``line`` (from 1). A directive is one token, with its ends of
    lines that a backslash continues."""

    kind: Kind
    text: str
    start: int
    line: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def tokenize(text: str) -> list[Token]:
    """All of the text, in order: the tokens' texts join to it.

    Example:
        >>> [token.text for token in tokenize('a//b') if token.kind != "space"]
        ['a', '//b']
    """
    return list(_tokens(text))


def code_tokens(tokens: Sequence[Token]) -> list[Token]:
    """Without what a compiler's parser does not see: comments, space and directives, and blocks under ``#if 0``."""
    return [token for token in enabled_tokens(tokens) if token.kind not in ("comment", "space", "directive")]


def matching(code: Sequence[Token], opening: int) -> int:
    """Index of the bracket that closes the one at ``opening``; the last index where nothing does."""
    pairs = {"(": ")", "[": "]", "{": "}"}
    open_text, close_text = code[opening].text, pairs[code[opening].text]
    depth = 0
    for index in range(opening, len(code)):
        if code[index].text == open_text:
            depth += 1
        elif code[index].text == close_text:
            depth -= 1
            if depth == 0:
                return index
    return len(code) - 1


def _tokens(text: str) -> Iterator[Token]:
    at, line = 0, 1
    line_is_empty = True  # so far, comments and space aside
    while at < len(text):
        found = _TOKEN.match(text, at)
        assert found  # the last alternative takes any character
        kind: Kind = found.lastgroup if found.lastgroup != "delimiter" else "string"  # type: ignore[assignment]
        piece = found[0]
        if line_is_empty and piece in ("#", "%:", "##", "%:%:"):
            kind, piece = "directive", _directive(text, at)
        yield Token(kind, piece, at, line)
        at += len(piece)
        line += piece.count("\n")
        if kind == "space" and piece == "\n":
            line_is_empty = True
        elif kind not in ("space", "comment"):
            line_is_empty = kind == "directive"


def _directive(text: str, start: int) -> str:
    """From its # to the end of its last line, the line break left out."""
    at = start
    while at < len(text):
        found = _TOKEN.match(text, at)
        assert found
        if found[0] == "\n":
            break
        at = found.end()
    return text[start:at]


def enabled_tokens(tokens: Sequence[Token]) -> Iterator[Token]:
    """Without blocks under ``#if 0``."""
    depth = 0  # of conditions inside a block that #if 0 takes out; 0 outside of one
    for token in tokens:
        if token.kind == "directive":
            words = re.findall(r"\w+", re.sub(r"//.*|/\*.*?\*/", " ", token.text))
            name, rest = (words[0] if words else ""), words[1:]
            if depth == 0:
                depth = int(name == "if" and rest in (["0"], ["false"]))
            elif name in ("if", "ifdef", "ifndef"):
                depth += 1
            elif name == "endif" or (depth == 1 and name in ("else", "elif")):
                depth -= 1
        if depth == 0:
            yield token
