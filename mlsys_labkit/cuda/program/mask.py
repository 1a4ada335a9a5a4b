"""C++ text without what is no code: comments, strings and ``#if 0`` blocks become spaces, every position stays."""

from __future__ import annotations

import re

_TOKEN = re.compile(
    r"""//(?:[^\n\\]|\\.|\\\n)*                                   # a comment to the end of the line
      | /\*.*?(?:\*/|\Z)                                           # a comment in the old style
      | (?:u8|[uUL])?R"(?P<mark>[^\s()\\"]*)\(.*?\)(?P=mark)"     # a raw string
      | "(?:[^"\\\n]|\\.|\\\n)*"?                                 # a string
      | (?<![0-9A-Fa-f])'(?:[^'\\\n]|\\.)*'?                      # a character, not a digit separator
    """,
    re.VERBOSE | re.DOTALL,
)
_CONDITION = re.compile(r"^[ \t]*#[ \t]*(if|ifdef|ifndef|elif|else|endif)\b[ \t]*([^\n]*)", re.MULTILINE)


def mask(text: str) -> str:
    """The code alone, at the same positions and on the same lines.

    Example:
        >>> mask('f("a<<<b"); // g<<<1, 1>>>()')
        'f("      ");                  '
    """
    code = _TOKEN.sub(_blank, text)
    return _without_disabled(code)


def _blank(found: re.Match[str]) -> str:
    token = found[0]
    if token[0] in "\"'":
        inside = re.sub(r"[^\n]", " ", token[1:-1])
        return token[0] + inside + token[-1] if len(token) > 1 else token
    return re.sub(r"[^\n]", " ", token)


def _without_disabled(code: str) -> str:
    if not re.search(r"#[ \t]*if[ \t]+0\b", code):
        return code
    pieces: list[str] = []
    kept_to = 0
    depth = 0  # of conditions inside a disabled block; 0 outside of one
    for found in _CONDITION.finditer(code):
        word, rest = found[1], found[2].strip()
        if depth == 0:
            if word == "if" and rest in ("0", "false"):
                pieces.append(code[kept_to : found.end()])
                kept_to, depth = found.end(), 1
            continue
        if word.startswith("if"):
            depth += 1
        elif word == "endif":
            depth -= 1
        if depth == 0 or (depth == 1 and word in ("else", "elif")):
            pieces.append(re.sub(r"[^\n]", " ", code[kept_to : found.start()]))
            kept_to, depth = found.start(), 0
    pieces.append(code[kept_to:])
    return "".join(pieces)
