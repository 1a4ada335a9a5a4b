"""PTX instructions as C++ statements over the emulation in lk/ptx/."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from mlsys_labkit.cuda.source.left_out import said
from mlsys_labkit.cuda.source.ptx_async import ASYNC
from mlsys_labkit.cuda.source.ptx_memory import MEMORY
from mlsys_labkit.cuda.source.ptx_modifiers import unknown_modifiers
from mlsys_labkit.cuda.source.ptx_operands import TYPES, Operands, Unknown
from mlsys_labkit.cuda.source.ptx_text import Instruction, Mark, PtxText, Registers
from mlsys_labkit.cuda.source.ptx_warp import WARP
from mlsys_labkit.cuda.source.ptx_warpgroup import WARPGROUP

_TWO = ("add", "sub", "div", "rem", "min", "max", "and", "or", "xor", "shl", "shr", "copysign")
_ONE = ("abs", "neg", "not", "sqrt", "rsqrt", "rcp", "sin", "cos", "ex2", "lg2", "tanh", "popc", "clz", "brev", "cnot")
_ROUNDINGS = {"rz": "rz", "rm": "rd", "rp": "ru"}
_COMPARISONS = {
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "lo": "<", "ls": "<=", "hi": ">", "hs": ">=",
}  # fmt: skip
_NOTHING = ("prefetch", "prefetchu", "discard", "applypriority", "griddepcontrol", "setmaxnreg", "pmevent", "brkpt")

Translator = Callable[[Instruction, Operands], str]


def translate(body: PtxText, kinds: Mapping[str, str]) -> list[str]:
    """Return the C++ statements of one assembly statement, whose operands are variables of the types ``kinds``."""
    operands = Operands(kinds)
    written: list[str] = []
    for item in body.items:
        if isinstance(item, Registers):
            known = item.kind in TYPES
            written += (
                [operands.declare(item.kind, name) for name in item.names]
                if known
                else [refusal(f"inline PTX .reg .{item.kind}")]
            )
        elif isinstance(item, Mark):
            written.append(_mark(item))
        else:
            written.append(_instruction(item, operands))
    return written


def refusal(what: str) -> str:
    """Return a statement that does not compile, with the sentence that says why, unless it is never reached."""
    message = said(what).replace("\\", "/").replace('"', "'")
    name = "lk_left_out_" + re.sub(r"\W+", "_", what)
    return f'do {{ __attribute__((error("{message}"))) void {name}(); {name}(); }} while (0)'


def _mark(mark: Mark) -> str:
    if mark.kind == "label":
        return f"lk_l_{mark.text}:;"
    if mark.kind == "unknown":
        return refusal(f"inline PTX {mark.text}") + ";"
    return mark.kind


def _instruction(one: Instruction, operands: Operands) -> str:
    translator = None if unknown_modifiers(one) else _TABLE.get(one.opcode)
    try:
        written = translator(one, operands) if translator else ""
        guard = operands.get(one.guard.lstrip("!"), "pred") if one.guard else ""
    except (Unknown, KeyError, IndexError, ValueError, StopIteration):
        written = guard = ""
    if not written:
        return refusal(f"inline PTX {one.name}") + ";"
    if not guard:
        return written
    return f"if ({'!' if one.guard.startswith('!') else ''}{guard}) {{ {written} }}"


def _type(one: Instruction) -> str:
    """Return the last modifier that is a type."""
    return next(part for part in reversed(one.modifiers) if part in TYPES)


def _call(name: str, *arguments: str, kind: str = "") -> str:
    return f"lk::ptx::{name}{f'<{kind}>' if kind else ''}({', '.join(arguments)})"


def _rounded(one: Instruction, value: str, operator: str, arguments: list[str]) -> str:
    """Return the value rounded as the instruction says; "" for a combination that is not known."""
    mode = next((_ROUNDINGS[part] for part in one.modifiers if part in _ROUNDINGS), "")
    if mode and _type(one) in ("f32", "f64"):
        single = _type(one) == "f32"
        prefix = "__f" if single else "__d" if operator != "fma" else "__"
        value = f"{prefix}{'maf' if operator == 'fma' and single else operator}_{mode}({', '.join(arguments)})"
    return f"lk::ptx::saturated({value})" if "sat" in one.modifiers else value


def _two(one: Instruction, operands: Operands) -> str:
    kind = _type(one)
    d, a, b = one.operands
    second = "u32" if one.opcode in ("shl", "shr") else kind
    arguments = [operands.get(a, kind), operands.get(b, second)]
    if one.opcode in ("add", "sub") and one.modifiers[0] == "cc":
        return operands.set(d, _call(f"{one.opcode}_carry", *arguments, "lk_carry", kind=TYPES[kind]))
    value = _call("nan_" * ("NaN" in one.modifiers) + one.opcode + "_", *arguments, kind=TYPES[kind])
    return operands.set(d, _rounded(one, value, one.opcode, arguments))


def _one(one: Instruction, operands: Operands) -> str:
    kind = _type(one)
    d, a = one.operands
    arguments = [operands.get(a, kind)]
    value = _call(one.opcode + "_", *arguments, kind=TYPES[kind])
    return operands.set(d, _rounded(one, value, one.opcode, arguments))


def _multiply(one: Instruction, operands: Operands) -> str:
    kind = _type(one)
    d, a, b, *c = one.operands
    if len(c) > 1 or ("sat" in one.modifiers and kind[0] != "f"):
        return ""
    arguments = [operands.get(a, kind), operands.get(b, kind)]
    part = next((part for part in one.modifiers if part in ("lo", "hi", "wide")), "")
    if part in ("lo", "hi", "wide"):
        value = _call(f"mul_{part}", *arguments, kind=TYPES[kind])
        wide = f"{kind[0]}{int(kind[1:]) * 2}" if part == "wide" else kind
        if c:
            value = _call("add_", value, operands.get(c[0], wide), kind=TYPES[wide])
        return operands.set(d, value)
    if c:
        arguments.append(operands.get(c[0], kind))
        return operands.set(d, _rounded(one, _call("fma_", *arguments, kind=TYPES[kind]), "fma", arguments))
    return operands.set(d, _rounded(one, _call("mul_", *arguments, kind=TYPES[kind]), "mul", arguments))


def _three(names: Mapping[str, str]) -> Translator:
    """Return the translator of an operation whose operands have the types of ``names``; "" is the instruction's own."""

    def translated(one: Instruction, operands: Operands) -> str:
        own = _type(one)
        d, *rest = one.operands
        kinds = names[one.opcode].split()
        arguments = [operands.get(text, own if kind == "own" else kind) for text, kind in zip(rest, kinds, strict=True)]
        if one.opcode == "shf":
            return operands.set(
                d, f"__funnelshift_{one.modifiers[0]}{'c' * ('clamp' in one.modifiers)}({', '.join(arguments)})"
            )
        return operands.set(d, _call(one.opcode + "_", *arguments, kind=TYPES[own]))

    return translated


