"""PTX instructions that read and write memory, as C++."""

from __future__ import annotations

from collections.abc import Callable

from mlsys_labkit.cuda.source.ptx_async import bulk, bulk_reduction
from mlsys_labkit.cuda.source.ptx_operands import TYPES, Operands
from mlsys_labkit.cuda.source.ptx_text import Instruction

_SPACES = ("global", "shared", "shared::cta", "shared::cluster", "const", "local", "param")
_ATOMICS = {
    "add": "atomicAdd", "min": "atomicMin", "max": "atomicMax", "exch": "atomicExch", "cas": "atomicCAS",
    "and": "atomicAnd", "or": "atomicOr", "xor": "atomicXor", "inc": "atomicInc", "dec": "atomicDec",
}  # fmt: skip
_BITS = {"b32": "u32", "b64": "u64", "b16": "u16"}


def _space(one: Instruction) -> str:
    return next((part for part in one.modifiers if part in _SPACES), "")


def _ordered(one: Instruction) -> str:
    """Return the template argument for how the access is ordered."""
    modifiers = set(one.modifiers)
    if "volatile" in modifiers:
        return "lk::ptx::Access::relaxed"
    if modifiers & {"relaxed", "acquire", "release", "mmio"}:
        return f"lk::ptx::Access::{'relaxed' if 'relaxed' in modifiers or 'mmio' in modifiers else 'ordered'}"
    return "lk::ptx::Access::plain"


def _elements(one: Instruction) -> int:
    return next((int(part[1:]) for part in one.modifiers if part in ("v2", "v4")), 1)


def _load(one: Instruction, operands: Operands) -> str:
    kind = TYPES[one.modifiers[-1]]
    targets = operands.vector(one.operands[0])
    count = _elements(one)
    if len(targets) != count or "v8" in one.modifiers:
        return ""
    address = operands.address(one.operands[1], _space(one))
    call = f"lk::ptx::load<{kind}, {count}, {_ordered(one)}>({address})"
    if count == 1:
        return operands.set(targets[0], call)
    parts = [operands.set(name, f"lk::ptx::part<{kind}>(lk_v, {i})") for i, name in enumerate(targets)]
    return f"{{ const auto lk_v = lk::ptx::load_vector<{kind}, {count}>({address}); {' '.join(parts)} }}"


def _store(one: Instruction, operands: Operands) -> str:
    kind = one.modifiers[-1]
    values = [operands.get(value, kind) for value in operands.vector(one.operands[1])]
    count = _elements(one)
    if len(values) != count:
        return ""
    address = operands.address(one.operands[0], _space(one))
    if count == 1:
        return f"lk::ptx::store<{TYPES[kind]}, {_ordered(one)}>({address}, {values[0]});"
    return f"lk::ptx::store_vector<{TYPES[kind]}, {count}>({address}, {', '.join(values)});"


def _atomic(one: Instruction, operands: Operands) -> str:
    kind = _BITS.get(one.modifiers[-1], one.modifiers[-1])
    operation = next(part for part in one.modifiers if part in _ATOMICS)
    if _elements(one) > 1 or "async" in one.modifiers:
        return ""
    target, *rest = one.operands if one.opcode == "atom" else ("_", *one.operands)
    if operation == "add" and kind == "s64":
        kind = "u64"
    address = f"static_cast<{TYPES[kind]}*>({operands.address(rest[0], _space(one))})"
    values = ", ".join(operands.get(value, kind) for value in rest[1 : 3 if operation == "cas" else 2])
    fence = "__threadfence(); " if {"release", "acq_rel"} & set(one.modifiers) else ""
    return fence + operands.set(target, f"{_ATOMICS[operation]}({address}, {values})")


def _to_space(one: Instruction, operands: Operands) -> str:
    d, a = one.operands
    if "to" in one.modifiers or _space(one) in ("global", "const", "local", "param"):
        return operands.set(d, operands.get(a, one.modifiers[-1]))
    return operands.set(d, f"lk::ptx::generic_of_shared({operands.value(a)})")


def _is_space(one: Instruction, operands: Operands) -> str:
    d, a = one.operands
    is_shared = f"lk_is_shared(lk::ptx::address({operands.value(a)}))"
    if one.modifiers[0] in ("shared", "shared::cta"):
        return operands.set(d, f"({is_shared} != 0)")
    return operands.set(d, f"({is_shared} == 0)") if one.modifiers[0] == "global" else ""


def _copy(one: Instruction, operands: Operands) -> str:
    """Translate cp.async and its waits."""
    parts = one.modifiers
    if parts[0] == "reduce":
        return bulk_reduction(one, operands)
    if parts[:1] != ["async"]:
        return ""
    if parts[1] == "bulk":
        return bulk(one, operands)
    if parts[1] == "mbarrier":
        return ""
    if parts[1] == "commit_group":
        return "__pipeline_commit();"
    if parts[1] == "wait_all":
        return "{ __pipeline_commit(); __pipeline_wait_prior(0); }"
    if parts[1] == "wait_group":
        return f"__pipeline_wait_prior({operands.value(one.operands[0])});"
    if parts[1] not in ("ca", "cg"):
        return ""
    to = operands.address(one.operands[0], "shared")
    source = operands.address(one.operands[1], "global")
    hinted = "L2::cache_hint" in parts
    sizes = [operands.value(size) for size in one.operands[2 : len(one.operands) - hinted]]
    size = f"(unsigned)({sizes[0]})"
    left = f"lk::ptx::zeros_of({size}, {sizes[1]})" if len(sizes) > 1 else "0"
    return f"lk::ptx::copy_async({to}, {source}, {size}, {left});"


def _policy(one: Instruction, operands: Operands) -> str:
    return operands.set(one.operands[0], "0ull")


MEMORY: dict[str, Callable[[Instruction, Operands], str]] = {
    "ld": _load,
    "ldu": _load,
    "st": _store,
    "atom": _atomic,
    "red": _atomic,
    "cvta": _to_space,
    "isspacep": _is_space,
    "cp": _copy,
    "createpolicy": _policy,
}
"""The translator of each opcode."""
