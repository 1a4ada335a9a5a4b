"""PTX instructions of warps and blocks, as C++: shuffles, votes, barriers, matrix fragments."""

from __future__ import annotations

import re
from collections.abc import Callable

from mlsys_labkit.cuda.source.ptx_async import cluster_barrier, fence
from mlsys_labkit.cuda.source.ptx_operands import TYPES, Operands
from mlsys_labkit.cuda.source.ptx_text import Instruction

_INPUTS = {
    "f16": "__half", "bf16": "__nv_bfloat16", "tf32": "lk::ptx::Tf32", "s8": "signed char", "u8": "unsigned char",
    "f64": "double",
}  # fmt: skip
_BITS = {"f16": 16, "bf16": 16, "tf32": 32, "s8": 8, "u8": 8, "f64": 64}
_SHAPES = {
    16: ("m16n8k16", "m16n8k8"),
    32: ("m16n8k8", "m16n8k4"),
    8: ("m16n8k32", "m16n8k16", "m8n8k16"),
    64: ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"),
}


def _multiply(one: Instruction, operands: Operands) -> str:
    """Translate mma.sync of dense fragments."""
    parts = one.modifiers
    if parts[0] != "sync" or "sp" in parts or "row" not in parts or "and" in parts or "xor" in parts:
        return ""
    shape = re.search(r"m(\d+)n8k(\d+)", one.name)
    sum_kind, left, right, addend = parts[-4:]
    if not shape or shape[0] not in _SHAPES[_BITS[left]] or sum_kind != addend:
        return ""
    rows, depth = int(shape[1]), int(shape[2])
    d, a, b, c = (operands.vector(text) for text in one.operands)
    halves = sum_kind == "f16"
    word = TYPES["f64"] if left == "f64" else "unsigned"
    kind = "f64" if left == "f64" else "b32"
    sums = "lk::ptx::Halves" if halves else TYPES[sum_kind]
    words = [
        f"const {word} lk_{name}[] = {{{', '.join(operands.get(x, kind) for x in values)}}};"
        for name, values in (("a", a), ("b", b))
    ]
    added = ", ".join(operands.get(x, "b32" if halves else sum_kind) for x in c)
    stored = "unsigned" if halves else TYPES[sum_kind]
    flops = 0 if sum_kind == "s32" else 2 * rows * 8 * depth // 32
    call = f"lk::ptx::multiply<{flops}, {rows}, {depth}, {_INPUTS[left]}, {_INPUTS[right]}, {sums}>"
    saturates = "true" if "satfinite" in parts else "false"
    results = " ".join(operands.set(name, f"lk_d[{i}]") for i, name in enumerate(d))
    return (
        f"{{ {' '.join(words)} const {stored} lk_c[] = {{{added}}}; {stored} lk_d[{len(d)}]; "
        f"{call}(lk_d, lk_a, lk_b, lk_c, {saturates}); {results} }}"
    )


def _matrices(one: Instruction) -> int:
    is_plain = one.modifiers[0] == "sync" and one.modifiers[-1] == "b16" and "m8n8" in one.modifiers
    return next((int(part[1:]) for part in one.modifiers if part in ("x1", "x2", "x4")), 0) if is_plain else 0


def _load_matrix(one: Instruction, operands: Operands) -> str:
    count = _matrices(one)
    targets = operands.vector(one.operands[0])
    if count == 0 or len(targets) != count:
        return ""
    turned = "true" if "trans" in one.modifiers else "false"
    results = " ".join(operands.set(name, f"lk_m[{i}]") for i, name in enumerate(targets))
    address = operands.address(one.operands[1], "shared" if "shared" in one.name else "")
    return f"{{ unsigned lk_m[{count}]; lk::ptx::load_matrix<{count}, {turned}>(lk_m, {address}); {results} }}"


def _store_matrix(one: Instruction, operands: Operands) -> str:
    count = _matrices(one)
    values = operands.vector(one.operands[1])
    if count == 0 or len(values) != count:
        return ""
    turned = "true" if "trans" in one.modifiers else "false"
    words = ", ".join(operands.get(value, "b32") for value in values)
    address = operands.address(one.operands[0], "shared" if "shared" in one.name else "")
    return f"{{ const unsigned lk_m[] = {{{words}}}; lk::ptx::store_matrix<{count}, {turned}>(lk_m, {address}); }}"


