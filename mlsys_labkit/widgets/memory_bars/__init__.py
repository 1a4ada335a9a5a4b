"""Memory bars: the memory of each rank under ZeRO, tensor and pipeline parallelism, against a device's memory."""

from __future__ import annotations

from typing import Any

from mlsys_labkit import specs
from mlsys_labkit._base.units import si
from mlsys_labkit.errors import LabkitError
from mlsys_labkit.planner import Assumptions, Layout, Transformer
from mlsys_labkit.widgets.base import Kind, State, paragraph, table
from mlsys_labkit.widgets.memory_bars import model
from mlsys_labkit.widgets.transformer_sizer.model import PRESETS, drawn, shape

_LADDERS = {
    "data": [2**power for power in range(11)],
    "micro_batch": [1, 2, 4, 8, 16],
    "micro_batches": [2, 4, 8, 16, 32, 64],
    "sequence": [2**power for power in range(9, 18)],
}


def memory_bars(
    model_name: str | Transformer = "llama-2-7b",
    device: str = "h100-sxm",
    *,
    data: int = 8,
    tensor: int = 1,
    pipeline: int = 1,
    zero: int = 0,
    micro_batch: int = 1,
    micro_batches: int = 8,
    sequence: int = 4096,
    recompute: str = "none",
) -> Any:
    """Draw stacked bars of a rank's parameters, gradients, optimizer, activations and buffers, for ZeRO 0 to 3.

    ``model_name`` is a name of ``planner.MODELS`` or a ``planner.Transformer``, ``device`` a GPU of
    ``mlsys_labkit.specs``; the rest is as in ``planner.Layout``, ``micro_batches`` being those of a step, two or more.
    The figures are the planner's: fused kernels, FlashAttention, 2 + 2 + 12 bytes per parameter. Raises LabkitError for
    what cannot be.
    Reference: Rajbhandari et al., "ZeRO", arXiv:1910.02054, fig. 1; Korthikanti et al., arXiv:2205.05198.

    Example:
        >>> memory_bars("llama-3-70b", data=64, tensor=8, zero=1)
        <Memory bars>
    """
    chosen = drawn(model_name)
    if recompute not in ("none", "full") or micro_batches < 2:
        raise LabkitError(
            f"expected recompute none or full, micro_batches from 2; got {recompute!r}, {micro_batches!r}"
        )
    sizes = {"data": data, "tensor": tensor, "pipeline": pipeline, "zero": zero, "micro_batch": micro_batch}
    batch = data * micro_batch * micro_batches
    cut = Layout(data, tensor, pipeline, zero=zero, micro_batch=micro_batch, global_batch=batch, sequence=sequence)
    cut.check(chosen)
    known = [specs.get(key) for key in specs.keys()]  # noqa: SIM118, a function and no mapping
    gpus = [spec for spec in known if spec.kind == "gpu" and spec.memory_bytes]
    if device not in {gpu.key for gpu in gpus}:
        raise LabkitError(f"device is one of {', '.join(gpu.key for gpu in gpus)}; got {device!r}")
    presets = [{"name": name, **shape(one)} for name, one in PRESETS.items()]
    if chosen.name not in PRESETS:
        presets.insert(0, {"name": "own model", **shape(chosen)})
    layout = {**sizes, "micro_batches": micro_batches, "sequence": sequence, "recompute": recompute}
    ladders = {name: sorted({*steps, layout[name]}) for name, steps in _LADDERS.items()}
    return KIND.show(
        name=chosen.name if chosen.name in PRESETS else "own model",
        device=device,
        layout=layout,
        view="zero",
        presets=presets,
        devices=[[gpu.key, gpu.name, gpu.memory_bytes] for gpu in gpus],
        ladders=ladders,
        usable=Assumptions().memory_fraction,
    )


def _static(state: State) -> str:
    m = next(one for one in state["presets"] if one["name"] == state["name"])
    _, name, room = next(one for one in state["devices"] if one[0] == state["device"])
    layout, rows = state["layout"], []
    for zero in range(4):
        cut = {**layout, "zero": zero}
        *parts, peak = model.stage(m, cut, model.fullest(m, cut))
        fits = "yes" if peak <= state["usable"] * room else "no"
        rows.append([f"ZeRO-{zero}", *(si(part, "B") for part in parts), si(peak, "B"), fits])
    words = (
        f"{state['name']} on {layout['data']} x {layout['tensor']} x {layout['pipeline']} ranks (data, tensor, "
        f"pipeline) of {name}, {si(room, 'B')} each; "
        f"micro-batches of {layout['micro_batch']} x {layout['sequence']} tokens."
    )
    head = ["stage", *model.PARTS, "at the peak", "fits"]
    return paragraph(words) + table("Memory of a rank of the fullest pipeline stage", head, rows)


KIND = Kind("memory_bars", "Memory bars", _static)
