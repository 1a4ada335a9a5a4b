"""Lines of each compiler stage by the student's source line, from the debug information in the text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from mlsys_labkit.triton_trace.recorder import Line

Lines = Mapping[Line, tuple[int, ...]]
_ALIAS = re.compile(r"^#(loc\w*) = loc\((.*)\)$")
_PLACE = re.compile(r'"((?:[^"\\]|\\.)*)":(\d+):\d+')
_NAMED = re.compile(r"#(loc\w*)")
_LAST = re.compile(r"loc\((#loc\w*|unknown|\"[^#]*)\)$")
_METADATA = re.compile(r"^!(\d+) = (?:distinct )?!(\w+)\((.*)\)$")
_FIELD = re.compile(r"(\w+): (?:!(\d+)|\"((?:[^\"\\]|\\.)*)\"|(-?\w+))")
_DBG = re.compile(r"!dbg !(\d+)")
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"(?:\s+"([^"]*)")?')
_LOC = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)\s+\d+(?:.*inlined_at\s+(\d+)\s+(\d+))?")
_INSTRUCTION = re.compile(r"^\s*(?:@!?%\w+\s+|\{\s*)?[a-z]")


def lines_of(stage: str, text: str, files: Mapping[str, str]) -> Lines:
    """Return the lines of ``text``, counted from 1, by the student's line that they come from.

    A line of an inlined function belongs to the line in the function and to the line that calls it.

    Args:
        stage: one of STAGES.
        files: names of files in the debug information -> the student's cell or file; others are left out.

    Example:
        >>> lines_of("ptx", ".loc 1 4 0\\nadd.s32 %r1, %r2, 1;\\n.file 1 \\"In[3]\\"", {"In[3]": "In[3]"})
        {Line(place='In[3]', number=4): (2,)}
    """
    found: dict[Line, set[int]] = {}
    for number, places in STAGES[stage](text.splitlines()):
        for file, line in places:
            if file in files and line > 0:
                found.setdefault(Line(files[file], line), set()).add(number)
    return {line: tuple(sorted(found[line])) for line in sorted(found)}


Place = tuple[str, int]
Located = Iterator[tuple[int, frozenset[Place]]]


def _mlir(lines: list[str]) -> Located:
    aliases = {match[1]: match[2] for line in lines if (match := _ALIAS.match(line))}
    known: dict[str, frozenset[Place]] = {}

    def places(text: str) -> frozenset[Place]:
        if text not in known:
            own = {(file, int(line)) for file, line in _PLACE.findall(text)}
            known[text] = frozenset(own.union(*(places(aliases.get(name, "")) for name in _NAMED.findall(text))))
        return known[text]

    opened: list[int] = []
    for number, line in enumerate(lines, 1):
        if line.startswith("#") or not line.strip():
            continue
        match = _LAST.search(line)
        here = places(match[1]) if match else frozenset()
        if line.lstrip().startswith("}") and opened:
            yield opened.pop(), here  # an operation with a body has its location at its end
        if line.rstrip().endswith("{"):
            opened.append(number)
        elif here:
            yield number, here


def _llvm(lines: list[str]) -> Located:
    nodes = {match[1]: (match[2], _fields(match[3])) for line in lines if (match := _METADATA.match(line))}

    def file(scope: str) -> str:
        kind, fields = nodes.get(scope, ("", {}))
        if kind == "DIFile":
            folder = fields.get("directory", "")
            return f"{folder}/{fields['filename']}" if folder else fields["filename"]
        return file(fields["file"]) if "file" in fields else file(fields["scope"]) if "scope" in fields else ""

    def places(node: str) -> frozenset[Place]:
        kind, fields = nodes.get(node, ("", {}))
        if kind == "DILocation":
            own = frozenset({(file(fields["scope"]), int(fields.get("line", 0)))})
            return own | places(fields["inlinedAt"]) if "inlinedAt" in fields else own
        return frozenset()

    for number, line in enumerate(lines, 1):
        if (match := _DBG.search(line)) and not line.startswith("define"):
            yield number, places(match[1])


def _fields(text: str) -> dict[str, str]:
    return {name: node or string or word for name, node, string, word in _FIELD.findall(text)}


def _ptx(lines: list[str]) -> Located:
    files: dict[str, str] = {}
    for line in lines:
        if match := _FILE.match(line):
            files[match[1]] = f"{match[2]}/{match[3]}" if match[3] else match[2]
    here: frozenset[Place] = frozenset()
    counted = False
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith(("// begin inline asm", "// end inline asm")):
            counted = False
        elif match := _LOC.match(line):
            # LLVM increases the source line with every line of inline assembly: only the first one is correct.
            if counted:
                continue
            counted = lines[number - 2].lstrip().startswith("// begin inline asm")
            pairs = ((match[1], match[2]), (match[3], match[4]))
            here = frozenset((files.get(file, ""), int(at)) for file, at in pairs if file)
        elif line.startswith("}") or line.lstrip().startswith(".section"):
            here = frozenset()
        elif here and _INSTRUCTION.match(line):
            yield number, here


STAGES: dict[str, Callable[[list[str]], Located]] = {"ttir": _mlir, "ttgir": _mlir, "llir": _llvm, "ptx": _ptx}
