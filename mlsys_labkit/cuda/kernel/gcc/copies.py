"""Copies of structs in the instrumented build: recorded in the parts that nvcc makes of them, as wide as the alignment.

gcc copies a struct of four floats as 16 bytes, and its hook gets an address and a size. nvcc may not: the type is
aligned to 4 bytes, so that it loads and stores four times. Only gcc's own description of the instruction behind the
hook (``-dP``) says how the type is aligned. It is read between gcc and the assembler.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mlsys_labkit.cuda.kernel.gcc.described import COMMENT, instructions

_HOOK = re.compile(r"\b__tsan_(read|write)(_range|16|8|4|2)\b")
_CALL = re.compile(r"^\s+(?:callq?|bl)\s")
# (mem:SI ADDRESS [6 *_4+0 S4 A32]): 4 bytes, aligned to 32 bits. Spilled registers have no name before S.
_MEMORY = r"\(mem[/\w]*:\w+ (?:(?!\(mem|\(set).)*?\[\d+ [^ \n][^\n]*? S(\d+) A(\d+)"
_STORE = re.compile(r"\(set " + _MEMORY, re.DOTALL)
_LOAD = re.compile(r"(?<!\(set )" + _MEMORY, re.DOTALL)
_WIDEST = 16


def with_copy_parts(assembly: str) -> str:
    """Return the assembly with the hooks of copies named after the bytes that nvcc copies at once, without comments.

    Example:
        >>> copy = '''\\tcall\\t__tsan_read_range@PLT
        ... #(insn 9 (set (reg:DI 0 ax)
        ... #        (mem:DI (reg/f:DI 6 bp) [8 *_4+0 S8 A32])) "kernel.cu":5:1 80 {*movdi_internal})
        ... \\tmovq\\t0(%rbp), %rax'''
        >>> with_copy_parts(copy)
        '\\tcall\\t__tsan_read_range_by4@PLT\\n\\tmovq\\t0(%rbp), %rax'
    """
    lines = assembly.split("\n")
    kept = []
    for number, line in enumerate(lines):
        if line.startswith(COMMENT):
            continue
        if "__tsan_" in line and _CALL.match(line) and (hook := _HOOK.search(line)):
            part = _part(lines, number, hook[1] == "read", 0 if hook[2] == "_range" else int(hook[2]))
            if part:
                line = f"{line[: hook.end()]}_by{part}{line[hook.end() :]}"
        kept.append(line)
    return "\n".join(kept)


def _part(lines: Sequence[str], number: int, reads: bool, size: int) -> int:
    """Return the alignment in bytes of the struct that is copied behind the hook's call; 0 if it has that of its size.

    Of the two sides the lesser counts: gcc aligns variables further than their type asks for. ``size``: of the struct;
    0 if the hook does not say it.
    """
    loaded = (0, _WIDEST)
    for text in instructions(lines, number, calls=0 if reads else 1):
        if (load := _LOAD.search(text)) and not (reads and loaded[0]) and size in (0, int(load[1])):
            loaded = _bytes(load)
        if (store := _STORE.search(text)) and size in (0, int(store[1])):
            stored = _bytes(store)
            if reads and not loaded[0]:
                continue
            if loaded[0] == stored[0]:
                return _narrow(stored[0], min(stored[1], loaded[1]))
            if not reads:
                return _narrow(*stored)
    return _narrow(*loaded) if reads and loaded[0] else 0


def _bytes(memory: re.Match[str]) -> tuple[int, int]:
    return int(memory[1]), int(memory[2]) // 8


def _narrow(size: int, alignment: int) -> int:
    return alignment if alignment < min(size, _WIDEST) else 0
