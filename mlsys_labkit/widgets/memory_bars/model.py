"""Memory of one rank by pipeline stage; the twin of ``model.js``. The figures are the planner's.

A layout ``l`` names data, tensor, pipeline, zero, micro_batch, micro_batches, sequence and recompute, "none" or "full".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlsys_labkit.planner import Layout, PlanError, Transformer, stage_memory
from mlsys_labkit.widgets.transformer_sizer.model import transformer

PARTS = ("parameters", "gradients", "optimizer", "activations", "buffers")
_TENSOR = (1, 2, 4, 8, 16)


def stage(m: Mapping[str, Any], l: Mapping[str, Any], index: int) -> list[float]:  # noqa: E741
    """Return the bytes of parameters, gradients, optimizer, activations and buffers of a stage, and their peak."""
    batch = l["data"] * l["micro_batch"] * l["micro_batches"]
    named = {name: l[name] for name in ("data", "tensor", "pipeline", "zero", "micro_batch", "sequence", "recompute")}
    memory = stage_memory(transformer(m), Layout(**named, global_batch=batch), index)
    return [*(getattr(memory, part) for part in PARTS), memory.peak]


def fullest(m: Mapping[str, Any], l: Mapping[str, Any]) -> int:  # noqa: E741
    """Return the pipeline stage with the highest peak, the first of them."""
    peaks = [stage(m, l, index)[-1] for index in range(l["pipeline"])]
    return peaks.index(max(peaks))


def tensor_sizes(m: Mapping[str, Any]) -> list[int]:
    """Return the ranks that tensor parallelism can cut this model over."""
    return [size for size in _TENSOR if _cuts(transformer(m), Layout(tensor=size))]


def pipeline_sizes(m: Mapping[str, Any]) -> list[int]:
    """Return the stages that its layers divide into."""
    whole = transformer(m)
    return [size for size in range(1, whole.layers + 1) if _cuts(whole, Layout(pipeline=size, global_batch=size))]


def _cuts(model: Transformer, layout: Layout) -> bool:
    try:
        layout.check(model)
        return True
    except PlanError:
        return False
