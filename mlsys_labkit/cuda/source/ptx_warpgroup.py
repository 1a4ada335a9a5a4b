"""PTX instructions of a warpgroup (wgmma), as C++."""

from __future__ import annotations

import re

from mlsys_labkit.cuda.source.ptx_operands import Operands
from mlsys_labkit.cuda.source.ptx_text import Instruction

_DEPTHS = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32, "s8": 32, "u8": 32}
_SUMS = {"f32": "floats", "f16": "halves", "s32": "integers"}
_SUMS_OF = {"f16": ("f32", "f16"), "e4m3": ("f32", "f16"), "e5m2": ("f32", "f16"), "s8": ("s32",), "u8": ("s32",)}
_PAIRS = ({"e4m3", "e5m2"}, {"s8", "u8"})
_LANES = 128


def warpgroup(one: Instruction, operands: Operands) -> str:
    """Translate wgmma.mma_async, its fence, its groups and their wait; "" for products of sparse and of 1-bit matrices.

    Example:
        >>> from mlsys_labkit.cuda.source.ptx_text import parse
        >>> warpgroup(parse("wgmma.wait_group.sync.aligned 1;").items[0], Operands({}))
        'lk_wgmma_wait((unsigned)(1ll));'
        >>> sums = ", ".join(["1"] * 20)  # integers have N of 8, 24, and multiples of 16
        >>> text = f"wgmma.mma_async.sync.aligned.m64n40k32.s32.s8.s8 {{{sums}}}, 1, 1, 1;"
        >>> warpgroup(parse(text).items[0], Operands({}))
        ''
        >>> both = (f"wgmma.mma_async.sync.aligned.m64n8k32.{t} {{1, 1, 1, 1}}, 1, 1, 1;" for t in
        ...         ("satfinite.s32.s8.u8", "s32.s8.u8.satfinite"))
        >>> ["lk_w.saturates = 1;" in warpgroup(parse(text).items[0], Operands({})) for text in both]
        [True, True]

    Reference: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions".
    """
    if one.modifiers[1:3] != ["sync", "aligned"]:
        return ""
    if one.modifiers[0] == "fence":
        return "(void)0;"
    if one.modifiers[0] == "commit_group":
        return "lk_wgmma_commit();"
    if one.modifiers[0] == "wait_group":
        return f"lk_wgmma_wait((unsigned){operands.value(one.operands[0])});"
    return _multiply(one, operands) if one.modifiers[0] == "mma_async" else ""


def _multiply(one: Instruction, operands: Operands) -> str:
    saturates = "satfinite" in one.modifiers  # in front of the types, or behind them as in CUTLASS
    shape, total, left, right, *rest = (part for part in one.modifiers[3:] if part != "satfinite")
    found = re.fullmatch(r"m64n(\d+)k(\d+)", shape)
    alike = left == right or any({left, right} <= pair for pair in _PAIRS)
    if not found or not alike or rest or total not in _SUMS_OF.get(left, ("f32",)):
        return ""
    columns, depth = int(found[1]), int(found[2])
    d, a, b, *more = one.operands
    sums = operands.vector(d)
    registers = columns // (4 if total == "f16" else 2)
    step = 16 if total == "s32" and columns > 24 else 8
    if columns % step or not 8 <= columns <= 256 or depth != _DEPTHS[left] or len(sums) != registers:
        return ""
    members = {
        "columns": str(columns),
        "type": f"lk_wgmma_{left}",
        "right_type": f"lk_wgmma_{right}",
        "sums_are": f"lk_wgmma_{_SUMS[total]}",
        "adds": operands.get(more[0], "pred"),
        "saturates": str(int(saturates)),
        "right_descriptor": operands.get(b, "u64"),
        "sums": "lk_d",
    }
    if a.startswith("{"):
        words = operands.vector(a)
        members["from_registers"] = "1"
        members |= {f"left[{i}]": operands.get(words[i], "b32") for i in range(4)}
    else:
        members["left_descriptor"] = operands.get(a, "u64")
    names = ["negates_left", "negates_right"]
    names += ["turns_right"] if a.startswith("{") else ["turns_left", "turns_right"]
    for name, text in zip(names, more[1:], strict=False):
        value = operands.value(text)
        members[name] = f"({value} < 0)" if name.startswith("negates") else f"({value} != 0)"
    kind, register = ("float", "f32") if total == "f32" else ("unsigned", "b32")
    flops = 0 if total == "s32" else 2 * 64 * columns * depth // _LANES
    given = ", ".join(operands.taken(name, register) for name in sums)
    asked = " ".join(f"lk_w.{name} = {value};" for name, value in members.items())
    results = " ".join(operands.kept(name, f"lk_d[{i}]", register) for i, name in enumerate(sums))
    return (
        f"{{ {kind} lk_d[] = {{{given}}}; lk_wgmma lk_w = {{}}; {asked} "
        f"lk::ptx::warpgroup_multiply<{flops}>(lk_w); {results} }}"
    )


WARPGROUP = {"wgmma": warpgroup}
"""The translator of each opcode."""
