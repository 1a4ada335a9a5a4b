"""Memory that comes and goes within a step: gathered weights, gradients in transfer, the loss, a recomputed layer."""

from __future__ import annotations

from typing import NamedTuple

from mlsys_labkit.planner import activations
from mlsys_labkit.planner.layout import Layout
from mlsys_labkit.planner.transformer import Transformer


class Passing(NamedTuple):
    """Temporary bytes of one rank of a stage, by the time at which they are held.

    ``always``: during forward and backward, except at its end. ``loss``: at the beginning of backward. ``layer``:
    during backward of a layer, of which ``again`` is recomputed. ``embedding``: at the end of backward. ``experts``: at
    the beginning of backward of a layer with experts, the gradients of the rows before and after their weighting, of
    its input and its output; and with single operations the product that gives the gradient of the weights.
    """

    always: float
    loss: float
    layer: float
    again: float
    embedding: float
    experts: float


def passing_bytes(model: Transformer, layout: Layout, stage: int, weights: float) -> Passing:
    """Return the temporary buffers of a stage that holds ``weights`` before ZeRO, in bytes.

    ZeRO is modelled as FSDP2 with one unit per layer, and one for the tables that stays gathered. At the peak a rank
    holds a layer's weights, its whole gradient, and a copy of the gradient for the reduce-scatter.

    Reference: Zhao et al., "PyTorch FSDP", arXiv:2304.11277, sec. 3.3 and 3.4.
    """
    precision, item = layout.precision, layout.precision.itemsize
    first, last = stage == 0, stage == layout.pipeline - 1
    table = model.vocabulary * model.width / layout.tensor
    tables = table * (first + last - (model.tied and first and last))
    boundary = item * layout.tokens * model.width / (layout.tensor if layout.sequence_parallel else 1)
    always = 2 * boundary if layout.pipeline > 1 else 0.0  # one received, one being sent
    again = activations.working_layer(model, layout) if layout.recompute in ("half", "full") else 0.0
    work, embedding = again, 0.0
    if layout.zero > 1 and layout.sharded > 1:
        one = (weights - tables) / max(1, layout.layers(model, stage))
        work += 2 * one * precision.gradient_bytes + (table * precision.gradient_bytes if last else 0.0)
        shares = tables / layout.sharded if layout.micro_batches > 1 else 0.0  # added to the accumulated gradients
        embedding = (2 * tables + (table if first else 0.0) + shares) * precision.gradient_bytes
        if layout.zero == 3:
            always += tables * precision.parameter_bytes
            work += one * precision.parameter_bytes
    elif first and layout.kernels == "eager":  # dense, before it is accumulated; tied: two parts
        parts = 2 if model.tied and last else 1 if layout.micro_batches > 1 else 0
        embedding = parts * table * precision.gradient_bytes
    copies = (2 if layout.kernels == "fused" else 3) * model.active_experts + 2
    sent = copies * boundary if model.experts > 1 else 0.0
    return Passing(always, _loss(model, layout) if last else 0.0, work, again, embedding, sent)


def _loss(model: Transformer, layout: Layout) -> float:
    """Return the peak bytes of the backward pass of the loss and the output layer.

    First the gradients of the loss and of the logits are held; then the loss is freed, and the gradients of the output
    layer's weights and input come in.
    """
    item, logits = layout.precision.itemsize, layout.tokens * model.vocabulary / layout.tensor
    if layout.kernels == "fused":  # the gradient overwrites what the loss saved
        return item * logits
    weights = model.vocabulary * model.width / layout.tensor * layout.precision.gradient_bytes
    return max(8.0 * logits, (item - 4) * logits + weights + item * layout.tokens * model.width)
