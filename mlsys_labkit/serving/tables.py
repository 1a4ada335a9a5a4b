"""Block tables: the blocks of a sequence's tokens, which grow, fork and end, on any pool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from mlsys_labkit.serving.blocks import Pool, PrefixPool, chain


class BlockTable:
    """The blocks of one sequence, in the order of its tokens; token t is in slot t % block_size of block t // size.

    Attributes:
        blocks: block numbers.
        held: tokens whose keys and values are in them.

    Example:
        >>> from mlsys_labkit.serving.blocks import BlockPool
        >>> pool = BlockPool(4)
        >>> table = BlockTable(pool, block_size=2)
        >>> table.reserve(3)
        []
        >>> table.advance(3)
        >>> other = table.fork()
        >>> table.blocks, other.reserve(4), pool.references    # the half-full block is copied before it is written
        ([0, 1], [(1, 2)], (2, 1, 1, 0))
    """

    def __init__(self, pool: Pool, block_size: int) -> None:
        self.pool, self.block_size = pool, block_size
        self.blocks: list[int] = []
        self.held = 0
        self._keys: list[bytes] = []  # of the blocks known to be full, from the first on

    def missing(self, tokens: int) -> int:
        """Return how many blocks ``reserve(tokens)`` would take."""
        return -(-tokens // self.block_size) - len(self.blocks) + self._writes_shared(tokens)

    def _writes_shared(self, tokens: int) -> bool:
        """Return True if new tokens would go into a shared block: the one after the last full block, after a fork."""
        at = self.held // self.block_size
        return tokens > self.held and at < len(self.blocks) and self.pool.holders(self.blocks[at]) > 1

    def reserve(self, tokens: int) -> list[tuple[int, int]]:
        """Make room for the first ``tokens`` tokens in blocks that may be written.

        Returns (from, to) for a shared block whose content must be copied before the new tokens are written. Raises
        BlockError when the pool has too few blocks; ask ``missing`` first.
        """
        copies = []
        if self._writes_shared(tokens):
            at = self.held // self.block_size
            shared, self.blocks[at] = self.blocks[at], self.pool.take()
            copies.append((shared, self.blocks[at]))
            self.pool.drop(shared)
        while len(self.blocks) * self.block_size < tokens:
            self.blocks.append(self.pool.take())
        return copies

    def advance(self, tokens: int) -> None:
        """Count ``tokens`` more as held."""
        self.held += tokens
        assert self.held <= len(self.blocks) * self.block_size, "a token was written past the table's blocks"

    def trim(self) -> None:
        """Give back blocks without tokens, which were reserved for rejected guesses."""
        while len(self.blocks) * self.block_size - self.block_size >= self.held and self.blocks:
            self.pool.drop(self.blocks.pop())

    def find_prefix(self, tokens: Sequence[int]) -> list[int]:
        """Return blocks of the pool that hold the start of ``tokens``.

        The last token is never among them: it must go through the model to give the logits of the next one.
        """
        pool, size = cast(PrefixPool, self.pool), self.block_size
        found: list[int] = []
        key = b""
        for start in range(0, (len(tokens) - 1) // size * size, size):
            piece = tokens[start : start + size]
            key = chain(key, piece)
            block = pool.find(key, piece)
            if block is None:
                break
            found.append(block)
        return found

    def adopt(self, blocks: Sequence[int], tokens: Sequence[int]) -> None:
        """Start the table with blocks that ``find_prefix`` found for ``tokens``."""
        assert not self.blocks, "only an empty table can begin with found blocks"
        for at, block in enumerate(blocks):
            self.pool.share(block)
            self._next_key(tokens[at * self.block_size : (at + 1) * self.block_size])
        self.blocks = list(blocks)
        self.held = len(blocks) * self.block_size

    def publish(self, tokens: Sequence[int], upto: int) -> None:
        """Register the full blocks among the first ``upto`` tokens, so that other requests find them."""
        pool, size = cast(PrefixPool, self.pool), self.block_size
        while (len(self._keys) + 1) * size <= min(upto, self.held):
            at = len(self._keys)
            piece = tokens[at * size : (at + 1) * size]
            pool.publish(self.blocks[at], self._next_key(piece), piece)

    def _next_key(self, piece: Sequence[int]) -> bytes:
        self._keys.append(chain(self._keys[-1] if self._keys else b"", piece))
        return self._keys[-1]

    def fork(self) -> BlockTable:
        """Return the table of a second sequence with the same past, which shares all blocks."""
        self.trim()
        twin = BlockTable(self.pool, self.block_size)
        for block in self.blocks:
            self.pool.share(block)
        twin.blocks, twin.held, twin._keys = self.blocks.copy(), self.held, self._keys.copy()
        return twin

    def clear(self) -> None:
        """Give all blocks back, the last first, so that the tail of a chain is reused before its head."""
        while self.blocks:
            self.pool.drop(self.blocks.pop())
        self.held = 0
        self._keys.clear()
