"""The block pool: fixed-size blocks of cache memory with reference counts, found again by a chained hash.

Reference: Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention",
arXiv:2309.06180, sec. 4.3; the order of eviction is that of vLLM's automatic prefix caching.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol

from mlsys_labkit.serving.errors import BlockError


class Pool(Protocol):
    """The methods that the engine needs of a block pool, so that your own pool can serve the real model.

    Blocks are numbered from 0. A block is free while no table holds it.
    """

    @property
    def size(self) -> int:
        """Return the number of all blocks."""

    @property
    def free(self) -> int:
        """Return the number of blocks that ``take`` can hand out."""

    def take(self) -> int:
        """Return a free block, which is then held once."""

    def share(self, block: int) -> None:
        """Count one more table that holds this block."""

    def drop(self, block: int) -> None:
        """Count one table fewer that holds this block; after the last it is free."""

    def holders(self, block: int) -> int:
        """Return how many tables hold this block, 0 for a free one."""


class PrefixPool(Pool, Protocol):
    """A pool that also finds blocks by their contents; needed only with ``reuse_prefixes``."""

    def publish(self, block: int, key: bytes, tokens: Sequence[int]) -> None:
        """Register a full block that holds ``tokens``, under the ``key`` of all tokens up to its end."""

    def find(self, key: bytes, tokens: Sequence[int]) -> int | None:
        """Return a block, free or held, with exactly this content; no reference is taken."""


def chain(parent: bytes, tokens: Sequence[int]) -> bytes:
    """Return the key of a full block: a hash of its tokens and, through ``parent``, of all tokens before.

    The key has 128 bits of BLAKE2b, because a pool only compares the block's own tokens: if two different pasts had the
    same key, a request would read another request's past.

    Example:
        >>> chain(chain(b"", [1, 2]), [3, 4]) == chain(chain(b"", [9, 2]), [3, 4])
        False
    """
    return hashlib.blake2b(parent + array("q", tokens).tobytes(), digest_size=16).digest()


class BlockPool:
    """A pool of ``size`` blocks, handed out least recently used first.

    A freed block keeps its content and key until it is handed out again, so that a later request can find it. Blocks
    that were never used come first, in the order of their numbers.

    Raises:
        BlockError: no block is free, or a free block is shared or dropped.

    Example:
        >>> pool = BlockPool(2)
        >>> block = pool.take()
        >>> pool.publish(block, chain(b"", [5, 6]), [5, 6])
        >>> pool.drop(block)
        >>> pool.free, pool.find(chain(b"", [5, 6]), [5, 6])
        (2, 0)
    """

    def __init__(self, size: int) -> None:
        if size < 1:
            raise BlockError(f"a pool has at least one block, got {size}; give it more memory")
        self._references = [0] * size
        self._idle: OrderedDict[int, None] = OrderedDict.fromkeys(range(size))  # the next to be handed out is first
        self._contents: dict[int, tuple[bytes, tuple[int, ...]]] = {}
        self._by_key: dict[bytes, int] = {}

    @property
    def size(self) -> int:
        return len(self._references)

    @property
    def free(self) -> int:
        return len(self._idle)

    @property
    def references(self) -> tuple[int, ...]:
        """Return how many tables hold each block."""
        return tuple(self._references)

    @property
    def cached(self) -> tuple[int, ...]:
        """Return the free blocks that can still be found by their key, the next to be reused first."""
        return tuple(block for block in self._idle if block in self._contents)

    def take(self) -> int:
        if not self._idle:
            raise BlockError(f"all {self.size} blocks are held; free some before taking one")
        block, _ = self._idle.popitem(last=False)
        self._forget(block)
        self._references[block] = 1
        return block

    def share(self, block: int) -> None:
        if not self._references[block]:
            if block not in self._contents:
                raise BlockError(f"block {block} is free and holds nothing; take it before sharing it")
            del self._idle[block]
        self._references[block] += 1

    def drop(self, block: int) -> None:
        if not self._references[block]:
            raise BlockError(f"block {block} is free already; each table gives back a block once")
        self._references[block] -= 1
        if not self._references[block]:
            self._idle[block] = None

    def holders(self, block: int) -> int:
        return self._references[block]

    def publish(self, block: int, key: bytes, tokens: Sequence[int]) -> None:
        """Register a full block; of two blocks with the same content the first one stays registered."""
        if not self._references[block]:
            raise BlockError(f"block {block} is free; only a held block has something to publish")
        if key not in self._by_key and block not in self._contents:
            self._by_key[key] = block
            self._contents[block] = key, tuple(tokens)

    def find(self, key: bytes, tokens: Sequence[int]) -> int | None:
        block = self._by_key.get(key)
        if block is None or self._contents[block][1] != tuple(tokens):
            return None
        return block

    def _forget(self, block: int) -> None:
        if content := self._contents.pop(block, None):
            del self._by_key[content[0]]
