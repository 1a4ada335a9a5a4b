"""``plan``: memory, FLOPs, bytes sent and step time of one layout on one cluster, by formula."""

from __future__ import annotations

from mlsys_labkit.planner.assumptions import Assumptions
from mlsys_labkit.planner.cluster import Cluster
from mlsys_labkit.planner.layer_time import LayerClock, PassSeconds
from mlsys_labkit.planner.layout import Layout
from mlsys_labkit.planner.memory import StageMemory, stage_memory, stage_parameters
from mlsys_labkit.planner.result import Plan, Seconds
from mlsys_labkit.planner.traffic import Transfer, transfers
from mlsys_labkit.planner.transformer import Transformer


def plan(model: Transformer, cluster: Cluster, layout: Layout, assumptions: Assumptions | None = None) -> Plan:
    """Compute memory of each stage, FLOPs, bytes sent and step time. Raises PlanError for an impossible layout.

    Memory and bytes are sums over tensors. The step time is a model: matrix products by tiles and waves, attention,
    and the operators between them by the bytes that they move; communication by latency and bandwidth, less what hides
    behind computing, which it delays; the bubble of the schedule; the update of the weights. ``published_runs`` are the
    runs that it was compared with.

    Example:
        >>> from dataclasses import replace
        >>> model, cluster = Transformer.named("llama-3-405b"), Cluster.named("dgx-h100", gpus=16_384)
        >>> layout = Layout(data=128, tensor=8, pipeline=16, chunks=4, zero=1, global_batch=2048, sequence=8192)
        >>> run = plan(model, cluster, replace(layout, ends_as_layers=True))
        >>> round(run.peak_bytes / 1e9), round(run.mfu, 2)
        (81, 0.43)

    Reference: Grattafiori et al., "The Llama 3 Herd of Models", arXiv:2407.21783, table 4: these cuts, 41 %.
    """
    layout.check(model, cluster.gpus)
    given = assumptions or Assumptions()
    stages = tuple(stage_memory(model, layout, stage) for stage in range(layout.pipeline))
    sent = transfers(model, cluster, layout, max(stage.parameter_count for stage in stages), given.link_fraction)
    useful, hardware = _flops(model, layout)
    seconds = _seconds(model, cluster, layout, given, sent, stages)
    return Plan(
        model,
        cluster,
        layout,
        given,
        stages=stages,
        transfers=sent,
        flops=useful,
        hardware_flops=hardware,
        seconds=seconds,
    )


def _flops(model: Transformer, layout: Layout) -> tuple[int, int]:
    """Return (FLOPs, FLOPs with recomputation) of a step.

    The recomputation inside the FlashAttention kernel is not counted.
    """
    forward = model.forward_flops(layout.global_batch, layout.sequence)
    again = 0
    if layout.recompute == "full":
        again = forward.layers
    elif layout.recompute == "half":
        again = forward.layers // 2
    elif layout.recompute == "selective":
        again = forward.attention
    return 3 * forward.total, 3 * forward.total + again


def _seconds(
    model: Transformer,
    cluster: Cluster,
    layout: Layout,
    given: Assumptions,
    sent: tuple[Transfer, ...],
    stages: tuple[StageMemory, ...],
) -> Seconds:
    m = layout.micro_batches
    clock = LayerClock(model, cluster, layout, given)
    compute = max(_micro_batch_seconds(clock, stage) for stage in layout.telling_stages(model))
    exposed: dict[str, float] = {}
    for way in dict.fromkeys(one.way for one in sent):
        part = given.hidden.get(way, 0.0)
        each = sum(one.seconds for one in sent if one.way == way and not one.each_step)
        once = sum(one.seconds for one in sent if one.way == way and one.each_step)
        if way == "data":
            layers = layout.layers(model, min(1, layout.pipeline - 1))
            left = m * _exposed_shares(clock.layer(), layers, sent, given) if each else 0.0
            waits = max(0.0, once - part * compute)
            exposed[way] = left + waits + given.interference * (once - waits)
        else:
            waits = max(0.0, each - part * compute)
            exposed[way] = m * (waits + given.interference * (each - waits)) + max(0.0, once - part * compute)
    busy = m * compute + sum(seconds for way, seconds in exposed.items() if way != "data")
    update = max(_update_seconds(cluster, layout, stage, given) for stage in stages)
    return Seconds(compute=m * compute, exposed=exposed, bubble=layout.bubble * busy, optimizer=update)


def _exposed_shares(layer: PassSeconds, layers: int, sent: tuple[Transfer, ...], given: Assumptions) -> float:
    """Return the seconds by which ZeRO's gathers and scatters lengthen a micro-batch.

    Those of a layer travel while its neighbour is computed: the gather in forward; a gather and a scatter in backward.
    The first gather and the last scatter have no neighbour. What is hidden delays the computing all the same.
    """
    gather = sum(one.seconds for one in sent if _of_layers(one) and one.operation == "all_gather") / (2 * layers)
    scatter = sum(one.seconds for one in sent if _of_layers(one) and one.operation == "reduce_scatter") / layers
    waits = max(0.0, gather - layer.forward) + max(0.0, gather + scatter - layer.backward)
    delays = given.interference * (min(gather, layer.forward) + min(gather + scatter, layer.backward))
    return layers * (waits + delays) + gather + scatter


def _of_layers(one: Transfer) -> bool:
    return one.way == "data" and not one.each_step


def _micro_batch_seconds(clock: LayerClock, stage: int) -> float:
    """Return the seconds of forward and backward of one micro-batch on one rank of a stage."""
    model, layout = clock.model, clock.layout
    dense = layout.dense_layers(model, stage)
    seconds = (layout.layers(model, stage) - dense) * clock.layer().total
    if dense:
        seconds += dense * clock.layer(dense=True).total
    if stage == layout.pipeline - 1:
        seconds += clock.head()
    # Every micro-batch adds its gradients to the sum, or copies them for the scatter and the weights from the gather.
    weights, precision = sum(stage_parameters(model, layout, stage)), layout.precision
    each = 2 * precision.gradient_bytes if layout.zero < 2 else precision.gradient_bytes + precision.parameter_bytes
    each += 4 * precision.parameter_bytes if layout.zero == 3 else 0
    return seconds + weights * each / clock.bandwidth


def _update_seconds(cluster: Cluster, layout: Layout, stage: StageMemory, given: Assumptions) -> float:
    """Return the seconds of the optimizer step: read its state and the gradients, write its state and the weights.

    With offloading it runs on the host, limited by the link and by the host's memory.
    """
    state = 2 * (stage.optimizer + stage.host)
    count = (stage.optimizer + stage.host) / layout.precision.optimizer_bytes if layout.precision.optimizer_bytes else 0
    traffic = count * (layout.precision.gradient_bytes + layout.precision.parameter_bytes)
    if layout.offload == "none":
        return (state + traffic) / (cluster.bandwidth * given.bandwidth_fraction)
    return (state + traffic) / cluster.host_bytes_per_second + traffic / float(cluster.host.bytes_per_second)