def _shuffle(one: Instruction, operands: Operands) -> str:
    if one.modifiers[0] != "sync":
        return ""
    target, _, inside = one.operands[0].partition("|")
    a, b, c, mask = (operands.get(text, "u32") for text in one.operands[1:5])
    mode = {"idx": "index", "bfly": "xor"}.get(one.modifiers[1], one.modifiers[1])
    call = f"lk::ptx::shuffle(lk_shuffle_{mode}, {a}, {b}, {c}, {mask}, lk_in)"
    kept = operands.set(inside, "lk_in") if inside else ""
    return f"{{ bool lk_in; {operands.set(target, call)} {kept} }}"


def _vote(one: Instruction, operands: Operands) -> str:
    if one.modifiers[0] != "sync" or one.modifiers[1] not in ("all", "any", "uni", "ballot"):
        return ""
    d, p, mask = one.operands
    call = f"__{one.modifiers[1]}_sync({operands.get(mask, 'u32')}, {operands.get(p, 'pred')})"
    return operands.set(d, call if one.modifiers[1] == "ballot" else f"({call} != 0)")


def _match(one: Instruction, operands: Operands) -> str:
    kind = {"b32": "u32", "b64": "u64"}[one.modifiers[-1]]
    d, a, mask = one.operands
    if one.modifiers[1] != "any":
        return ""
    return operands.set(d, f"__match_any_sync({operands.get(mask, 'u32')}, {operands.get(a, kind)})")


def _reduce(one: Instruction, operands: Operands) -> str:
    kind = one.modifiers[-1].replace("b32", "u32")
    d, a, mask = one.operands
    return operands.set(d, f"__reduce_{one.modifiers[1]}_sync({operands.get(mask, 'u32')}, {operands.get(a, kind)})")


def _active(one: Instruction, operands: Operands) -> str:
    return operands.set(one.operands[0], "lk_active_mask()")


def _elect(one: Instruction, operands: Operands) -> str:
    target, _, chosen = one.operands[0].partition("|")
    mask = operands.get(one.operands[1], "u32")
    kept = operands.set(target, "lk_first") + " " + operands.set(chosen, "(lk_first == lk_lane())")
    return f"{{ lk_warp_barrier({mask}); const unsigned lk_first = __builtin_ctz({mask}); {kept} }}"


def _barrier(one: Instruction, operands: Operands) -> str:
    """Translate barriers of the block, of a part of it, and of the cluster."""
    if one.modifiers[:1] == ["cluster"]:
        return cluster_barrier(one)
    parts = [part for part in one.modifiers if part not in ("cta", "aligned")]
    if parts == ["warp", "sync"]:
        return f"lk_warp_barrier({operands.get(one.operands[0], 'u32')});"
    if parts == ["sync"] and len(one.operands) <= 2:
        number = operands.value(one.operands[0])
        count = operands.value(one.operands[1]) if len(one.operands) == 2 else "0"
        return f"lk::ptx::block_barrier({number}, {count});"
    if parts == ["arrive"]:
        number, count = (operands.value(one.operands[place]) for place in (0, 1))
        return f"lk_named_barrier((unsigned){number}, (unsigned){count}, 0);"
    return ""


def _fence(one: Instruction, operands: Operands) -> str:
    if one.opcode == "fence" and one.modifiers[:1] in (["proxy"], ["mbarrier_init"]):
        return fence(one) or "(void)0;"
    is_block = "cta" in one.modifiers
    return "__threadfence_block();" if is_block else "__threadfence();"


WARP: dict[str, Callable[[Instruction, Operands], str]] = {
    "mma": _multiply,
    "ldmatrix": _load_matrix,
    "stmatrix": _store_matrix,
    "shfl": _shuffle,
    "vote": _vote,
    "match": _match,
    "redux": _reduce,
    "activemask": _active,
    "elect": _elect,
    "bar": _barrier,
    "barrier": _barrier,
    "membar": _fence,
    "fence": _fence,
}
"""The translator of each opcode."""
