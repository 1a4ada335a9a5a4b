"""Bytes that the operators between the products move: norms, RoPE, gates, residuals, dropout, permutations, the loss.

They do little arithmetic, so a device runs them as fast as its memory. Each is counted as what it reads and writes.
``kernels="fused"`` is one kernel for each group of operators (torch.compile, Megatron-LM's fused layers);
``kernels="eager"`` is one kernel for each operation of PyTorch, with the norms and RoPE in 32 bits.
"""

from __future__ import annotations

from typing import NamedTuple

from mlsys_labkit.planner.layout import Layout
from mlsys_labkit.planner.transformer import Transformer


class Moved(NamedTuple):
    """Bytes of a layer's operators in the forward and the backward pass of one micro-batch on one rank."""

    forward: float
    backward: float


def layer_bytes(model: Transformer, layout: Layout, dense: bool = False) -> Moved:
    """Return the bytes that a layer's operators move, without those around its experts.

    ``dense``: one of a mixture's dense layers.

    Example:
        >>> model, layout = Transformer.named("llama-3-8b"), Layout(sequence=8192)
        >>> fused = layer_bytes(model, layout)
        >>> round(fused.forward / 1e9, 2), round(fused.backward / 1e9, 2)
        (1.41, 2.15)
    """
    item, tokens = layout.precision.itemsize, layout.tokens
    fused = layout.kernels == "fused"
    r = item * tokens * model.width / (layout.tensor if layout.sequence_parallel else 1)  # one residual
    q = item * tokens * model.query_width / layout.tensor
    k = item * tokens * model.kv_width / (layout.tensor if model.kv_heads > 1 else 1)
    mixture = model.experts > 1 and not dense
    wide = model.dense_hidden if dense else model.shared_experts * model.hidden if mixture else model.hidden
    h = item * tokens * wide / layout.tensor
    forward, backward = 2 * 3 * r, 2 * 2 * r  # residuals are added; their gradients too
    norms = 1 if model.parallel else 2
    if model.biased:  # LayerNorm is one kernel; dropout reads, writes, and keeps a byte per element
        forward += norms * 2 * r + 2 * 0.5 * r
        backward += norms * 3 * r + 2 * 2.5 * r
    elif model.positions:
        forward, backward = forward + norms * 2 * r, backward + norms * 3 * r
    else:
        forward += norms * (1 if fused else 16) * r  # fused with the residual, it reads nothing of its own
        backward += norms * (3 if fused else 30) * r
    if not model.positions:  # RoPE
        forward += (2 if fused else 10) * (q + k)
        backward += (2 if fused else 10) * (q + k)
    if model.query_key_norm != "none":
        forward += (2 if fused else 16) * (q + k)
        backward += (3 if fused else 30) * (q + k)
    backward += 2 * q  # attention's backward begins with the rows' sums of output times gradient
    gate = _gate(model, layout)
    forward, backward = forward + gate.forward * h, backward + gate.backward * h
    if layout.precision.compute == "float8":  # every input of a product and every gradient is read, and written twice
        inputs = (1 if mixture and not h else 2) * r + q + h
        forward, backward = forward + 2 * inputs, backward + 2 * (inputs + 2 * k + h)
    if not layout.flash:  # scores: scaled, masked, exponentiated, and dropped out
        scores = item * tokens * layout.sequence * model.heads / layout.tensor
        forward, backward = forward + 4.5 * scores, backward + 6.5 * scores
    return Moved(forward, backward)


def expert_bytes(model: Transformer, layout: Layout) -> Moved:
    """Return the bytes that the operators around a layer's experts move.

    Rows are sorted by rank, then by expert, and put back; each step reads and writes them.
    """
    item, gate = layout.precision.itemsize, _gate(model, layout)
    rows = layout.tokens * model.active_experts
    sent = item * rows * model.width / (layout.tensor if layout.sequence_parallel else 1)
    h = item * rows * model.hidden / layout.tensor
    forward, backward = 6 * sent + gate.forward * h, 6 * sent + gate.backward * h
    if layout.precision.compute == "float8":
        forward, backward = forward + 2 * (sent + h), backward + 2 * (sent + 2 * h)
    return Moved(forward, backward)


def _gate(model: Transformer, layout: Layout) -> Moved:
    """Return the bytes that an MLP's activation function moves for each byte of its hidden numbers."""
    if not model.gated:
        return Moved(2, 3)
    return Moved(3, 5) if layout.kernels == "fused" else Moved(5, 8)


def head_bytes(model: Transformer, layout: Layout) -> float:
    """Return the bytes that the loss moves, forward and backward, on a rank of the last stage."""
    each = 8 if layout.kernels == "fused" else 34  # float32 copies of logits, log-probabilities and gradients
    return each * layout.tokens * model.vocabulary / layout.tensor


def kernel_count(layout: Layout) -> int:
    """Return the kernels that the host launches for a dense layer's forward pass; backward has twice as many."""
    return 16 if layout.kernels == "fused" else 45


def expert_kernel_count(model: Transformer, layout: Layout) -> int:
    """Return the kernels that the host launches for the experts of a layer in the forward pass.

    The router and the permutations take about 40. Each expert on the rank quantizes and multiplies its inputs, twice.
    """
    return 40 + 4 * model.experts // layout.expert