def _prmt(one: Instruction, operands: Operands) -> str:
    if one.modifiers != ["b32"]:
        return ""
    d, a, b, c = one.operands
    return operands.set(d, f"__byte_perm({operands.get(a, 'u32')}, {operands.get(b, 'u32')}, {operands.get(c, 'u32')})")


def _carried(one: Instruction, operands: Operands) -> str:
    kind = _type(one)
    d, a, b = one.operands
    name = f"{one.opcode[:3]}_carried"
    return operands.set(d, _call(name, operands.get(a, kind), operands.get(b, kind), "lk_carry", kind=TYPES[kind]))


def _dot(one: Instruction, operands: Operands) -> str:
    kinds = one.modifiers
    d, a, b, c = one.operands
    if kinds not in (["u32", "u32"], ["s32", "s32"]):
        return ""
    return operands.set(
        d, f"__dp4a({operands.get(a, kinds[0])}, {operands.get(b, kinds[0])}, {operands.get(c, kinds[0])})"
    )


def _move(one: Instruction, operands: Operands) -> str:
    kind = _type(one)
    d, a = one.operands
    if d.startswith("{"):
        names = [operands.value(name) for name in operands.vector(d)]
        return _call("unpack", operands.value(a), *names) + ";"
    return operands.set(d, operands.get(a, kind))


