"""The communication of a rank in a step, kind by kind, and its time on the links."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from mlsys_labkit.planner.cluster import Cluster
from mlsys_labkit.planner.layout import Layout
from mlsys_labkit.planner.transformer import Transformer

Way = Literal["tensor", "context", "expert", "pipeline", "data"]
# Forward, backward, and forward again of all layers or half of them.
_PASSES = {"none": 2, "selective": 2, "half": 2.5, "full": 3}
# Bytes that a rank sends, in parts of (n - 1)/n of the payload as ``Event.bytes`` counts it.
_SENT = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 1}


@dataclass(frozen=True)
class Transfer:
    """One kind of communication of a rank.

    Args:
        way: which cut asks for it: "tensor", "context", "expert", "pipeline" or "data".
        what: in words.
        operation: "all_reduce", "all_gather", "reduce_scatter", "all_to_all" or "send".
        group: ranks that take part.
        bytes: payload of one call, as ``Event.bytes`` counts it.
        calls: on average, in a micro-batch, or in a step where ``each_step``.
        sent_bytes: what this rank sends in all calls.
        seconds: of all calls, by latency and bandwidth.
        each_step: once a step, not once a micro-batch.
    """

    way: Way
    what: str
    operation: str
    group: int
    bytes: float
    calls: float
    sent_bytes: float
    seconds: float
    each_step: bool = False


def transfers(
    model: Transformer, cluster: Cluster, layout: Layout, counts: tuple[float, float], link_fraction: float
) -> tuple[Transfer, ...]:
    """Return all transfers of a rank of the busiest stage. ``counts`` are its dense and expert weights before ZeRO.

    Reference: Shoeybi et al., arXiv:1909.08053 (tensor); Korthikanti et al., arXiv:2205.05198, sec. 4.2.2 (sequence);
    Rajbhandari et al., arXiv:1910.02054, sec. 7 (ZeRO); Liu et al., arXiv:2310.01889 (ring attention); NVIDIA/nccl,
    src/graph/tuning.cc (steps of rings and trees).
    """
    return tuple(_Sender(model, cluster, layout, counts, link_fraction).all())


class _Sender:
    def __init__(
        self, model: Transformer, cluster: Cluster, layout: Layout, counts: tuple[float, float], link_fraction: float
    ) -> None:
        self.model, self.cluster, self.layout, self.counts = model, cluster, layout, counts
        self.fraction = link_fraction
        stages = layout.telling_stages(model)
        self.layers = max(layout.layers(model, stage) for stage in stages)
        self.sparse_layers = max(layout.layers(model, stage) - layout.dense_layers(model, stage) for stage in stages)
        self.residual = layout.precision.itemsize * layout.tokens * model.width  # of the whole TP group

    def all(self) -> Iterator[Transfer]:
        yield from self._tensor()
        yield from self._context()
        yield from self._expert()
        yield from self._pipeline()
        yield from self._data()

    def _call(
        self,
        way: Way,
        what: str,
        operation: str,
        *,
        group: int,
        stride: int,
        payload: float,
        calls: float,
        each_step: bool = False,
    ) -> Transfer:
        link = self.cluster.link(stride, group)
        sent = payload if operation == "send" else _SENT[operation] * payload * (group - 1) / group
        seconds = self._latency(operation, group, stride) + sent / (float(link.bytes_per_second) * self.fraction)
        return Transfer(
            way,
            what,
            operation,
            group,
            bytes=payload,
            calls=calls,
            sent_bytes=calls * sent,
            seconds=calls * seconds,
            each_step=each_step,
        )

    def _latency(self, operation: str, group: int, stride: int) -> float:
        """Return the latency of one call, in seconds.

        A ring has steps inside nodes and between them; an all-reduce may use a tree instead.
        """
        inside, between = (float(link.latency_seconds) for link in (self.cluster.intra, self.cluster.inter))
        in_node = max(1, min(group, self.cluster.gpus_per_node // stride))
        nodes = -(-group // in_node)
        if operation == "send":
            return between if nodes > 1 else inside
        ring = _SENT[operation] * ((group - nodes) * inside + (nodes - 1) * between)
        tree = 2 * ((in_node - 1) * inside + math.ceil(math.log2(nodes)) * between)
        return min(ring, tree) if operation == "all_reduce" else ring

    def _tensor(self) -> Iterator[Transfer]:
        t, layout = self.layout.tensor, self.layout
        if t == 1:
            return
        passes = _PASSES[layout.recompute]
        blocks = 1 if self.model.parallel else 2
        routed = self.model.active_experts if self.model.experts > 1 else 1  # the MLP sends a token once per expert
        payload = self.residual * (1 + routed) / 2 if blocks == 2 else self.residual
        ring: dict[str, Any] = {"group": t, "stride": 1, "payload": payload, "calls": passes * blocks * self.layers}
        if layout.sequence_parallel:
            yield self._call("tensor", "activations, gathered before a block", "all_gather", **ring)
            yield self._call("tensor", "activations, summed after a block", "reduce_scatter", **ring)
        else:
            yield self._call("tensor", "activations, summed after a block", "all_reduce", **ring)

    def _context(self) -> Iterator[Transfer]:
        c, layout = self.layout.context, self.layout
        if c == 1:
            return
        shares = layout.tensor if self.model.kv_heads > 1 else 1
        block = 2 * layout.precision.itemsize * layout.tokens * self.model.kv_width / shares
        calls = (c - 1) * self.layers * (1 + _PASSES[layout.recompute])  # backward sends blocks and gradients
        yield self._call(
            "context",
            "keys and values around the ring",
            "send",
            group=c,
            stride=layout.tensor,
            payload=block,
            calls=calls,
        )

    def _expert(self) -> Iterator[Transfer]:
        e, layout = self.layout.expert, self.layout
        if e == 1:
            return
        payload = self.residual * self.model.active_experts / layout.tensor
        calls = 2 * self.sparse_layers * _PASSES[layout.recompute]
        stride = layout.tensor * layout.context
        yield self._call(
            "expert",
            "tokens to their experts and back",
            "all_to_all",
            group=e,
            stride=stride,
            payload=payload,
            calls=calls,
        )

    def _pipeline(self) -> Iterator[Transfer]:
        layout = self.layout
        if layout.pipeline == 1:
            return
        stride = layout.tensor * layout.context * layout.data
        payload = self.residual / layout.tensor  # a rank's share; without sequence parallel, scattered and gathered
        yield self._call(
            "pipeline",
            "activations and their gradients",
            "send",
            group=layout.pipeline,
            stride=stride,
            payload=payload,
            calls=2 * layout.chunks,
        )

    def _data(self) -> Iterator[Transfer]:
        layout, precision, (dense, expert) = self.layout, self.layout.precision, self.counts
        groups = (
            ("dense weights", dense, layout.sharded, layout.tensor),
            ("experts", expert, max(1, layout.sharded // layout.expert), layout.tensor * layout.expert),
        )
        for name, count, ranks, stride in groups:
            if layout.replicas > 1 and count:  # HSDP: after the scatter inside a replica, shares are summed over them
                share = count * precision.gradient_bytes / ranks
                yield self._call(
                    "data",
                    f"shares of the gradients of {name}, over replicas",
                    "all_reduce",
                    group=layout.replicas,
                    stride=stride * ranks,
                    payload=share,
                    calls=1,
                    each_step=True,
                )
            if ranks <= 1 or not count:
                continue
            gradients, parameters = count * precision.gradient_bytes, count * precision.parameter_bytes

            def call(
                what: str, operation: str, payload: float, calls: int = 0, ranks: int = ranks, stride: int = stride
            ) -> Transfer:
                """Return a transfer: calls per layer that share the payload, or one call per step if ``calls`` is 0."""
                share = payload / self.layers if calls else payload
                sizes: dict[str, Any] = {"payload": share, "calls": calls or 1, "each_step": not calls}
                return self._call("data", what, operation, group=ranks, stride=stride, **sizes)

            if layout.zero == 0:
                yield call(f"gradients of {name}", "all_reduce", gradients)
                continue
            # From stage 2 no rank keeps a whole gradient: every micro-batch reduce-scatters its own, layer by layer.
            each = self.layers if layout.zero >= 2 else 0
            yield call(f"gradients of {name}", "reduce_scatter", gradients, each)
            if layout.zero < 3:
                yield call(f"{name} after the step", "all_gather", parameters)
            else:
                yield call(f"a layer's {name}, forward and backward", "all_gather", parameters, 2 * self.layers)
