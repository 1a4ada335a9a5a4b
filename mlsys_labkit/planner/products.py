"""The matrix products of a layer on one rank, and the time that a device takes for them.

A product is cut into tiles, and the tiles are dealt out to the SMs in waves: the last wave is seldom full. A tile
begins and ends with work that no product hides. The rest of the way to the datasheet's peak is what the largest
products miss, measured by others (``CEILINGS``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from mlsys_labkit import specs
from mlsys_labkit.planner.layout import Layout
from mlsys_labkit.planner.transformer import Transformer

# The largest rate of any product over the datasheet's dense peak: S. Bekman, "Machine Learning Engineering Open Book",
# compute/accelerator, "Maximum Achievable Matmul FLOPS comparison table", 2026 (means of 100 runs, without sparsity).
CEILINGS = {
    ("a100", "bfloat16"): 271.2 / 312,
    ("h100", "bfloat16"): 794.5 / 989,
    ("h100", "float8"): 1402.6 / 1979,
    ("b200", "bfloat16"): 1745.0 / 2250,
    ("b200", "float8"): 3432.5 / 4500,
    ("gb200", "bfloat16"): 1822.0 / 2500,
    ("gb200", "float8"): 3615.6 / 5000,
    ("mi300x", "bfloat16"): 668.4 / 1300,
}
# Rows x columns of a tile, and how close to the ceiling it comes: the smaller the tile, the more it loads a product.
_TILES = ((128, 256, 1.0), (128, 128, 0.9), (64, 128, 0.75))
TILE_DEPTH = 160  # of the inner dimension: as long as a tile takes to begin and to end


class Product(NamedTuple):
    """``copies`` products of m x k by k x n."""

    m: float
    k: float
    n: float
    copies: float = 1

    @property
    def flops(self) -> float:
        return 2 * self.m * self.k * self.n * self.copies

    @property
    def backward(self) -> tuple[Product, Product]:
        """The products for the gradients of the input and of the weights."""
        return Product(self.m, self.n, self.k, self.copies), Product(self.k, self.m, self.n, self.copies)


def layer_products(model: Transformer, layout: Layout, dense: bool = False) -> Iterator[Product]:
    """Yield the products of a layer's forward pass of one micro-batch on one rank, without attention's scores.

    ``dense``: one of a mixture's dense layers.

    Example:
        >>> [product[:3] for product in layer_products(Transformer.named("llama-3-8b"), Layout(sequence=1024))]
        [(1024, 4096, 6144.0), (1024, 4096.0, 4096), (1024, 4096, 28672.0), (1024, 14336.0, 4096)]
    """
    yield from block_products(model, layout)
    yield from mlp_products(model, layout, dense)


def block_products(model: Transformer, layout: Layout) -> Iterator[Product]:
    """Yield the projections of attention in a layer's forward pass."""
    rows, width, t = layout.tokens, model.width, layout.tensor
    if model.latent:
        latent = model.latent
        yield Product(rows, width, latent.query_rank + latent.cached_width)
        yield Product(rows, latent.query_rank, model.query_width / t)
        yield Product(rows, latent.kv_rank, model.heads * (latent.no_rope_width + latent.value_width) / t)
    else:
        shares = t if model.kv_heads > 1 else 1
        yield Product(rows, width, model.query_width / t + 2 * model.kv_width / shares)
    yield Product(rows, model.value_width / t, width)


def mlp_products(model: Transformer, layout: Layout, dense: bool = False) -> Iterator[Product]:
    """Yield the products of a layer's MLP or experts in the forward pass."""
    rows, width, t = layout.tokens, model.width, layout.tensor
    into = 2 if model.gated else 1
    if model.experts == 1 or dense:
        hidden = (model.dense_hidden if dense else model.hidden) / t
        yield Product(rows, width, into * hidden)
        yield Product(rows, hidden, width)
        return
    hidden, shared = model.hidden / t, model.shared_experts * model.hidden / t
    yield Product(rows, width, model.experts)
    if shared:
        yield Product(rows, width, into * shared)
        yield Product(rows, shared, width)
    held = model.experts / layout.expert
    each = rows * model.active_experts / held  # a rank gets as many rows as it sends if experts are equally popular
    yield Product(each, width, into * hidden, held)
    yield Product(each, hidden, width, held)


def generation(device: str) -> str:
    """Return the name in ``CEILINGS`` of the chip on a device of ``mlsys_labkit.specs``."""
    return device.replace("h200", "h100").split("-")[0]


def ceiling(device: str, dtype: str) -> float:
    """Return the part of the dense peak that the largest products reach; of a device without a measurement, 0.75."""
    return CEILINGS.get((generation(device), dtype), 0.75)


def product_seconds(product: Product, device: str, dtype: str, peak: float, bandwidth: float) -> float:
    """Return the seconds of a product: by tiles and waves at ``peak`` FLOP/s, or as fast as its matrices are moved.

    Example:
        >>> large = Product(8192, 8192, 8192)
        >>> round(large.flops / product_seconds(large, "h100-sxm", "bfloat16", 800e12, 3e12) / 1e12)
        761
    """
    m, k, n, copies = product
    sms = specs.get(device).sms or 1
    part = 0.0
    for rows, columns, near in _TILES:
        tiles = math.ceil(m / rows) * math.ceil(n / columns)
        full = m * n / (tiles * rows * columns)
        waves = max(1.0, tiles * copies / sms)
        part = max(part, near * full * tiles * copies / (math.ceil(waves) * sms))
    part *= k / (k + TILE_DEPTH)
    item = 1 if dtype == "float8" else 2
    moved = copies * (item * (m * k + k * n) + 2 * m * n)
    return max(product.flops / (peak * part), moved / bandwidth)
