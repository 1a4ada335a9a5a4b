"""The messages of g++ and the linker, as diagnostics that point into the student's source."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from mlsys_labkit.cuda.errors import CudaCompileError, Diagnostic

_PLACE = r"(?P<file>[^\s:][^:]*):(?P<line>\d+):(?:(?P<column>\d+):)?"
_MESSAGE = re.compile(rf"^{_PLACE} (?P<kind>fatal error|error|note): (?P<text>.*)$")
_REQUIRED = re.compile(rf"^{_PLACE}\s+(?:required from|in .constexpr. expansion)")
_INCLUDED = re.compile(r"^(?:In file included from|\s+from) (?P<file>[^:]+):(?P<line>\d+)")
_UNDEFINED = re.compile(r"undefined reference to [`'](?P<name>[^']+)'|multiple definition of [`'](?P<other>[^']+)'")

_LEFT_OUT = re.compile(r"^call to '[^']*lk_left_out_\w+[^']*' declared with attribute error: (.*)")

# g++'s wording -> the wording for CUDA.
_HINTS = (
    (re.compile(r"^'(\w+)' was not declared in this scope(?:; did you mean '(\w+)'\?)?"), "{0} is not declared here"),
    (re.compile(r"exception handling disabled"), "device code knows no exceptions: no try, catch or throw"),
    (
        re.compile(r"^no match for call to '\(lk::TypedLaunch<(.*)>\) \((.*)\)'"),
        "the arguments of this launch do not fit: the kernel takes ({0}), and the launch passes ({1})",
    ),
    (re.compile(r"^expected ('[^']+' or )?';' before"), "a semicolon is missing, here or on the line above"),
    (re.compile(r"^invalid preprocessing directive"), "a comment in C++ begins with //"),
    (re.compile(r"^assignment of read-only location"), "this writes through a pointer to const"),
)


def read_diagnostics(
    said: str, name: str, source: str, headers: Mapping[str, str] = MappingProxyType({})
) -> tuple[Diagnostic, ...]:
    """Return g++'s errors about the student's source ``name`` and their ``headers``, or all of them if there are none.

    An error inside another header or a macro is reported for the student's line that included it, made g++ instantiate
    it, or used the macro.
    """
    texts = {name: source.split("\n")} | {header: text.split("\n") for header, text in headers.items()}
    found: list[Diagnostic] = []
    via = 0  # the student's line (an #include or an instantiation) that leads to the next message
    for message in said.splitlines():
        led = _INCLUDED.match(message) or _REQUIRED.match(message)
        complaint = _MESSAGE.match(message)
        if led and led["file"] == name:
            via = int(led["line"])
        elif complaint and complaint["kind"] == "note":
            _apply_note(complaint, name, found)
        elif complaint:
            place = (complaint["file"], int(complaint["line"]), int(complaint["column"] or 0))
            if place[0] not in texts and via:
                place = (name, via, 0)
            found.append(Diagnostic(place[1], place[2], _plain(complaint["text"]), "", place[0]))
            via = 0
    mine = [
        replace(
            one,
            file="" if one.file == name else one.file,
            source_line=texts[one.file][one.line - 1].strip("\r") if one.line <= len(texts[one.file]) else "",
        )
        for one in found
        if one.file in texts
    ]
    return tuple(dict.fromkeys(mine or found))


def _apply_note(note: re.Match[str], name: str, found: list[Diagnostic]) -> None:
    """Add to the error what the note after it shows: the use of a macro, or the brace that is open."""
    line, column = int(note["line"]), int(note["column"] or 0)
    if note["text"].startswith("to match this") and note["file"] == name:
        found.append(Diagnostic(line, column, f"this {note['text'].split()[-1]} is never closed", "", name))
    elif found and note["text"].startswith("in expansion of macro") and found[-1].file != name:
        found[-1] = replace(found[-1], line=line, column=0, file=note["file"])


def linker_diagnostics(said: str) -> tuple[Diagnostic, ...]:
    """Return the functions that are called and not defined."""
    names = dict.fromkeys(found["name"] or found["other"] for found in _UNDEFINED.finditer(said))
    return tuple(Diagnostic(0, 0, f"{name} is declared and used, but not defined in this source") for name in names)


def compile_error(diagnostics: Sequence[Diagnostic], said: str) -> CudaCompileError:
    """Return the error for a source that does not compile: the first few complaints, each on a line."""
    if not diagnostics:
        return CudaCompileError(f"the source does not compile:\n{said.strip()[-2000:]}")
    shown = [str(one) for one in diagnostics[:5]]
    more = [f"and {len(diagnostics) - 5} more"] if len(diagnostics) > 5 else []
    return CudaCompileError("; ".join(["\n".join([*shown, *more])]), tuple(diagnostics))


def _plain(text: str) -> str:
    if left_out := _LEFT_OUT.match(text):
        return left_out[1]
    for pattern, words in _HINTS:
        found = pattern.search(text)
        if found and "lk::" in text:
            return words.format(*((group or "").replace("&", "") for group in found.groups()))
        if found:
            return f"{words.format(*found.groups())} ({text})"
    return text
