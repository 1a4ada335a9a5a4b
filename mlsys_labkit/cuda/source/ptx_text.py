"""The text of inline PTX, read as declarations, labels and instructions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_GUARD = re.compile(r"@\s*(!?)\s*([%$\w]+)\s*")
_OPCODE = re.compile(r"[a-z]\w*(?:\.[\w:]+)*")
_REGISTERS = re.compile(r"\.reg\s*\.(\w+)\s+(.*)", re.DOTALL)
_LABEL = re.compile(r"([A-Za-z_$%][\w$]*)\s*:(?!:)\s*")


@dataclass(frozen=True)
class Instruction:
    """One instruction: its guard (``!p`` where it is negated), its name in parts, and its operands as text."""

    guard: str
    name: str
    operands: tuple[str, ...]

    @property
    def opcode(self) -> str:
        return self.name.split(".")[0]

    @property
    def modifiers(self) -> list[str]:
        return self.name.split(".")[1:]


@dataclass(frozen=True)
class Registers:
    """The declaration of registers of one type."""

    kind: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class Mark:
    """A brace, a label (``kind`` is "label") or a text that cannot be read (``kind`` is "unknown")."""

    kind: str
    text: str = ""


@dataclass
class PtxText:
    """The contents of one assembly statement, in order."""

    items: list[Instruction | Registers | Mark] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)


def parse(text: str) -> PtxText:
    """Return what the text of an assembly statement says.

    Example:
        >>> parse("{ .reg .pred p; setp.ne.b32 p, %0, 0; @p bra DONE; DONE: }").labels
        ['DONE']
    """
    body = PtxText()
    for piece in _pieces(_COMMENT.sub(" ", text)):
        if piece in ("{", "}"):
            body.items.append(Mark(piece))
            continue
        while label := _LABEL.match(piece):
            body.labels.append(label[1].replace("$", "_"))
            body.items.append(Mark("label", body.labels[-1]))
            piece = piece[label.end() :]
        if piece:
            body.items.append(_item(piece))
    body.labels = list(dict.fromkeys(body.labels))
    return body


def split_operands(text: str) -> tuple[str, ...]:
    """Return the operands between commas; those in braces or brackets stay together.

    Example:
        >>> split_operands("{a, b}, [c + 4], 1")
        ('{a, b}', '[c + 4]', '1')
    """
    parts, depth, begin = [], 0, 0
    for at, character in enumerate(text):
        depth += (character in "{[(") - (character in "}])")
        if character == "," and depth == 0:
            parts.append(text[begin:at].strip())
            begin = at + 1
    parts.append(text[begin:].strip())
    return tuple(part for part in parts if part)


def _item(piece: str) -> Instruction | Registers | Mark:
    if registers := _REGISTERS.fullmatch(piece):
        names: list[str] = []
        for name in split_operands(registers[2]):
            ranged = re.fullmatch(r"(.+?)<(\d+)>", name)
            names += [f"{ranged[1]}{i}" for i in range(int(ranged[2]))] if ranged else [name]
        return Registers(registers[1], tuple(names))
    guard = _GUARD.match(piece)
    rest = piece[guard.end() :] if guard else piece
    opcode = _OPCODE.match(rest)
    if not opcode:
        return Mark("unknown", " ".join(piece.split()))
    shown = guard[1] + guard[2] if guard else ""
    return Instruction(shown, opcode[0], split_operands(rest[opcode.end() :]))


def _pieces(text: str) -> Iterator[str]:
    """Yield statements without their semicolons, and the braces of scopes."""
    begin = depth = 0
    for at, character in enumerate(text):
        before = text[begin:at].strip()
        if character == "{" and not _is_open(before) and depth == 0:
            if before:
                yield before
            yield "{"
            begin = at + 1
        elif character == "{":
            depth += 1
        elif character == "}" and depth:
            depth -= 1
        elif character == "}":
            if before:
                yield before
            yield "}"
            begin = at + 1
        elif character == ";":
            if before:
                yield before
            begin = at + 1
    if rest := text[begin:].strip():
        yield rest


def _is_open(before: str) -> bool:
    """Return whether an instruction has begun: a brace then begins a vector, and no scope."""
    return bool(_LABEL.sub("", before).strip())