def _set_predicate(one: Instruction, operands: Operands) -> str:
    kind = _type(one)
    d, a, b, *c = one.operands
    comparison = one.modifiers[0]
    first, second = operands.get(a, kind), operands.get(b, kind)
    unordered = (comparison.endswith("u") and comparison not in ("equ", "neu")) or comparison in ("equ", "neu")
    base = comparison.removesuffix("u")
    if comparison in ("num", "nan"):
        value = f"({'!' * (comparison == 'num')}lk::ptx::unordered({first}, {second}))"
    elif unordered:
        value = f"(lk::ptx::unordered({first}, {second}) || {first} {_COMPARISONS[base]} {second})"
    elif base == "ne" and kind.startswith("f"):
        value = f"(!lk::ptx::unordered({first}, {second}) && {first} != {second})"
    else:
        value = f"({first} {_COMPARISONS[base]} {second})"
    joins = {"and": "&&", "or": "||", "xor": "!="}
    join = next((joins[part] for part in one.modifiers if part in joins), "")
    joined = [value, f"!{value}"]
    if join:
        joined = [f"({part} {join} {operands.get(c[0], 'pred')})" for part in joined]
    if one.opcode == "set":
        result = one.modifiers[-2] if one.modifiers[-2] in TYPES else one.modifiers[-1]
        ones = "1.0f" if result == "f32" else "~0u"
        return operands.set(d, f"(({joined[0]}) ? {ones} : {ones[-4:-4]}{'0.0f' if result == 'f32' else '0u'})")
    targets = d.split("|")
    if len(targets) == 1:
        return operands.set(d, joined[0])
    kept = " ".join(operands.set(target, name) for target, name in zip(targets, ("lk_p", "lk_q"), strict=True))
    return f"{{ const bool lk_p = {joined[0]}, lk_q = {joined[1]}; {kept} }}"


def _select(one: Instruction, operands: Operands) -> str:
    kind = _type(one)
    d, a, b, c = one.operands
    return operands.set(d, f"({operands.get(c, 'pred')} ? {operands.get(a, kind)} : {operands.get(b, kind)})")


def _convert(one: Instruction, operands: Operands) -> str:
    kinds = [part for part in one.modifiers if part in TYPES]
    modes = [part for part in one.modifiers if part not in TYPES and part not in ("ftz", "satfinite", "relu", "sat")]
    if len(kinds) != 2 or {"satfinite", "relu"} & set(one.modifiers):
        return ""
    to, source = kinds
    d, *values = one.operands
    mode = modes[0] if modes else "rn" if to[0] in "fb" else "rz"
    mode = mode.removesuffix("i")
    if to == "tf32":
        return operands.set(d, _call("to_tf32", operands.get(values[0], "f32"), str(int(mode == "rna")).lower()))
    arguments = [operands.get(value, source) for value in values]
    rounding = {"rn": "FE_TONEAREST", "rz": "FE_TOWARDZERO", "rm": "FE_DOWNWARD", "rp": "FE_UPWARD"}[mode]
    value = _call("convert", *arguments, rounding, kind=TYPES[to])
    return operands.set(d, f"lk::ptx::saturated({value})" if "sat" in one.modifiers and to[0] == "f" else value)


def _branch(one: Instruction, operands: Operands) -> str:
    return f"goto lk_l_{one.operands[0].replace('$', '_').strip()};"


def _nothing(one: Instruction, operands: Operands) -> str:
    return "(void)0;"


def _trap(one: Instruction, operands: Operands) -> str:
    return "lk_trap();"


def _sleep(one: Instruction, operands: Operands) -> str:
    return "lk_yield();"


_THREE = {
    "lop3": "u32 u32 u32 u32", "bfe": "own u32 u32", "bfi": "own own u32 u32",
    "shf": "u32 u32 u32", "sad": "own own own", "fns": "u32 u32 s32", "bfind": "own",
}  # fmt: skip
_TABLE: dict[str, Translator] = {
    **dict.fromkeys(_TWO, _two),
    **dict.fromkeys(_ONE, _one),
    **dict.fromkeys(("mul", "mad", "fma"), _multiply),
    **dict.fromkeys(_THREE, _three(_THREE)),
    **dict.fromkeys(("addc", "subc"), _carried),
    **dict.fromkeys(_NOTHING, _nothing),
    "prmt": _prmt,
    "dp4a": _dot,
    "mov": _move,
    "setp": _set_predicate,
    "selp": _select,
    "cvt": _convert,
    "bra": _branch,
    "trap": _trap,
    "nanosleep": _sleep,
    **MEMORY,
    **WARP,
    **WARPGROUP,
    **ASYNC,
}
KNOWN = frozenset(("exit", "ret", "trap", "brkpt", "bra"))
"""The opcodes that are PTX even without a type."""
