"""The seconds of a layer, forward and backward: products, attention, operators between them, launches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from mlsys_labkit.planner import operators
from mlsys_labkit.planner.assumptions import Assumptions
from mlsys_labkit.planner.cluster import Cluster
from mlsys_labkit.planner.layout import Layout
from mlsys_labkit.planner.operators import expert_kernel_count, kernel_count
from mlsys_labkit.planner.products import (
    Product,
    block_products,
    ceiling,
    generation,
    mlp_products,
    product_seconds,
)
from mlsys_labkit.planner.transformer import Transformer

# Part of the 16-bit peak that attention reaches over forward and backward, heads of 128 numbers, a causal mask, long
# sequences: FlashAttention-2 on A100 and H100 (Dao, arXiv:2307.08691, fig. 4 and 7: 189 and 335 TFLOP/s), -3 on H100
# (Shah et al., arXiv:2407.08608, fig. 5 and 6: 640 forward, 520 backward), -4 on B200 (Zadouri et al.,
# arXiv:2603.05451: 1,600 forward, 1,100 backward).
_ATTENTION = {
    ("a100", "flash-2"): 189 / 312,
    ("h100", "flash-2"): 335 / 989,
    ("h100", "flash-3"): 550 / 989,
    ("b200", "flash-3"): 1200 / 2250,
    ("gb200", "flash-3"): 1200 / 2500,
}
_BLOCK = 128  # rows of a block of attention: half of each block on the diagonal is masked, and computed all the same


class PassSeconds(NamedTuple):
    """Seconds of a layer's forward and backward pass of one micro-batch on one rank, recomputation in backward."""

    forward: float
    backward: float

    @property
    def total(self) -> float:
        return self.forward + self.backward


def _backward(products: Iterable[Product]) -> Iterable[Product]:
    return (each for one in products for each in one.backward)


class LayerClock:
    """The times of a layout's layers on a cluster under assumptions."""

    def __init__(self, model: Transformer, cluster: Cluster, layout: Layout, given: Assumptions) -> None:
        self.model, self.cluster, self.layout, self.given = model, cluster, layout, given
        self.dtype = layout.precision.compute
        # Recipes keep the output layer and attention in 16 bits.
        self.wide_dtype = "bfloat16" if self.dtype == "float8" else self.dtype
        self.bandwidth = cluster.bandwidth * given.bandwidth_fraction

    def layer(self, dense: bool = False) -> PassSeconds:
        """Return the seconds of one layer. ``dense``: one of a mixture's dense layers."""
        model, layout, rate = self.model, self.layout, self.bandwidth
        mixture = model.experts > 1 and not dense
        block, mlp = list(block_products(model, layout)), list(mlp_products(model, layout, dense))
        moved, attention, count = operators.layer_bytes(model, layout, dense), self._attention(), kernel_count(layout)
        ahead = self._products(block) + attention.forward + moved.forward / rate
        back = self._products(_backward(block)) + attention.backward + moved.backward / rate
        if mixture:  # the host waits for the router's choice, so its launches do not run ahead of the experts
            around, expert_count = operators.expert_bytes(model, layout), expert_kernel_count(model, layout)
            ahead = self._launched(ahead, count)
            ahead += self._launched(self._products(mlp) + around.forward / rate, expert_count)
            back = self._launched(back, 2 * count)
            back += self._launched(self._products(_backward(mlp)) + around.backward / rate, 2 * expert_count)
        else:
            ahead = self._launched(ahead + self._products(mlp), count)
            back = self._launched(back + self._products(_backward(mlp)), 2 * count)
        early = ahead - self._products(mlp[-1:])  # nothing needs the output of the last product: it is left out
        scores = 0.0 if layout.flash else attention.forward
        again = {"none": 0.0, "selective": scores, "half": early / 2, "full": early}
        return PassSeconds(ahead, back + again[layout.recompute])

    def head(self) -> float:
        """Return the seconds of the output layer and the loss, forward and backward."""
        product = Product(self.layout.tokens, self.model.width, self.model.vocabulary / self.layout.tensor)
        seconds = self._products((product, *product.backward), self.wide_dtype)
        seconds += operators.head_bytes(self.model, self.layout) / self.bandwidth
        extra = self.model.extra_predictions
        join = Product(self.layout.tokens, 2 * self.model.width, self.model.width / self.layout.tensor)
        return (1 + extra) * seconds + extra * self._products((join, *join.backward))

    def _products(self, products: Iterable[Product], dtype: str = "") -> float:
        dtype = dtype or self.dtype
        peak, device = self._rate(dtype), self.cluster.device
        return sum(product_seconds(one, device, dtype, peak, self.bandwidth) for one in products)

    def _rate(self, dtype: str) -> float:
        part = self.given.compute_fraction
        if part is None:
            part = ceiling(self.cluster.device, dtype) * self.given.sustained_fraction
        return self.cluster.peak(dtype) * part * self.cluster.clock_factor

    def _attention(self) -> PassSeconds:
        layout, model = self.layout, self.model
        layers = model.layers + model.extra_predictions
        square = model.forward_flops(layout.micro_batch, layout.sequence).attention / layers
        square /= layout.tensor * layout.context
        dtype = self.wide_dtype
        if not layout.flash:
            seconds = square / self._rate(dtype)  # two batched products over the whole square
            return PassSeconds(seconds, 2 * seconds)
        chip, kernel = generation(self.cluster.device), self.given.attention_kernel
        asked = [(chip, each) for each in (kernel, "flash-2", "flash-3")]
        part = next((_ATTENTION[key] for key in asked if key in _ATTENTION), 0.4)
        part *= 0.5 if kernel == "flash-1" else 1.0  # "2x faster": arXiv:2307.08691, abstract
        causal = 0.5 * square * (1 + _BLOCK / layout.sequence)
        seconds = causal / (self.cluster.peak(dtype) * part * self.given.sustained_fraction * self.cluster.clock_factor)
        return PassSeconds(seconds, 2.5 * seconds)  # backward has five products, one of them the scores again

    def _launched(self, seconds: float, kernels: int) -> float:
        """Return the seconds with the gaps between kernels, or of the host if it launches more slowly."""
        return max(seconds + kernels * self.given.gap_seconds, kernels * self.given.launch_seconds)
