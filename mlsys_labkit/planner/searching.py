"""``search``: the layouts that fit a cluster, fastest first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Literal

from mlsys_labkit._base.units import si
from mlsys_labkit.planner.assumptions import Assumptions
from mlsys_labkit.planner.cluster import Cluster
from mlsys_labkit.planner.errors import PlanError
from mlsys_labkit.planner.estimate import plan
from mlsys_labkit.planner.layout import Layout, Recompute
from mlsys_labkit.planner.memory import StageMemory, stage_memory
from mlsys_labkit.planner.result import Plan
from mlsys_labkit.planner.state import Precision
from mlsys_labkit.planner.transformer import Transformer

_MICRO_BATCHES = (1, 2, 4, 8, 16)
_CHUNKS = (1, 2, 4)
_DEPTHS = (2, 4, 8, 16, 32)  # of pipelines, also where the layers do not divide
_LEAST_TOKENS = 4096  # of a sequence on a rank, below which context parallelism has little to compute
_RECOMPUTE: tuple[Recompute, ...] = ("none", "full")  # with FlashAttention "selective" saves nothing more
_HOSTS: tuple[Literal["none", "optimizer"], ...] = ("none", "optimizer")


def search(
    model: Transformer,
    cluster: Cluster,
    global_batch: int,
    sequence: int | None = None,
    *,
    count: int = 10,
    precision: Precision | None = None,
    offload: bool = False,
    assumptions: Assumptions | None = None,
) -> list[Plan]:
    """Find the ``count`` fastest layouts that fit into memory.

    Candidates: tensor parallelism within a node, powers of two for the micro-batch, ZeRO 0 to 3, with and without full
    recomputation, one, two or four chunks per pipeline rank, and with ``offload`` also the optimizer on the host.

    ``sequence`` defaults to the model's context. Raises PlanError that names what is short when nothing fits.

    Example:
        >>> best = search(Transformer.named("llama-2-7b"), Cluster.named("dgx-h100", gpus=8), global_batch=64)[0]
        >>> best.fits, best.layout.ranks
        (True, 8)
    """
    given, length = assumptions or Assumptions(), sequence or model.context
    room = cluster.memory_bytes * given.memory_fraction
    fitting: list[Layout] = []
    closest: tuple[StageMemory, Layout] | None = None
    for family in _families(model, cluster, global_batch, length, precision or Precision(), offload):
        for layout in family:
            fullest = max(
                (stage_memory(model, layout, stage) for stage in layout.telling_stages(model)), key=lambda one: one.peak
            )
            if closest is None or fullest.peak < closest[0].peak:
                closest = fullest, layout
            if fullest.peak > room:
                break  # larger micro-batches take more
            fitting.append(layout)
    if closest is None:
        raise PlanError(
            f"no layout cuts {model.layers} layers, {model.kv_heads} key-value heads and a batch of {global_batch} "
            f"over {cluster.gpus} GPUs; change the batch or the number of GPUs"
        )
    if not fitting:
        raise PlanError(_short(closest[0], closest[1], room, cluster))
    plans = sorted((plan(model, cluster, layout, given) for layout in fitting), key=lambda one: one.step_seconds)
    return plans[:count]


def _families(
    model: Transformer, cluster: Cluster, batch: int, length: int, precision: Precision, offload: bool
) -> Iterator[Iterator[Layout]]:
    """Yield families of layouts that differ in their micro-batch only, the smallest first."""
    contexts = [c for c in (1, 2, 4, 8, 16, 32) if c == 1 or length // c >= _LEAST_TOKENS]
    even = {*_divisors(model.layers), *_divisors(model.layers + 2)}
    depths = sorted(even | {depth for depth in _DEPTHS if depth <= model.layers})
    for tensor, pipeline, context, expert in product(
        _divisors(cluster.gpus_per_node), depths, contexts, _divisors(model.experts)
    ):
        data, rest = divmod(cluster.gpus, tensor * pipeline * context)
        if rest or not data or data % expert or batch % data:
            continue
        first = Layout(
            data, tensor, pipeline, context, expert, global_batch=batch, sequence=length, precision=precision
        )
        if pipeline in even:
            first = replace(first, ends_as_layers=model.layers % pipeline > 0)
        else:
            first = replace(first, uneven=True)
        try:
            first.check(model, cluster.gpus)
        except PlanError:
            continue
        # With a pipeline, ZeRO 2 and 3 would gather or scatter the stage for every micro-batch. Without one, chunks
        # have no bubble to reduce.
        deep = pipeline > 1
        stages = range(1 if first.sharded == 1 else 2 if deep else 4)
        for zero, again, host, chunks in product(stages, _RECOMPUTE, _HOSTS[: 1 + offload], _CHUNKS if deep else (1,)):
            if (first.uneven and chunks == 1) or (model.layers + 2 * first.ends_as_layers) % (pipeline * chunks) == 0:
                family = replace(first, zero=zero, recompute=again, offload=host)
                yield _sizes(family, chunks)


def _sizes(family: Layout, chunks: int) -> Iterator[Layout]:
    for micro in _MICRO_BATCHES:
        batches, rest = divmod(family.global_batch, family.data * micro)
        if not rest and (chunks == 1 or batches % family.pipeline == 0):
            yield replace(family, micro_batch=micro, chunks=chunks)


def _divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


def _short(stage: StageMemory, layout: Layout, room: float, cluster: Cluster) -> str:
    parts = {name: getattr(stage, name) for name in ("parameters", "gradients", "optimizer", "activations", "buffers")}
    name, most = max(parts.items(), key=lambda part: part[1])
    cure = {
        "activations": "shorten the sequences or cut them (context parallel)",
        "buffers": "cut the vocabulary and layers (tensor parallel)",
    }.get(name, "add GPUs or move the optimizer to the host (offload=True)")
    return (
        f"nothing fits: the smallest layout ({layout}) takes {si(stage.peak, 'B')} a GPU, "
        f"{si(stage.peak - room, 'B')} more than the {si(room, 'B')} there are on {cluster.device}; "
        f"most of it is {name}, {si(most, 'B')}: {cure}"
    )
