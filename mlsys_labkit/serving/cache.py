"""The paged key-value cache: the tensors behind the block numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from mlsys_labkit.lm.config import Config


class Memory(Protocol):
    """The methods that the engine needs of a cache."""

    @property
    def block_bytes(self) -> int: ...
    def copy(self, pairs: Sequence[tuple[int, int]]) -> None: ...
    def swap_out(self, blocks: Sequence[int]) -> Any: ...
    def swap_in(self, copy: Any, blocks: Sequence[int]) -> None: ...


class PagedCache:
    """Keys and values of all layers, in blocks of ``block_size`` tokens.

    ``pages`` is one tensor [layer, block, 2 · key-value heads, slot, head width], a block's keys before its values. A
    head's slots of one block are one run of memory, so that gathering (block, head) pieces lays out each sequence as
    ``lm.KVCache`` does, and attention streams it. With the heads inside the slots, writing is simpler, and gather and
    attention together took a third longer on the CPU of ``benchmarks/results/serving.json``.

    Example:
        >>> config = Config(vocabulary=8, width=8, layers=1, heads=2, kv_heads=1, head_width=4, hidden=16)
        >>> cache = PagedCache(config, blocks=10, block_size=16)
        >>> list(cache.pages.shape), cache.block_bytes
        ([1, 10, 2, 16, 4], 512)

    Reference: Kwon et al., "PagedAttention", arXiv:2309.06180, sec. 4.
    """

    def __init__(
        self,
        config: Config,
        blocks: int,
        block_size: int = 16,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self.blocks, self.block_size = blocks, block_size
        shape = (config.layers, blocks, 2 * config.kv_heads, block_size, config.head_width)
        self.pages = torch.zeros(shape, dtype=dtype, device=device)  # padding is read, and 0 · NaN would be NaN
        self._layers: list[tuple[Tensor, Tensor]] = [(page, page.transpose(1, 2)) for page in self.pages]

    @property
    def block_bytes(self) -> int:
        """Return the bytes of one block over all layers."""
        return self.pages[:, 0].nbytes

    def write(self, layer: int, blocks: Tensor, slots: Tensor, both: Tensor) -> Tensor:
        """Put keys and values [token, 2 · key-value heads, head width] into slots of blocks [token].

        Returns the layer's pages [block, 2 · key-value heads, slot, head width].
        """
        page, by_slot = self._layers[layer]
        by_slot.index_put_((blocks, slots), both)
        return page

    def copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy whole blocks, in all layers, from each first number to its second."""
        if pairs:
            source, target = torch.tensor(pairs, device=self.pages.device).T
            self.pages.index_copy_(1, target, self.pages.index_select(1, source))

    def swap_out(self, blocks: Sequence[int]) -> Tensor:
        """Return a copy of some blocks in host memory."""
        return self.pages.index_select(1, torch.tensor(blocks, device=self.pages.device)).cpu()

    def swap_in(self, copy: Tensor, blocks: Sequence[int]) -> None:
        """Write a copy that ``swap_out`` returned into as many blocks."""
        assert copy.shape[1] == len(blocks), "as many blocks come back as went out"
        self.pages.index_copy_(1, torch.tensor(blocks, device=self.pages.device), copy.to(self.pages.device))
