"""Members of an aligned struct in the instrumented build: neighbours are recorded as the one access that nvcc makes.

nvcc loads ``a[i].x`` and ``a[i].y`` of a ``float2`` at once, and stores all members of a ``float4`` at once. gcc's own
description of its instructions (``-dP``) names the pointer, the offset and the alignment of each member.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from mlsys_labkit.cuda.kernel.gcc.described import instructions

_HOOK = re.compile(r"\b__tsan_(read|write)([1248])\b")
_CALL = re.compile(r"^\s+(?:callq?|bl)\s+(\S+)")
_LABEL = re.compile(r"^\.L\d+:")
_MEMORY = re.compile(r"(\(set )?\(mem[/\w]*:\w+ ((?:(?!\(mem|\(set).)*?)\[\d+ ([^ \n][^\n]*?) S(\d+) A(\d+)", re.DOTALL)
_BASE = re.compile(r"\b(?:(\w+?)?_\d+(?:\(D\))?)(?=->|\]|\.| \+|\))")
_PART = re.compile(r"->|\.\w+\+")  # a member of a struct: other members are other memory
_WIDEST = 16


@dataclass(frozen=True)
class _Member:
    line: int  # of the hook's call
    op: str
    base: str
    offset: int
    size: int
    alignment: int


def with_vectors(assembly: str) -> str:
    """Return the assembly with the first hook of a vector named after its bytes, and the others as joined to it."""
    lines = assembly.split("\n")
    block: list[_Member] = []
    for number, line in enumerate(lines):
        if line.startswith(("#(jump_insn", "//(jump_insn", ".L")):
            if line[0] != "." or _LABEL.match(line):
                _join(lines, block)
        elif ("call" in line or "bl" in line) and (call := _CALL.match(line)):  # few lines are calls
            hook = _HOOK.search(line)
            if hook:
                member, name = _member(lines, number, hook[1], int(hook[2]))
                if not _PART.search(name):
                    # It may be the same memory: what stands on its two sides is not one access.
                    own = [one for one in block if one.op == hook[1]]
                    _join(lines, [one for one in block if one.op != hook[1]])
                    block[:] = own
                block += [member] if member else []
            elif "__tls_get_addr" not in call[1]:
                _join(lines, block)
    _join(lines, block)
    return "\n".join(lines)


def _join(lines: list[str], block: list[_Member]) -> None:
    groups: dict[tuple[str, str], list[_Member]] = defaultdict(list)
    for member in block:
        groups[member.op, member.base].append(member)
    block.clear()
    for (op, _), members in groups.items():
        left = members
        for leader in sorted(members, key=lambda one: -one.alignment):
            width = min(leader.alignment, _WIDEST)
            if leader not in left:
                continue
            joined = _within(left, leader, width)
            while width > leader.size and not _fills(joined, leader, width, op):
                width //= 2
                joined = _within(left, leader, width)
            if width <= leader.size or len({one.offset for one in joined}) < 2:
                continue
            for one in joined:
                suffix = f"_in{width}" if one is leader else "_joined"
                lines[one.line] = _HOOK.sub(rf"\g<0>{suffix}", lines[one.line], count=1)
            left = [one for one in left if one not in joined]


def _within(members: Sequence[_Member], leader: _Member, width: int) -> list[_Member]:
    return [one for one in members if leader.offset <= one.offset and one.offset + one.size <= leader.offset + width]


def _fills(members: Sequence[_Member], leader: _Member, width: int, op: str) -> bool:
    """Return whether nvcc makes one access of so many bytes: of loads, there may be gaps between the members."""
    if op == "read":
        return max(one.offset + one.size for one in members) > leader.offset + width // 2
    return sum({one.offset: one.size for one in members}.values()) == width


def _member(lines: Sequence[str], number: int, op: str, size: int) -> tuple[_Member | None, str]:
    """Return the access behind a hook's call, if it goes to a fixed distance from a pointer, and gcc's name for it."""
    for text in instructions(lines, number):
        for memory in _MEMORY.finditer(text):
            stores, address, name, nbytes, bits = memory.groups()
            if bool(stores) == (op == "write") and int(nbytes) == size and "%sfp" not in name:
                return _located(number, op, size, address, name, int(bits) // 8), name
    return None, ""


def _located(number: int, op: str, size: int, address: str, name: str, alignment: int) -> _Member | None:
    base = _BASE.search(name)
    if not base:
        return None
    if distance := re.search(r"MEM\[[^\]]*?(?: \+ (\d+)B)?\]\+0", name):
        return _Member(number, op, base[0], int(distance[1] or 0), size, alignment)
    pointer = rf"\[orig:\d+ (?:{re.escape(base[0])}|{re.escape(base[1] or base[0])}) "
    if "mult" in address or not re.search(pointer, address):
        return None
    constant = re.search(r"\(const_int (-?\d+)", address)
    return _Member(number, op, base[0], int(constant[1]) if constant else 0, size, alignment)
