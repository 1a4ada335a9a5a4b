"""A transformer's rules of thumb beside its exact counts; the twin of ``model.js``.

The counts are the planner's (``mlsys_labkit.planner``); activations are elements of 16 bits that one layer saves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlsys_labkit.errors import LabkitError
from mlsys_labkit.planner import MODELS, Layout, Transformer, layer_activations

Shape = Mapping[str, Any]
_LEFT_OUT = ("latent", "shared_experts", "dense_layers", "dense_hidden", "query_key_norm", "extra_predictions")
FIELDS = tuple(
    name for name in Transformer.__dataclass_fields__ if name not in ("context", "name", "source", *_LEFT_OUT)
)


def _drawable(model: Transformer) -> bool:
    """Return whether the figures can draw a model: it has none of the parts that they leave out."""
    return not any(getattr(model, name) not in (None, 0, "none") for name in _LEFT_OUT)


PRESETS = {name: model for name, model in MODELS.items() if _drawable(model)}
"""The published models that the figures can draw."""


def drawn(model: str | Transformer) -> Transformer:
    """Return the model of a name, or the model itself. Raises LabkitError for one that the figures cannot draw."""
    chosen = Transformer.named(model) if isinstance(model, str) else model
    if not isinstance(chosen, Transformer):
        raise LabkitError(f"expected a name of planner.MODELS or a planner.Transformer, got {type(chosen).__name__}")
    if not _drawable(chosen):
        raise LabkitError(
            f"{chosen.name or 'the model'} has parts that this figure leaves out; lk.planner.plan knows them"
        )
    return chosen


def shape(model: Transformer) -> dict[str, Any]:
    """Return the sizes of a planner's model as plain values."""
    return {name: getattr(model, name) for name in FIELDS}


def transformer(m: Shape) -> Transformer:
    """Return the planner's model of these sizes."""
    return Transformer(**{name: m[name] for name in FIELDS})


def rule_parameters(m: Shape) -> int:
    """Return 12Nd² + Vd: four matrices of attention, an MLP of four times the width, the table of tokens.

    Example:
        >>> rule_parameters({"layers": 12, "width": 768, "vocabulary": 50257})
        123532032
    """
    return int(12 * m["layers"] * m["width"] ** 2 + m["vocabulary"] * m["width"])


def parts(m: Shape) -> list[int]:
    """Return the parameters of attention, MLPs, norms and routers, the tables at the input, the output layer."""
    one = transformer(m)
    mlp = one.layers * one.experts * one.expert_parameters
    attention = one.layers * one.attention_parameters
    head = 0 if one.tied else one.vocabulary * one.width
    rest = one.parameters - attention - mlp - one.embedding_parameters - head
    return [attention, mlp, rest, one.embedding_parameters, head]


def active_parameters(m: Shape) -> int:
    """Return the parameters that one token uses; of a mixture of experts, those of the experts that it visits."""
    return transformer(m).active_parameters


def rule_activations(m: Shape, batch: int, length: int) -> int:
    """Return 9BLd + 2BhL² elements per layer."""
    return int(9 * batch * length * m["width"] + 2 * batch * m["heads"] * length**2)


def activations(m: Shape, batch: int, length: int, flash: bool) -> float:
    """Return the elements of 2 bytes that one layer saves, with FlashAttention or with the scores kept."""
    layout = Layout(micro_batch=batch, global_batch=batch, sequence=length, flash=flash)
    return sum(row.bytes for row in layer_activations(transformer(m), layout)) / 2


def training_flops(m: Shape, length: int) -> int:
    """Return FLOPs per token, forward and backward, attention over ``length`` positions."""
    return transformer(m).training_flops_per_token(length)


def kv_bytes(m: Shape) -> int:
    """Return the bytes of keys and values per token, at 16 bits."""
    return transformer(m).kv_bytes_per_token(2)
