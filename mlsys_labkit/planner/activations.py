"""The tensors that a layer saves for its backward pass.

The rows of a biased model are Korthikanti et al.'s: they add up to sbh(34 + 5as/h). The rows of a Llama block follow
the same rule (what backward needs of each operation), in two forms: ``kernels="fused"`` for kernels that save their
inputs alone, ``kernels="eager"`` for ``mlsys_labkit.lm``, whose norms are written in single operations of PyTorch.

Reference: Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", arXiv:2205.05198;
Dao et al., "FlashAttention", arXiv:2205.14135, alg. 4 (attention saves inputs, output, one float per row).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mlsys_labkit.planner.attention import LatentAttention
from mlsys_labkit.planner.layout import Layout
from mlsys_labkit.planner.transformer import Transformer


@dataclass(frozen=True)
class Saved:
    """One tensor, of one micro-batch on one rank: what it is, the operation that saves it, and its bytes."""

    name: str
    saved_by: str
    bytes: float


def total_bytes(rows: Iterable[Saved]) -> float:
    """Return the bytes of all rows together."""
    return sum(row.bytes for row in rows)


def layer_activations(model: Transformer, layout: Layout, dense: bool = False) -> tuple[Saved, ...]:
    """Return the tensors that one layer saves of one micro-batch on one rank.

    ``dense``: one of a mixture's dense layers. With recompute="half", every second layer saves as much as with "none".

    Example:
        >>> model, layout = Transformer.gpt(layers=96, width=12288, heads=96), Layout(tensor=8, recompute="selective")
        >>> rows = layer_activations(model, layout)
        >>> sum(row.bytes for row in rows if "statistics" not in row.name) / (2048 * 12288 / 8)      # 34 sbh/t
        34.0
    """
    if layout.recompute == "full":
        return (Saved("layer's input", "checkpoint", _Sizes(model, layout).residual),)
    return tuple(_layer(model, layout, dense))


def kept_layer(model: Transformer, layout: Layout, dense: bool = False) -> float:
    """Return the bytes that a layer saves, on average over layers that recompute and layers that do not."""
    saved = total_bytes(layer_activations(model, layout, dense))
    return (saved + _Sizes(model, layout).residual) / 2 if layout.recompute == "half" else saved


def working_layer(model: Transformer, layout: Layout) -> float:
    """Return the bytes of activations of one layer, which recomputation restores during backward."""
    return max(total_bytes(_layer(model, layout, dense)) for dense in {False, model.dense_layers > 0})


def input_activations(model: Transformer, layout: Layout) -> tuple[Saved, ...]:
    """Return the tensors that stage 0 saves besides its layers.

    Example:
        >>> from mlsys_labkit.planner import Layout, Transformer
        >>> [(row.name, row.bytes) for row in input_activations(Transformer.named("llama-3-8b"), Layout(sequence=1024))]
        [('token numbers', 8192)]
    """
    size = _Sizes(model, layout)
    rows = [Saved("token numbers", "embedding", 8 * layout.tokens)]
    if model.biased:
        rows.append(Saved("dropout mask", "dropout of the embedding", size.residual / size.item))
    return tuple(rows)


def stage_activations(model: Transformer, layout: Layout) -> tuple[Saved, ...]:
    """Return the tensors that a stage saves once per micro-batch for all its layers."""
    if model.positions or layout.kernels == "fused":
        return ()
    turned = layout.sequence // layout.context * model.head_width * layout.precision.itemsize
    return (Saved("cosines", "RoPE", turned), Saved("sines", "RoPE", turned))


def head_activations(model: Transformer, layout: Layout) -> tuple[Saved, ...]:
    """Return the tensors that the last stage saves besides its layers: final norm, output layer, loss.

    Example:
        >>> from mlsys_labkit.planner import Layout, Transformer
        >>> rows = head_activations(Transformer.named("llama-3-8b"), Layout(sequence=1024))
        >>> next(row.bytes for row in rows if row.name.startswith("log-probabilities")) == 4 * 1024 * 128_256
        True
    """
    size = _Sizes(model, layout)
    return (
        *_norm(model, layout, size, "final norm"),
        Saved("input of the output layer", "output layer", size.residual),
        Saved("log-probabilities (float32)", "loss", 4 * layout.tokens * model.vocabulary / layout.tensor),
        Saved("targets", "loss", 8 * layout.tokens),
    )


class _Sizes:
    """Bytes of the shapes that come again and again."""

    def __init__(self, model: Transformer, layout: Layout, dense: bool = False) -> None:
        self.item = layout.precision.itemsize
        self.tokens = layout.tokens / (layout.tensor if layout.sequence_parallel else 1)  # where TP does not cut
        self.residual = self.item * self.tokens * model.width
        self.query = self.item * layout.tokens * model.query_width / layout.tensor
        shares = layout.tensor if model.kv_heads > 1 else 1  # a single key-value head is on every tensor-parallel rank
        self.kv = self.item * layout.tokens * model.kv_width / shares
        self.scores = layout.tokens * layout.sequence * model.heads / layout.tensor  # elements
        self.value = self.item * layout.tokens * model.value_width / layout.tensor
        wide = model.dense_hidden if dense else (model.active_experts + model.shared_experts) * model.hidden
        self.hidden = self.item * layout.tokens * wide / layout.tensor


def _layer(model: Transformer, layout: Layout, dense: bool) -> Iterator[Saved]:
    size = _Sizes(model, layout, dense)
    mask = size.residual / size.item  # one byte per element
    yield from _norm(model, layout, size, "norm before attention")
    yield Saved("input of attention", "query, key, value projections", size.residual)
    if model.latent:
        yield from _latent(model, layout, model.latent, size)
    elif model.query_key_norm != "none":
        yield Saved("queries and keys before their norm", "norm", size.query + size.kv)
    yield Saved("queries", "attention", size.query)
    yield Saved("keys", "attention", size.kv)
    yield Saved("values", "attention", size.value if model.latent else size.kv)
    if layout.flash:
        yield Saved("softmax statistics", "attention", 4 * layout.tokens * model.heads / layout.tensor)
    elif layout.recompute == "none":
        yield Saved("attention probabilities", "softmax", size.item * size.scores)
        if model.biased:
            yield Saved("dropout mask of the probabilities", "dropout", size.scores)
            yield Saved("probabilities after dropout", "product with the values", size.item * size.scores)
    yield Saved("output of attention", "output projection", size.value)
    if model.biased:
        yield Saved("dropout mask after attention", "dropout", mask)
    if not model.parallel:
        yield from _norm(model, layout, size, "norm before MLP")
        yield Saved("input of MLP", "first projections", size.residual)
    if model.experts > 1 and not dense:
        yield Saved("router's probabilities (float32)", "router", 4 * size.tokens * model.experts)
        yield Saved("tokens sent to experts", "first projections", size.residual * model.active_experts)
        yield Saved("outputs of experts", "weighting by the router", size.residual * model.active_experts)
    yield Saved("first projection", "activation function", size.hidden)
    if model.gated:
        yield Saved("second projection", "product with the gate", size.hidden)
        if layout.kernels == "eager":
            yield Saved("activated gate", "product with the gate", size.hidden)
    yield Saved("input of the last projection", "last projection", size.hidden)
    if model.biased:
        yield Saved("dropout mask after MLP", "dropout", mask)


def _latent(model: Transformer, layout: Layout, latent: LatentAttention, size: _Sizes) -> Iterator[Saved]:
    """Yield the short vectors, which every tensor-parallel rank has, before and after their norms."""
    bytes_each = size.item * size.tokens
    for name, rank in (("queries", latent.query_rank), ("keys and values", latent.kv_rank)):
        if layout.kernels == "fused":
            yield Saved(f"short vectors of {name}", "norm", bytes_each * rank)
        else:
            yield Saved(f"short vectors of {name} (float32)", "norm", (4 if size.item == 4 else 8) * size.tokens * rank)
            yield Saved(f"normalised short vectors of {name}, before the weight", "weight", bytes_each * rank)
        yield Saved(f"statistics of the short vectors of {name}", "norm", 4 * size.tokens)
        yield Saved(f"normalised short vectors of {name}", f"projection to {name}", bytes_each * rank)


def _norm(model: Transformer, layout: Layout, size: _Sizes, where: str) -> Iterator[Saved]:
    if layout.kernels == "fused" or model.biased:
        yield Saved(f"input of {where}", "norm", size.residual)
        yield Saved(f"statistics of {where}", "norm", (8 if model.biased else 4) * size.tokens)
        return
    single = 4 * size.tokens * model.width
    yield Saved(f"input of {where} (float32)", "square", single)
    if size.item != 4:  # .float() gives the square and the scaling a copy each
        yield Saved(f"input of {where} (float32), again", "scaling", single)
    yield Saved(f"statistics of {where}", "scaling", 4 * size.tokens)
    yield Saved(f"normalised input of {where}", "weight", size.residual)
