"""Matrix products with copies of the weights in the order in which a CPU computes them fastest."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

_ROWS = 16  # rows that a packing is optimised for; it is correct for any number
# oneDNN keeps some 0.4 MB for each product and number of rows, of which prompts make hundreds. Beyond _ROWS, rows are
# padded to a multiple of this, which adds 3 % to a step of 512.
_ROWS_APART = 32
# oneDNN's operator costs about 20 us per call more than torch.mm, which a smaller weight never earns back.
_WORTH_PACKING = 2**19

Product = Callable[[Tensor], Tensor]


def linear(layers: Sequence[nn.Linear], packed: bool, norm: Any = None) -> Product:
    """Return a function that computes several layers without bias on one input [row, in], side by side.

    Args:
        layers: layers of equal inputs.
        packed: in float32 on a CPU, join the layers to one matrix, with the weights in the order of its kernel.
        norm: the RMSNorm before the layers. In a joined matrix its learnt scale is multiplied into the columns.

    Example:
        >>> double = nn.Linear(2, 2, bias=False)
        >>> double.weight.data = 2 * torch.eye(2)
        >>> linear([double, double], packed=True)(torch.tensor([[1.0, 3.0]]))
        tensor([[2., 6., 2., 6.]])
    """
    weight = layers[0].weight
    if not packed or weight.device.type != "cpu" or weight.dtype != torch.float32:
        before = _normalised(norm)
        return lambda x: _side_by_side(layers, before(x))
    joined = torch.cat([layer.weight.detach() for layer in layers])
    if norm is None:
        return _product(joined)
    # √n · x / √(|x|² + n · ε): three operators. torch's rms_norm runs eight on a CPU, which take longer to call than
    # to compute for the few rows of a decode.
    width = len(norm.weight)
    product = _product(joined.mul_(norm.weight.detach() * math.sqrt(width)))
    least = joined.new_tensor(math.sqrt(width * norm.epsilon))
    return lambda x: product(x / torch.linalg.vector_norm(x, dim=1, keepdim=True).hypot(least))


def _normalised(norm: Any) -> Product:
    """Return RMSNorm as one call in float32, where it rounds as the model's own module does."""
    if norm is None:
        return lambda x: x
    if norm.weight.dtype != torch.float32:
        return cast(Product, norm)
    return lambda x: functional.rms_norm(x, norm.weight.shape, norm.weight, norm.epsilon)


def _side_by_side(layers: Sequence[nn.Linear], x: Tensor) -> Tensor:
    parts = [cast(Tensor, layer(x)) for layer in layers]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def _product(weight: Tensor) -> Product:
    """Return the product with the transpose of ``weight`` [out, in].

    torch repacks the weights of a linear layer on each call, which dominates the few rows of a decode. The transposed
    matrix needs less of it, and oneDNN's packing, which torch.compile uses when it freezes weights, needs none.
    """
    if weight.numel() >= _WORTH_PACKING:
        try:
            ready = torch.ops.mkldnn._reorder_linear_weight(weight, _ROWS)
            return lambda x: _by_onednn(x, ready)
        except (AttributeError, NotImplementedError, RuntimeError):  # a torch without the operator
            return lambda x: functional.linear(x, weight)
    transposed = weight.t().contiguous()
    return lambda x: torch.mm(x, transposed)


def _by_onednn(x: Tensor, ready: Tensor) -> Tensor:
    missing = -len(x) % _ROWS_APART if len(x) > _ROWS else 0
    padded = functional.pad(x, (0, 0, 0, missing)) if missing else x
    return cast(Tensor, torch.ops.mkldnn._linear_pointwise(padded, ready, None, "none", [], ""))[: len(x)]
