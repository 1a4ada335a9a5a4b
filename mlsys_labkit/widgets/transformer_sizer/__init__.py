"""Transformer sizer: rules of thumb for parameters, activations and FLOPs beside the exact counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlsys_labkit._base.units import si
from mlsys_labkit.errors import LabkitError
from mlsys_labkit.planner import Transformer
from mlsys_labkit.widgets.base import Kind, State, paragraph, table
from mlsys_labkit.widgets.transformer_sizer import model


def transformer_sizer(model_name: str | Transformer = "llama-3-8b", batch: int = 1, sequence: int = 4096) -> Any:
    """Size a transformer: 12Nd² + Vd parameters and 9BLd + 2BhL² activations per layer, beside the exact counts.

    ``model_name`` is a name of ``planner.MODELS`` or a ``planner.Transformer``; ``batch`` sequences (B) of ``sequence``
    tokens (L). Raises LabkitError for a name that is not there or sizes below 1.
    Reference: Korthikanti et al., arXiv:2205.05198, sec. 4; Kaplan et al., arXiv:2001.08361, sec. 2.1.

    Example:
        >>> transformer_sizer("gpt-2", batch=8, sequence=1024)
        <Transformer sizer>
    """
    chosen = model.drawn(model_name)
    if batch < 1 or sequence < 1:
        raise LabkitError(f"batch and sequence are whole numbers from 1 up, got {batch!r} and {sequence!r}")
    known = [{"name": name, **model.shape(one)} for name, one in model.PRESETS.items()]
    name = chosen.name if chosen.name in model.PRESETS else ""
    return KIND.show(name=name, shape=model.shape(chosen), batch=int(batch), sequence=int(sequence), presets=known)


def _static(state: State) -> str:
    m, batch, length = state["shape"], state["batch"], state["sequence"]
    words = (
        f"{state['name'] or 'A transformer'}: d = {m['width']}, N = {m['layers']} layers, h = {m['heads']} heads, "
        f"V = {m['vocabulary']}, B = {batch}, L = {length}."
    )
    head = ["what", "rule", "exact", "rule is off by"]
    return paragraph(words) + table("Rules of thumb and exact counts", head, _rows(m, batch, length))


def _rows(m: Mapping[str, Any], batch: int, length: int) -> list[tuple[str, str, str, str]]:
    total, kept = sum(model.parts(m)), model.activations(m, batch, length, False)
    rule, elements = model.rule_parameters(m), model.rule_activations(m, batch, length)
    flash = model.activations(m, batch, length, True)
    pairs = [
        ("parameters, 12Nd² + Vd", rule, total, ""),
        ("elements a layer saves, 9BLd + 2BhL²", elements, kept, ""),
        ("the same with FlashAttention, 9BLd", 9 * batch * length * m["width"], flash, ""),
        ("training FLOPs a token, 6 x parameters", 6 * model.active_parameters(m), model.training_flops(m, length), ""),
        ("cache a token, 4Nd bytes", 4 * m["layers"] * m["width"], model.kv_bytes(m), "B"),
        ("weights on disk, 2 bytes each", 2 * rule, 2 * total, "B"),
        ("checkpoint to go on from, 14 bytes each", 14 * rule, 14 * total, "B"),
    ]
    return [(name, si(a, unit), si(b, unit), f"{100 * (a / b - 1):+.1f} %") for name, a, b, unit in pairs]


KIND = Kind("transformer_sizer", "Transformer sizer", _static)
