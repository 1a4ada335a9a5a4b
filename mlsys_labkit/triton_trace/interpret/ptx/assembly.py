"""The text of inline assembly as data: instructions of PTX, and LLVM's constraints on its registers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from mlsys_labkit.triton_trace.interpret.run import Refused

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_GUARD = re.compile(r"@(!?[\w$%]+)\s+")
_DECLARED = re.compile(r"\.reg\s*((?:\.\w+\s*)+)(.*)", re.DOTALL)
_REGISTERS = re.compile(r"(?P<name>[\w$%]+)(?:<(?P<count>\d{1,9})>)?")
_SEPARATOR = re.compile(r",(?![^{\[]*[}\]])")
_BLANK = " \t\n\r"
_BRACES = "{}" + _BLANK
_MOST_REGISTERS = 4096
_WIDTHS = {"c": 8, "h": 16, "r": 32, "f": 32, "l": 64, "d": 64}


@dataclass(frozen=True)
class PtxInstruction:
    """One instruction, as "@!p setp.lt.s32 q, $1, 5".

    Attributes:
        guard: "" or the predicate it depends on, with "!" in front where that is to be false.
        opcode, modifiers: "setp", ("lt", "s32"). operands: "q", "$1", "5".
    """

    guard: str
    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join((self.opcode, *self.modifiers))


@dataclass(frozen=True)
class Assembly:
    """A block of inline assembly. ``registers``: names that it declares."""

    instructions: tuple[PtxInstruction, ...]
    registers: frozenset[str]


def parsed(text: str) -> Assembly:
    """Return the instructions of a text. Raises Refused for labels and what is no instruction."""
    instructions: list[PtxInstruction] = []
    registers: set[str] = set()
    *statements, rest = (one.strip(_BLANK) for one in _COMMENT.sub(" ", text).replace("$$", "$").split(";"))
    if rest.strip(_BRACES):
        raise Refused(f"{' '.join(rest.split())} in tl.inline_asm_elementwise ends without ;")
    for statement in statements:
        body = statement.lstrip(_BRACES)
        if not body:
            continue
        if declared := _DECLARED.fullmatch(body):
            registers.update(_names(declared[2]))
        else:
            instructions.append(_instruction(body))
    return Assembly(tuple(instructions), frozenset(registers))


def widths(constraints: str) -> tuple[list[int], list[int]]:
    """Return the bits of each register of the results and of the operands: "=r,r,l" -> [32], [32, 64]."""
    results: list[int] = []
    operands: list[int] = []
    for one in (part.strip() for part in constraints.split(",")):
        if one.startswith("~") or not one:  # what the assembly overwrites besides
            continue
        letter = one.lstrip("=&")
        if letter not in _WIDTHS:
            raise Refused(f"the constraint {one!r} of tl.inline_asm_elementwise is not interpreted")
        (results if one.startswith("=") else operands).append(_WIDTHS[letter])
    return results, operands


def _names(declared: str) -> Iterator[str]:
    """Yield the registers of a declaration: "p, a<2>" are p, a0 and a1."""
    for one in declared.split(","):
        match = _REGISTERS.fullmatch(one.strip())
        if not match or int(match["count"] or 0) > _MOST_REGISTERS:
            raise Refused(f".reg {one.strip()} in tl.inline_asm_elementwise is not interpreted")
        yield from ((f"{match['name']}{i}" for i in range(int(match["count"]))) if match["count"] else (match["name"],))


def _instruction(body: str) -> PtxInstruction:
    guard = _GUARD.match(body)
    rest = body[guard.end() :] if guard else body
    name, _, operands = rest.replace("\n", " ").replace("\t", " ").partition(" ")
    opcode, *modifiers = name.split(".")
    if not re.fullmatch(r"[a-z]\w*", opcode):
        raise Refused(f"{' '.join(body.split())} in tl.inline_asm_elementwise is not interpreted")
    found = tuple(one.strip() for one in _SEPARATOR.split(operands) if one.strip())
    return PtxInstruction(guard[1] if guard else "", opcode, tuple(modifiers), found)
