"""PTX instructions that copy boxes of tensors by tensor maps, as C++."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mlsys_labkit.cuda.source.ptx_operands import Operands, Unknown
from mlsys_labkit.cuda.source.ptx_text import Instruction, split_operands

_REDUCTIONS = {
    "add": "add", "min": "min", "max": "max", "and": "band", "or": "bor", "xor": "bxor", "inc": "inc", "dec": "dec",
}  # fmt: skip
_SHARED = ("shared::cluster", "shared::cta")
_HONOURED = (
    *("async", "bulk", "tensor", "tile", "global", "mbarrier::complete_tx::bytes", "bulk_group", "multicast::cluster"),
    *("L2::cache_hint", "reduce", *_SHARED, *_REDUCTIONS),
)


def tensor_copy(one: Instruction, operands: Operands) -> str:
    """Translate ``cp.async.bulk.tensor`` and ``cp.reduce.async.bulk.tensor``; "" for im2col and other modes.

    Example:
        >>> from mlsys_labkit.cuda.source.ptx_text import parse
        >>> text = "cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [$map, {$c}], [$from];"
        >>> tensor_copy(parse(text).items[0], Operands({"map": "", "c": "", "from": ""}))[:64]
        'lk::bulk_tensor_store<lk::TensorReduction::none>(lk::ptx::addres'

    Reference: PTX ISA, "cp.async.bulk.tensor".
    """
    parts = one.modifiers
    rank = next((int(part[0]) for part in parts if re.fullmatch(r"[1-5]d", part)), 0)
    if not rank or any(part not in _HONOURED for part in parts if part != f"{rank}d"):
        return ""
    if parts.index("global") > min(parts.index(space) for space in _SHARED if space in parts):
        return _load(one, operands, rank)
    operation = next((_REDUCTIONS[part] for part in parts if part in _REDUCTIONS), "none")
    tensor, at = _place(one.operands[0], operands, rank)
    source = operands.address(one.operands[1], "shared")
    return f"lk::bulk_tensor_store<lk::TensorReduction::{operation}>({tensor}, {source}, {at});"


def _load(one: Instruction, operands: Operands, rank: int) -> str:
    if "reduce" in one.modifiers:
        return ""
    to = operands.address(one.operands[0], "shared::cluster")
    tensor, at = _place(one.operands[1], operands, rank)
    barrier = operands.address(one.operands[2], "shared::cluster")
    ranks = f"(unsigned){operands.value(one.operands[3])}" if "multicast::cluster" in one.modifiers else "0"
    return f"lk::bulk_tensor_load({to}, {tensor}, {barrier}, {ranks}, {at});"


def _place(text: str, operands: Operands, rank: int) -> tuple[str, str]:
    """Return the map and the coordinates of ``[map, {c0, c1}]``. Raises Unknown."""
    parts: Sequence[str] = split_operands(text.strip()[1:-1])
    coordinates = operands.vector(parts[1]) if len(parts) > 1 else ()
    if len(coordinates) != rank:
        raise Unknown(text)
    return operands.pointer(parts[0], ""), ", ".join(operands.get(one, "s32") for one in coordinates)
