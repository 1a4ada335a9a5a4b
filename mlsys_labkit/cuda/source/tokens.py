"""C++ text cut into tokens. Joined again they are the text, so that what is found has a place and a line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["identifier", "number", "string", "character", "punctuation", "comment", "directive", "space"]

_DEPTH = {"<": 1, "(": 1, "[": 1, "{": 1, ">": -1, ")": -1, "]": -1, "}": -1}
_PAIRS = {"(": ")", "[": "]", "{": "}"}

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
    """A token: ``text`` begins at ``start`` (characters from 0) on ``line`` (from 1). A continued directive is one
    token.
    """

    kind: Kind
    text: str
    start: int
    line: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def tokenize(text: str) -> list[Token]:
    """Return all of the text as tokens, in order: their texts join to it.

    Example:
        >>> [token.text for token in tokenize('a//b') if token.kind != "space"]
        ['a', '//b']
    """
    return list(_tokens(text))


def code_tokens(tokens: Sequence[Token]) -> list[Token]:
    """Return the tokens that a parser sees: no comments, space or directives, and no blocks under ``#if 0``."""
    return [token for token in enabled_tokens(tokens) if token.kind not in ("comment", "space", "directive")]


def closing_brackets(code: Sequence[Token]) -> list[int]:
    """Return for each token that opens a bracket the index of the one that closes it; the last index if none does."""
    closing = [len(code) - 1] * len(code)
    opened: dict[str, list[int]] = {")": [], "]": [], "}": []}
    for index, token in enumerate(code):
        if token.text in _PAIRS:
            opened[_PAIRS[token.text]].append(index)
        elif opened.get(token.text):
            closing[opened[token.text].pop()] = index
    return closing


def split_commas(text: str) -> list[str]:
    """Return what stands between the commas outside of brackets; parts without text are left out.

    Example:
        >>> split_commas("T* p, Pair<int, 2> q = {1, 2}")
        ['T* p', ' Pair<int, 2> q = {1, 2}']
    """
    parts, depth, begin = [], 0, 0
    for at, character in enumerate(text):
        depth += _DEPTH.get(character, 0)
        if character == "," and depth == 0:
            parts.append(text[begin:at])
            begin = at + 1
    return [part for part in [*parts, text[begin:]] if part.strip()]


def blanked(text: str) -> str:
    """Return spaces in place of the text, its line breaks kept."""
    return re.sub(r"[^\n]", " ", text)


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
    """Return the directive from its # to the end of its last line, the line break left out."""
    at = start
    while at < len(text):
        found = _TOKEN.match(text, at)
        assert found
        if found[0] == "\n":
            break
        at = found.end()
    return text[start:at]


def enabled_tokens(tokens: Sequence[Token]) -> Iterator[Token]:
    """Yield the tokens without blocks under ``#if 0``."""
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
