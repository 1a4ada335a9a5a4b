"""Loads, stores and atomics of a kernel as NVIDIA's compiler emits them: by source line, state space and width."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple


class Access(NamedTuple):
    """A kind of access on one source line.

    ``space`` is empty where PTX has a generic address, and ``bytes_per_lane`` is 0 where PTX names no width.
    """

    line: int
    space: str
    op: str
    bytes_per_lane: int


@dataclass
class Function:
    """One function of a PTX module: how many instructions of each kind stand in it, and the functions it calls."""

    accesses: Counter[Access] = field(default_factory=Counter)
    calls: set[str] = field(default_factory=set)
    lines: set[int] = field(default_factory=set)


_FILE = re.compile(r'\s*\.file\s+(\d+)\s+"([^"]*)"')
_LOC = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)(?:.*inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?")
_FUNCTION = re.compile(r"\s*(?:\.\w+\s+)*\.(?:entry|func)\s+(?:\([^)]*\)\s*)?([\w$]+)")
_CALL = re.compile(r"\s*call(?:\.uni)?\s+(?:\([^)]*\),\s*)?([\w$]+)")
_INSTRUCTION = re.compile(
    r"[\s{]*(?:@!?%?\w+\s+)?"
    r"((?:ldu?|st|atom|red|ldmatrix|stmatrix|cp\.async|mbarrier\.(?:init|arrive)|wmma\.(?:load|store))\.[\w.:]+)(.*)"
)
_TYPE_BITS = re.compile(r"\.[bsuf](8|16|32|64|128)(?:x2)?\b|\.(?:bf|f)16x2\b|\.bf16\b")
_SPACES = ("global", "shared", "local", "const", "param")


def read(ptx: str, file: str) -> dict[str, Function]:
    """Return the functions of a PTX module by symbol; lines are those of ``file``, 0 for code of other files."""
    wanted = {number for number, name in _files(ptx) if name.rsplit("/", 1)[-1] == file}
    inlined: dict[tuple[str, ...], tuple[str, ...]] = {}
    functions: dict[str, Function] = {}
    now, line = Function(), 0
    for text in ptx.splitlines():
        if place := _LOC.match(text):
            own, outer = place.groups()[:3], place.groups()[3:]
            if outer[0]:
                inlined[own] = outer
            else:
                inlined.pop(own, None)
            line = _line(own, inlined, wanted)
            now.lines.add(line)
        elif name := _FUNCTION.match(text):
            now = functions.setdefault(name[1], Function())
            line = 0
        elif found := _INSTRUCTION.match(text):
            now.accesses.update(Access(line, *kind) for kind in _kinds(found[1], found[2]))
        elif called := _CALL.match(text):
            now.calls.add(called[1])
    return functions


def kernel(functions: dict[str, Function], symbol: str) -> Counter[Access]:
    """Return the accesses of a kernel and of the functions that it calls."""
    total: Counter[Access] = Counter()
    seen: set[str] = set()
    waiting = [symbol]
    while waiting:
        name = waiting.pop()
        if name in seen or name not in functions:
            continue
        seen.add(name)
        total += functions[name].accesses
        waiting += functions[name].calls
    return total


def _files(ptx: str) -> Iterator[tuple[str, str]]:
    for text in ptx.splitlines():
        if found := _FILE.match(text):
            yield found[1], found[2]


def _line(place: tuple[str, ...], inlined: dict[tuple[str, ...], tuple[str, ...]], wanted: set[str]) -> int:
    """Return the line of the innermost frame in one of the files ``wanted``."""
    for _ in range(64):
        if place[0] in wanted and place[1] != "0":
            return int(place[1])
        if place not in inlined:
            return 0
        place = inlined[place]
    return 0


def _kinds(opcode: str, operands: str) -> Iterator[tuple[str, str, int]]:
    parts = opcode.split(".")
    spaces = [part.split("::")[0] for part in parts if part.split("::")[0] in _SPACES]
    space = spaces[0] if spaces else ""
    if space == "param":
        return
    match parts[0]:
        case "ldmatrix" | "stmatrix":  # the address of a lane is that of a row of 16 bytes, whichever lanes get them
            yield "shared", "load" if parts[0] == "ldmatrix" else "store", 16
        case "cp":
            size = re.search(r",\s*(\d+)\b", operands.rsplit("]", 1)[-1])
            if size:  # not cp.async.commit_group and its like
                yield "global", "load", int(size[1])
                yield "shared", "store", int(size[1])
        case "mbarrier":
            yield "shared", "store" if parts[1] == "init" else "atomic", 8
        case "wmma":
            yield space, parts[1], 0
        case "atom" | "red":
            yield space, "atomic", _width(opcode)
        case "st":
            yield space, "store", _width(opcode)
        case _:
            yield space, "load", _width(opcode)


def _width(opcode: str) -> int:
    found = list(_TYPE_BITS.finditer(opcode))
    bits = int(found[-1][1] or (16 if found[-1][0] == ".bf16" else 32)) if found else 0
    if found and found[-1][0].endswith("x2"):
        bits = 32
    vector = re.search(r"\.v([248])\b", opcode)
    return bits // 8 * (int(vector[1]) if vector else 1)
