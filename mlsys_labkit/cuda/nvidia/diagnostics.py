"""NVRTC's messages, as diagnostics that point into the student's source."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from mlsys_labkit.cuda.errors import Diagnostic

JIT_MODE = re.compile(r"in JIT mode")
"""In an error that NVRTC alone makes: host code beside a kernel is no mistake."""

_HEAD = re.compile(
    r"^(?:(?P<file>\S[^\n]*?)\((?P<line>\d+)\)|At end of source): "
    r"(?P<kind>catastrophic error|internal error|error|warning|remark|note)(?: #(?P<number>[\w-]+))?: (?P<text>.*)$"
)
_ASSEMBLER = re.compile(r"^ptxas (?P<kind>error|fatal|warning)\s*:\s*(?P<text>.*)$")
_GENERAL = re.compile(r"^nvrtc: error: (?P<text>.*)$")
NAME_LOOKUP = "__nv_name_map"
"""The file of complaints about the kernel's name, which NVRTC looks up after the source."""
_INDENT = 2  # spaces before a line of source that is shown, and before the caret under it

# Explanations of NVRTC's messages for students who are new to C++.
_HINTS = {
    'expected a ";"': ", here or on the line above",
    "unrecognized preprocessing directive": "; a comment in C++ begins with //",
}


@dataclass(frozen=True)
class Complaint:
    """A diagnostic and how bad it is."""

    severity: Literal["error", "warning"]
    diagnostic: Diagnostic


def read_log(log: str, file: str, source: str) -> tuple[Complaint, ...]:
    """Return errors and warnings of NVRTC and its assembler, the errors first, each in the order of the log.

    ``file`` is the name that the source was compiled under. Lines and columns count from 1.
    """
    lines, shown = source.split("\n"), log.splitlines()
    found = []
    for index, text in enumerate(shown):
        if head := _HEAD.match(text):
            if head["kind"] in ("remark", "note"):
                continue
            severity: Literal["error", "warning"] = "warning" if head["kind"] == "warning" else "error"
            found.append(Complaint(severity, _diagnostic(head, shown[index + 1 : index + 3], file, lines)))
        elif general := _ASSEMBLER.match(text) or _GENERAL.match(text):
            bad = "kind" not in general.groupdict() or general["kind"] != "warning"
            found.append(Complaint("error" if bad else "warning", Diagnostic(0, 0, general["text"].strip())))
    return tuple(sorted(dict.fromkeys(found), key=lambda complaint: complaint.severity))


def _diagnostic(head: re.Match[str], after: list[str], file: str, lines: list[str]) -> Diagnostic:
    if head["file"] is None:  # at the end of the source: a bracket or a comment is open
        return Diagnostic(len(lines), 0, head["text"], lines[-1])
    if head["file"] == NAME_LOOKUP:
        return Diagnostic(0, 0, head["text"], file=NAME_LOOKUP)
    line, text = int(head["line"]), head["text"] + _HINTS.get(head["text"], "")
    column = _column(after[0], after[1]) if len(after) == 2 and after[1].strip() == "^" else 0
    if head["file"] != file:
        return Diagnostic(line, column, text, after[0][_INDENT:] if after else "", head["file"])
    return Diagnostic(line, column, text, lines[line - 1] if line <= len(lines) else "")


def _column(shown: str, caret: str) -> int:
    """Return the column in characters; NVRTC puts its caret by the bytes of the line above it."""
    return len(shown.encode()[: caret.index("^")].decode(errors="ignore")) + 1 - _INDENT
