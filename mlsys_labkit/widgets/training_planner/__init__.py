"""Training planner: memory, idle time and days of a model split over GPUs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from mlsys_labkit import specs
from mlsys_labkit._base.units import si
from mlsys_labkit.errors import LabkitError
from mlsys_labkit.planner import MODELS, Assumptions, Cluster, Layout, Transformer, layer_activations, plan
from mlsys_labkit.widgets.base import Kind, State, paragraph, table
from mlsys_labkit.widgets.training_planner import model

CUTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
WORDS = {"bubble": "pipeline bubble", "tensor": "tensor messages", "data": "data messages"}
LINK = Assumptions().link_fraction


def training_planner(
    model_name: str = "llama-3-70b",
    *,
    data: int = 8,
    tensor: int = 8,
    pipeline: int = 1,
    zero: int = 1,
    micro_batch: int = 1,
    micro_batches: int = 32,
    sequence: int = 4096,
    recompute: bool = False,
    tokens: float = 1e12,
    cluster: Cluster | None = None,
) -> Any:
    """Split a model over data x tensor x pipeline GPUs: memory per rank, time per step, days for ``tokens``.

    ``model_name`` is a name of ``planner.MODELS``; ``cluster`` gives GPU and links, by default H100 nodes. The formulas
    are a simplification of those of ``planner.plan``. Nothing is measured. Raises LabkitError for a name or a number
    that is not on offer.
    Reference: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters", SC 2021.

    Example:
        >>> training_planner("llama-3-8b", data=64, tensor=1, zero=3)
        <Training planner>
    """
    if model_name not in MODELS:
        raise LabkitError(f"no model {model_name!r}; choose among {', '.join(MODELS)}")
    for name, value in {"data": data, "tensor": tensor, "pipeline": pipeline, "micro_batches": micro_batches}.items():
        if value not in CUTS:
            raise LabkitError(f"{name} is a power of two from 1 to 1024; got {value!r}")
    if zero not in range(4) or micro_batch not in (1, 2, 4, 8) or not 512 <= sequence <= 131072:
        raise LabkitError(
            "zero is 0 to 3, micro_batch 1, 2, 4 or 8, and sequence 512 to 131072; "
            f"got {zero}, {micro_batch} and {sequence}"
        )
    if not 1e9 <= tokens <= 1e15:
        raise LabkitError(f"tokens is between 1e9 and 1e15; got {tokens!r}")
    machines = cluster or Cluster.named("dgx-h100", gpus=data * tensor * pipeline)
    dense = [name for name in MODELS if Transformer.named(name).experts == 1]
    if model_name not in dense:
        raise LabkitError(f"{model_name} has experts, which this figure leaves out; lk.planner.plan knows them")
    return KIND.show(
        models=[_model(name, machines, sequence) for name in dense],
        gpu={
            "name": specs.get(machines.device).name,
            "peak": machines.peak("bfloat16"),
            "memory": machines.memory_bytes,
            "bandwidth": machines.bandwidth,
            "intra": LINK * float(machines.intra.bytes_per_second),
            "inter": LINK * float(machines.inter.bytes_per_second),
        },
        words=WORDS,
        model=model_name,
        data=data,
        tensor=tensor,
        pipeline=pipeline,
        zero=zero,
        micro_batch=micro_batch,
        micro_batches=micro_batches,
        sequence=sequence,
        recompute=int(recompute),
        tokens=float(tokens),
    )


def _model(name: str, machines: Cluster, sequence: int) -> dict[str, Any]:
    sizes = Transformer.named(name)
    cut = next(t for t in (8, 4, 2, 1) if sizes.heads % t == 0 and (sizes.kv_heads % t == 0 or sizes.kv_heads == 1))
    whole, part = (_efficiency(sizes, machines, sequence, t) for t in (1, cut))
    layout = Layout(sequence=1024)
    saved = [sum(row.bytes for row in layer_activations(sizes, replace(layout, sequence=n))) for n in (1024, 2048)]
    short, long = (sizes.training_flops_per_token(n) for n in (1024, 2048))
    return {
        "name": name,
        "parameters": sizes.parameters,
        "layers": sizes.layers,
        "width": sizes.width,
        "vocabulary": sizes.vocabulary,
        "saved": saved[0] / 1024,  # with FlashAttention the same per token whatever the length
        "flops_base": 2 * short - long,  # attention's share grows with the sequence
        "flops_slope": (long - short) / 1024,
        "efficiency": whole,
        "halving": (part / whole) ** (1 / math.log2(cut)) if cut > 1 else 1.0,
    }


def _efficiency(sizes: Transformer, machines: Cluster, sequence: int, tensor: int) -> float:
    """Return the part of the peak that GPUs reach while they compute, the model cut over ``tensor`` of them."""
    cluster = replace(machines, gpus=tensor, gpus_per_node=8)
    run = plan(sizes, cluster, Layout(tensor=tensor, global_batch=8, sequence=sequence))
    return run.flops / run.seconds.compute / tensor / machines.peak("bfloat16")


def plan_of(state: State) -> dict[str, float]:
    """Return the numbers of a state, as ``model`` takes them."""
    sizes = next(each for each in state["models"] if each["name"] == state["model"])
    flops = sizes["flops_base"] + sizes["flops_slope"] * state["sequence"]
    numbers = {name: value for name, value in state.items() if isinstance(value, int | float)}
    return {**sizes, **state["gpu"], **numbers, "flops": flops}


def _static(state: State) -> str:
    plan = plan_of(state)
    held, times = model.memory(plan), model.seconds(plan)
    rows = [*((name, si(size, "B")) for name, size in held.items())]
    rows += [(f"{state['words'].get(name, name)}, a step", si(value, "s")) for name, value in times.items()]
    rows += [
        ("model FLOPs utilisation", f"{100 * model.utilisation(plan):.1f} %"),
        ("days", f"{state['tokens'] / model.tokens_per_second(plan) / 86400:.3g}"),
    ]
    gpus = state["data"] * state["tensor"] * state["pipeline"]
    return paragraph(f"{state['model']} on {gpus} x {state['gpu']['name']}.") + table(
        "A model, not measured", ["what", "how much"], rows
    )


KIND = Kind("training_planner", "Training planner", _static)
