"""The plain key-value cache: one contiguous block of memory per sequence, sized for its longest possible length."""

from __future__ import annotations

import torch
from torch import Tensor

from mlsys_labkit.lm.config import Config
from mlsys_labkit.lm.errors import ContextError


class KVCache:
    """Keys and values of ``batch`` sequences that grow together, each with room for ``capacity`` tokens.

    ``keys`` and ``values`` are tensors [layer, sequence, key-value head, position, head width]; positions from
    ``length`` on are reserved and unused. Raises ContextError when a sequence outgrows its room.

    Example:
        >>> config = Config(vocabulary=8, width=8, layers=1, heads=2, kv_heads=1, head_width=4, hidden=16)
        >>> cache = KVCache(config, batch=3, capacity=10)
        >>> cache.bytes, cache.length
        (960, 0)
    """

    def __init__(
        self,
        config: Config,
        batch: int = 1,
        capacity: int | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self.capacity = capacity or config.context
        shape = (config.layers, batch, config.kv_heads, self.capacity, config.head_width)
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        self.values = torch.zeros(shape, dtype=dtype, device=device)
        self.length = 0

    @property
    def bytes(self) -> int:
        """Return the bytes reserved, used or not."""
        return self.keys.nbytes + self.values.nbytes

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store keys and values [sequence, key-value head, new, head width] of new positions and return all so far.

        The new positions count from ``advance`` on, which the model calls after every layer has appended its own.
        """
        end = self.length + keys.shape[2]
        if end > self.capacity:
            raise ContextError(
                f"the cache has room for {self.capacity} tokens a sequence, not {end}; make a larger one"
            )
        self.keys[layer, :, :, self.length : end] = keys
        self.values[layer, :, :, self.length : end] = values
        return self.keys[layer, :, :, :end], self.values[layer, :, :, :end]

    def advance(self, tokens: int) -> None:
        """Count the positions that every layer has appended."""
        self.length += tokens
