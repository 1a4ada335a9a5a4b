"""Matrix products with weights in the layout of oneDNN's kernels, by a private operator of torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

_ROWS = 16  # rows that a packing is optimised for; it is correct for any number


def linear(layers: Sequence[nn.Linear], packed: bool) -> Callable[[Tensor], Tensor]:
    """Return a function that computes several layers without bias on one input [row, in], side by side.

    In float32 on a CPU, torch repacks the weights on each call, which dominates the few rows of a decode. The operator
    that packs them once is the one that torch.compile uses when it freezes weights.

    Example:
        >>> double = nn.Linear(2, 2, bias=False)
        >>> double.weight.data = 2 * torch.eye(2)
        >>> linear([double, double], packed=True)(torch.tensor([[1.0, 3.0]]))
        tensor([[2., 6., 2., 6.]])
    """
    weight = layers[0].weight
    if packed and weight.device.type == "cpu" and weight.dtype == torch.float32:
        joined = torch.cat([layer.weight.detach() for layer in layers])
        try:
            ready = torch.ops.mkldnn._reorder_linear_weight(joined, _ROWS)
            return lambda x: torch.ops.mkldnn._linear_pointwise(x, ready, None, "none", [], "")
        except (AttributeError, NotImplementedError, RuntimeError):  # a torch without the operator
            return lambda x: functional.linear(x, joined)
    if len(layers) == 1:
        return layers[0]
    return lambda x: torch.cat([layer(x) for layer in layers], dim=1)
