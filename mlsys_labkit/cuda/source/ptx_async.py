"""PTX instructions for mbarriers, bulk copies and clusters, as C++."""

from __future__ import annotations

from collections.abc import Callable

from mlsys_labkit.cuda.source.ptx_operands import Operands
from mlsys_labkit.cuda.source.ptx_tensor import tensor_copy
from mlsys_labkit.cuda.source.ptx_text import Instruction

_REDUCTIONS = {"add": "add", "min": "min", "max": "max", "and": "band", "or": "bor", "xor": "bxor"}
_ELEMENTS = {
    "u32": "unsigned", "s32": "int", "b32": "unsigned", "u64": "unsigned long long", "s64": "long long",
    "b64": "unsigned long long", "f32": "float", "f64": "double", "f16": "__half", "bf16": "__nv_bfloat16",
}  # fmt: skip


def _space(one: Instruction) -> str:
    return "shared::cluster" if "shared::cluster" in one.modifiers else "shared" if _shared(one) else ""


def _shared(one: Instruction) -> bool:
    return any(part in ("shared", "shared::cta") for part in one.modifiers)


def mbarrier(one: Instruction, operands: Operands) -> str:
    """Translate an instruction of an mbarrier: ``mbarrier.init.shared::cta.b64 [%0], %1;``."""
    what = one.modifiers[0]
    if what in ("init", "inval", "expect_tx", "complete_tx"):
        at = operands.address(one.operands[0], _space(one))
        if what == "inval":
            return f"lk_mbarrier_invalidate({at});"
        count = operands.get(one.operands[1], "u32")
        call = {
            "init": "lk::mbarrier_init", "expect_tx": "lk_mbarrier_expect", "complete_tx": "lk_mbarrier_complete",
        }[what]  # fmt: skip
        return f"{call}({at}, {count});"
    if what in ("arrive", "arrive_drop"):
        return _arrive(one, operands, drops=what == "arrive_drop")
    if what in ("test_wait", "try_wait"):
        at = operands.address(one.operands[1], _space(one))
        by_parity = "parity" in one.modifiers
        value = operands.get(one.operands[2], "u32" if by_parity else "u64")
        return operands.set(one.operands[0], f"lk::mbarrier_wait{'_parity' * by_parity}({at}, unsigned({value}), true)")
    return ""


def _arrive(one: Instruction, operands: Operands, *, drops: bool) -> str:
    target, rest = one.operands[0], one.operands[1:]
    if target.startswith("["):
        target, rest = "_", one.operands
    at = operands.address(rest[0], _space(one))
    value = operands.get(rest[1], "u32") if len(rest) > 1 else "1"
    dropped = str(drops).lower()
    if "expect_tx" in one.modifiers:
        return operands.set(target, f"(unsigned long long)lk::mbarrier_arrive({at}, 1, {value}, {dropped})")
    return operands.set(target, f"(unsigned long long)lk::mbarrier_arrive({at}, {value}, 0, {dropped})")


def bulk(one: Instruction, operands: Operands) -> str:
    """Translate a bulk copy, its groups, or a copy with a tensor map."""
    parts = one.modifiers[2:]  # behind cp.async.bulk
    if parts[:1] == ["commit_group"]:
        return "lk_bulk_commit();"
    if parts[:1] == ["wait_group"]:
        return f"lk_bulk_wait((unsigned){operands.value(one.operands[0])});"
    if parts[:1] == ["prefetch"]:
        return "(void)0;"
    if parts[:1] == ["tensor"]:
        return tensor_copy(one, operands)
    spaces = [part for part in parts if part.startswith(("shared", "global"))]
    if len(spaces) != 2:
        return ""
    to = operands.address(one.operands[0], spaces[0])
    source = operands.address(one.operands[1], spaces[1])
    size = operands.get(one.operands[2], "u32")
    if spaces[0] == "global":
        return f"lk::bulk_store({to}, {source}, {size});"
    barrier = operands.address(one.operands[3], "shared::cluster")
    if "multicast::cluster" in parts:
        return f"lk_bulk_multicast({to}, {source}, {size}, {barrier}, (unsigned){operands.value(one.operands[4])});"
    return f"lk::bulk_load({to}, {source}, {size}, {barrier});"


def bulk_reduction(one: Instruction, operands: Operands) -> str:
    """Translate ``cp.reduce.async.bulk`` from shared to global memory."""
    parts = one.modifiers
    if parts[1:4] == ["async", "bulk", "tensor"]:
        return tensor_copy(one, operands)
    spaces = [part for part in parts if part.startswith(("shared", "global"))]
    operation = next((part for part in parts if part in _REDUCTIONS), "")
    if (
        parts[1:3] != ["async", "bulk"]
        or spaces != ["global", "shared::cta"]
        or parts[-1] not in _ELEMENTS
        or not operation
    ):
        return ""
    kind = f"{_ELEMENTS[parts[-1]]}, lk::Reduction::{_REDUCTIONS[operation]}"
    to, source = (operands.address(text, space) for text, space in zip(one.operands, spaces, strict=False))
    return f"lk::bulk_reduce<{kind}>({to}, {source}, {operands.get(one.operands[2], 'u32')});"


def cluster_barrier(one: Instruction) -> str:
    """Translate ``barrier.cluster.arrive`` and ``barrier.cluster.wait``."""
    return {"arrive": "lk_cluster_arrive();", "wait": "lk_cluster_wait();"}.get(one.modifiers[1], "")


def _map(one: Instruction, operands: Operands) -> str:
    """Translate mapa: the address of the same variable in another block of the cluster."""
    d, a, rank = one.operands
    at = (
        f"lk::ptx::shared_address({operands.value(a)})"
        if _shared(one) or _space(one)
        else f"lk::ptx::address({operands.value(a)})"
    )
    mapped = f"lk_cluster_map({at}, {operands.get(rank, 'u32')})"
    return operands.set(
        d, f"lk::ptx::address_bits<{'unsigned' if one.modifiers[-1] == 'u32' else 'unsigned long long'}>({mapped})"
    )


def _rank(one: Instruction, operands: Operands) -> str:
    d, a = one.operands
    return operands.set(d, f"lk_cluster_rank_of({operands.pointer(a, 'shared::cluster' if _space(one) else '')})")


def fence(one: Instruction) -> str:
    """Translate the fences that make writes visible to bulk copies; "" for other fences."""
    return "lk_proxy_fence();" if one.modifiers[0] == "mbarrier_init" or one.modifiers[:2] == ["proxy", "async"] else ""


ASYNC: dict[str, Callable[[Instruction, Operands], str]] = {
    "mbarrier": mbarrier,
    "mapa": _map,
    "getctarank": _rank,
}
"""The translator of each opcode that is found nowhere else."""
