"""Operands of PTX as C++: registers, special registers, immediates, addresses and vectors."""

from __future__ import annotations

import re
from collections.abc import Mapping

from mlsys_labkit.cuda.source.ptx_text import split_operands

TYPES = {
    "pred": "bool", "b8": "unsigned char", "u8": "unsigned char", "s8": "signed char",
    "b16": "unsigned short", "u16": "unsigned short", "s16": "short", "f16": "__half", "bf16": "__nv_bfloat16",
    "b32": "unsigned", "u32": "unsigned", "s32": "int", "f32": "float", "f16x2": "__half2", "bf16x2": "__nv_bfloat162",
    "b64": "unsigned long long", "u64": "unsigned long long", "s64": "long long", "f64": "double", "tf32": "unsigned",
}  # fmt: skip
"""The C++ type of each type of PTX."""

_AXES = {
    f"{register}.{axis}": f"{builtin}.{axis}"
    for register, builtin in (("tid", "threadIdx"), ("ntid", "blockDim"), ("ctaid", "blockIdx"), ("nctaid", "gridDim"))
    for axis in "xyz"
}
SPECIAL_REGISTERS = {
    **_AXES,
    "laneid": "lk_lane()",
    "smid": "lk_smid()",
    "nsmid": "132u",
    "warpid": "((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) / 32)",
    "nwarpid": "((blockDim.x * blockDim.y * blockDim.z + 31) / 32)",
    "lanemask_eq": "(1u << lk_lane())",
    "lanemask_lt": "((1u << lk_lane()) - 1)",
    "lanemask_le": "((2u << lk_lane()) - 1)",
    "lanemask_gt": "(~0u << lk_lane() << 1)",
    "lanemask_ge": "(~0u << lk_lane())",
    "clock": "(unsigned)lk_clock64()",
    "clock_hi": "(unsigned)(lk_clock64() >> 32)",
    "clock64": "lk_clock64()",
    "globaltimer": "lk_global_timer()",
    "globaltimer_lo": "(unsigned)lk_global_timer()",
    "globaltimer_hi": "(unsigned)(lk_global_timer() >> 32)",
    "cluster_ctarank": "lk_cluster_rank()",
    "cluster_nctarank": "lk_cluster_size()",
    **{f"cluster_nctaid.{axis}": f"lk_cluster_extent().{axis}" for axis in "xyz"},
    **{f"cluster_ctaid.{axis}": f"(blockIdx.{axis} % lk_cluster_extent().{axis})" for axis in "xyz"},
    **{f"clusterid.{axis}": f"(blockIdx.{axis} / lk_cluster_extent().{axis})" for axis in "xyz"},
    **{f"nclusterid.{axis}": f"(gridDim.{axis} / lk_cluster_extent().{axis})" for axis in "xyz"},
}
"""The value of each special register."""


class Unknown(Exception):
    """An operand that the simulator does not know; its text is the message."""


class Operands:
    """The registers that one assembly statement declares, and what its operands are in C++."""

    def __init__(self, kinds: Mapping[str, str]) -> None:
        self._kinds = dict(kinds)  # of each C++ variable

    def declare(self, kind: str, name: str) -> str:
        """Return the declaration of a register, and remember it."""
        variable = _variable(name)
        self._kinds[variable] = TYPES[kind]
        return f"{TYPES[kind]} {variable};"

    def value(self, text: str) -> str:
        """Return a register or an immediate as C++. Raises Unknown."""
        text = text.strip()
        if text.startswith("$"):
            return text[1:].strip()
        if text.startswith("%") and text[1:] in SPECIAL_REGISTERS:
            return SPECIAL_REGISTERS[text[1:]]
        if found := re.fullmatch(r"0[fF]([0-9a-fA-F]{8})", text):
            return f"__uint_as_float(0x{found[1]}u)"
        if found := re.fullmatch(r"0[dD]([0-9a-fA-F]{16})", text):
            return f"__longlong_as_double(0x{found[1]}ll)"
        if re.fullmatch(r"[-+~]?\s*(?:0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)[uU]?", text):
            return f"({text}ll)"
        if re.fullmatch(r"[-+]?\d*\.\d*(?:[eE][-+]?\d+)?", text):
            return f"({text})"
        if text == "WARP_SZ":
            return "32u"
        if text.startswith(("!", "-")) and len(text) > 1:
            return f"({text[0]}{self.value(text[1:])})"
        if (variable := _variable(text)) in self._kinds:
            return variable
        raise Unknown(text.replace("$", "").strip())

    def get(self, text: str, kind: str) -> str:
        """Return an operand as a value of a PTX type."""
        if text.strip().startswith("{"):
            return f"lk::ptx::get<{TYPES[kind]}>(lk::ptx::packed({', '.join(map(self.value, self.vector(text)))}))"
        return f"lk::ptx::get<{TYPES[kind]}>({self.value(text)})"

    def set(self, text: str, value: str) -> str:
        """Return the statement that gives a register its value; ``_`` takes any and keeps none."""
        if text.strip() == "_":
            return f"(void)({value});"
        return f"lk::ptx::set({self.value(text)}, {value});"

    def taken(self, text: str, kind: str) -> str:
        """Return an operand as ``get`` does, without a call where its type is known: some instructions have 128."""
        value = self.value(text)
        return value if self._kinds.get(value) == TYPES[kind] else self.get(text, kind)

    def kept(self, text: str, value: str, kind: str) -> str:
        """Return the statement of ``set`` for a value of a PTX type, without a call where the types are the same."""
        target = self.value(text)
        return f"{target} = {value};" if self._kinds.get(target) == TYPES[kind] else self.set(text, value)

    def vector(self, text: str) -> tuple[str, ...]:
        """Return the elements of ``{a, b}``; a single operand is one."""
        text = text.strip()
        return split_operands(text[1:-1]) if text.startswith("{") else (text,)

    def address(self, text: str, space: str) -> str:
        """Return the ``void*`` for ``[register + offset]`` in a state space."""
        inside = text.strip()
        if not (inside.startswith("[") and inside.endswith("]")):
            raise Unknown(inside.replace("$", ""))
        return self.pointer(inside[1:-1], space)

    def pointer(self, text: str, space: str) -> str:
        """Return the ``void*`` for ``register + offset`` in a state space."""
        base, _, offset = text.replace("+ -", "+-").partition("+")
        added = f", {self.value(offset)}" if offset.strip() else ""
        kinds = {"shared::cluster": "cluster_address", "shared": "shared_address", "shared::cta": "shared_address"}
        return f"lk::ptx::{kinds.get(space, 'address')}({self.value(base)}{added})"


def _variable(name: str) -> str:
    name = name.strip()
    return name[1:].strip() if name.startswith("$") else "lk_r_" + re.sub(r"\W", "_", name)
