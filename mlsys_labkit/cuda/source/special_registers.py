"""Inline PTX that only reads a special register, such as a thread's lane: the one kind that is simulated."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mlsys_labkit.cuda.source.source import Edit, Source

ASSEMBLY = ("asm", "__asm__", "__asm")

_AXES = {
    f"{register}.{axis}": f"{builtin}.{axis}"
    for register, builtin in (("tid", "threadIdx"), ("ntid", "blockDim"), ("ctaid", "blockIdx"), ("nctaid", "gridDim"))
    for axis in "xyz"
}
_REGISTERS = {
    **_AXES,
    "laneid": "lk_lane()",
    "smid": "lk_smid()",
    "warpid": "((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) / 32)",
    "nwarpid": "((blockDim.x * blockDim.y * blockDim.z + 31) / 32)",
    "lanemask_eq": "(1u << lk_lane())",
    "lanemask_lt": "((1u << lk_lane()) - 1)",
    "lanemask_le": "((2u << lk_lane()) - 1)",
    "lanemask_gt": "(~0u << lk_lane() << 1)",
    "lanemask_ge": "(~0u << lk_lane())",
    "clock": "(unsigned)lk_clock64()",
    "clock64": "lk_clock64()",
    "globaltimer": "lk_global_timer()",
}
_MOVE = re.compile(r'"\s*mov\.[usb](?:32|64)\s+%0\s*,\s*%%(?P<register>[\w.]+)\s*;?\s*(?:\\[nt])*"')


def register_edits(source: Source) -> Iterator[Edit]:
    """Yield edits that write each ``asm("mov.u32 %0, %%laneid;" : "=r"(lane))`` as an assignment.

    Example:
        >>> source = Source('asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));')
        >>> source.edited(register_edits(source))
        '(lane) = lk_lane();'

    Reference: PTX ISA, "Special registers".
    """
    code, text = source.code, source.text
    for index, token in enumerate(code):
        if token.text not in ASSEMBLY:
            continue
        opening = index + 1
        while opening < len(code) and code[opening].text in ("volatile", "__volatile__"):
            opening += 1
        if opening == len(code) or code[opening].text != "(":
            continue
        closing = source.closing[opening]
        if assignment := _assignment(source, opening + 1, closing):
            end = code[closing].end
            yield token.start, end, assignment + "\n" * (text.count("\n", token.start, end) - assignment.count("\n"))


def _assignment(source: Source, begin: int, end: int) -> str:
    """Return what replaces the assembly from ``begin`` to ``end``; "" if it does more than read a register."""
    inside = source.code[begin:end]
    if len(inside) < 5 or inside[1].text != ":" or inside[3].text != "(":
        return ""
    move = _MOVE.fullmatch(inside[0].text)
    closing = min(source.closing[begin + 3], end - 1) - begin
    if not move or inside[2].text not in ('"=r"', '"=l"') or any(token.text != ":" for token in inside[closing + 1 :]):
        return ""
    value = _REGISTERS.get(move["register"])
    return f"{source.text[inside[3].start : inside[closing].end]} = {value}" if value else ""
