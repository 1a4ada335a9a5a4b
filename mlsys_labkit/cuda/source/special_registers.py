"""Inline PTX that only reads a special register, such as a thread's lane: the one kind that is simulated."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from mlsys_labkit.cuda.source.tokens import Token, code_tokens, matching
from mlsys_labkit.cuda.source.unroll import Edit

__all__ = ["ASSEMBLY", "register_edits"]

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


def register_edits(source: str, tokens: Sequence[Token]) -> Iterator[Edit]:
    """Each ``asm("mov.u32 %0, %%laneid;" : "=r"(lane))`` as an assignment.

    Example:
        >>> from mlsys_labkit.cuda.source.rewrite import rewrite
        >>> rewrite('asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));')
        '(lane) = lk_lane();'

    Reference: PTX ISA, "Special registers".
    """
    code = code_tokens(tokens)
    for index, token in enumerate(code):
        if token.text not in ASSEMBLY:
            continue
        opening = index + 1
        while opening < len(code) and code[opening].text in ("volatile", "__volatile__"):
            opening += 1
        if opening == len(code) or code[opening].text != "(":
            continue
        closing = matching(code, opening)
        assignment = _assignment(source, code[opening + 1 : closing])
        if assignment:
            end = code[closing].end
            yield token.start, end, assignment + "\n" * (source.count("\n", token.start, end) - assignment.count("\n"))


def _assignment(source: str, inside: Sequence[Token]) -> str:
    """What stands for it; "" for other assembly, or one with more operands than the register's destination."""
    if len(inside) < 5 or [token.text for token in inside[1:2]] != [":"] or inside[3].text != "(":
        return ""
    move = _MOVE.fullmatch(inside[0].text)
    closing = matching(inside, 3)
    if not move or inside[2].text not in ('"=r"', '"=l"') or any(token.text != ":" for token in inside[closing + 1 :]):
        return ""
    value = _REGISTERS.get(move["register"])
    return f"{source[inside[3].start : inside[closing].end]} = {value}" if value else ""
