"""What g++ says, told about the student's own lines."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mlsys_labkit.cuda.errors import CompileError, Diagnostic

__all__ = ["compile_error", "read_diagnostics"]

_MESSAGE = re.compile(
    r"^(?P<file>[^\s:][^:]*):(?P<line>\d+):(?:(?P<column>\d+):)? (?P<kind>fatal error|error): (?P<text>.*)$"
)
_REQUIRED = re.compile(
    r"^(?P<file>[^\s:][^:]*):(?P<line>\d+):(?:(?P<column>\d+):)?\s+(?:required from|in .constexpr. expansion)"
)
_INCLUDED = re.compile(r"^(?:In file included from|\s+from) (?P<file>[^:]+):(?P<line>\d+)")
_UNDEFINED = re.compile(r"undefined reference to [`'](?P<name>[^']+)'|multiple definition of [`'](?P<other>[^']+)'")

# What a word of g++'s means to somebody who wrote CUDA.
_HINTS = (
    (re.compile(r"^'(\w+)' was not declared in this scope(?:; did you mean '(\w+)'\?)?"), "{0} is not declared here"),
    (re.compile(r"exception handling disabled"), "device code knows no exceptions: no try, catch or throw"),
    (re.compile(r"^expected ('[^']+' or )?';' before"), "a semicolon is missing, here or on the line above"),
    (re.compile(r"(?:impossible constraint|invalid 'asm')"), "inline PTX runs on a GPU only"),
    (re.compile(r"^assignment of read-only location"), "this writes through a pointer to const"),
)


def read_diagnostics(said: str, name: str, source: str) -> tuple[Diagnostic, ...]:
    """The errors in g++'s output that concern the student's source ``name``, or all of them when none does.

    An error inside a header is told of the line that included it, or that made g++ instantiate it.
    """
    lines = source.split("\n")
    found: list[Diagnostic] = []
    elsewhere: list[Diagnostic] = []
    via = 0  # a line of the student's that led to what is reported next
    for message in said.splitlines():
        if (included := _INCLUDED.match(message)) and included["file"] == name:
            via = int(included["line"])
        elif (required := _REQUIRED.match(message)) and required["file"] == name:
            via = int(required["line"])
        elif complaint := _MESSAGE.match(message):
            line, column = int(complaint["line"]), int(complaint["column"] or 0)
            mine = complaint["file"] == name
            if not mine and via:
                line, column, mine = via, 0, True
            shown = lines[line - 1] if mine and 0 < line <= len(lines) else ""
            text = _plain(complaint["text"])
            (found if mine else elsewhere).append(
                Diagnostic(line, column, text, shown.strip("\r"), "" if mine else complaint["file"])
            )
            via = 0
    return tuple(dict.fromkeys(found)) or tuple(dict.fromkeys(elsewhere))


def linker_diagnostics(said: str) -> tuple[Diagnostic, ...]:
    """Functions that were called and never written."""
    names = dict.fromkeys(found["name"] or found["other"] for found in _UNDEFINED.finditer(said))
    return tuple(Diagnostic(0, 0, f"{name} is declared and used, but not defined in this source") for name in names)


def compile_error(diagnostics: Sequence[Diagnostic], said: str) -> CompileError:
    """The error for a source that does not compile: the first few complaints, each on a line."""
    if not diagnostics:
        return CompileError(f"the source does not compile:\n{said.strip()[-2000:]}")
    shown = [str(one) for one in diagnostics[:5]]
    more = [f"and {len(diagnostics) - 5} more"] if len(diagnostics) > 5 else []
    return CompileError("; ".join(["\n".join([*shown, *more])]), tuple(diagnostics))


def _plain(text: str) -> str:
    for pattern, words in _HINTS:
        found = pattern.search(text)
        if found:
            return f"{words.format(*found.groups())} ({text})"
    return text
