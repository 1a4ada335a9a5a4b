"""Tests of blocks and tables: counting, reuse by content, copy on write, and the order of eviction."""

from __future__ import annotations

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mlsys_labkit.serving import BlockError, BlockPool, BlockTable, chain


def test_chain_key_covers_all_tokens_before() -> None:
    first = chain(b"", [1, 2])
    assert chain(first, [3, 4]) != chain(chain(b"", [2, 1]), [3, 4])
    assert chain(b"", [1, 2]) == first
    assert chain(b"", [1, 2, 3]) != chain(b"", [1, 23])


def test_blocks_are_reused_least_recently_freed_first() -> None:
    pool = BlockPool(4)
    blocks = [pool.take() for _ in range(4)]
    assert blocks == [0, 1, 2, 3]
    for block in (2, 0, 3):
        pool.publish(block, bytes([block]), [block])
        pool.drop(block)
    pool.share(2)  # found again, and given back: now the most recent
    pool.drop(2)
    assert pool.cached == (0, 3, 2)
    assert [pool.take(), pool.take()] == [0, 3]
    assert pool.find(b"\x00", [0]) is None, "handed out, so its content is gone"
    assert pool.find(b"\x02", [2]) == 2


def test_find_ignores_equal_keys_of_different_tokens() -> None:
    pool = BlockPool(2)
    block = pool.take()
    pool.publish(block, b"collision", [1, 2])
    assert pool.find(b"collision", [3, 4]) is None
    assert pool.find(b"collision", [1, 2]) == block


def test_publish_keeps_the_first_of_two_equal_blocks() -> None:
    pool = BlockPool(2)
    first, second = pool.take(), pool.take()
    pool.publish(first, b"key", [1])
    pool.publish(second, b"key", [1])
    pool.drop(second)
    assert pool.cached == ()
    assert pool.find(b"key", [1]) == first


def test_pool_misuse_raises_block_error() -> None:
    pool = BlockPool(1)
    with pytest.raises(BlockError, match="block 0 is free already"):
        pool.drop(0)
    with pytest.raises(BlockError, match="block 0 is free and holds nothing"):
        pool.share(0)
    with pytest.raises(BlockError, match="only a held block"):
        pool.publish(0, b"", [1])
    pool.take()
    with pytest.raises(BlockError, match="all 1 blocks are held"):
        pool.take()
    with pytest.raises(BlockError, match="at least one block"):
        BlockPool(0)


def test_find_prefix_leaves_out_the_last_token() -> None:
    pool = BlockPool(4)
    table = BlockTable(pool, block_size=2)
    text = [1, 2, 3, 4]
    table.reserve(4)
    table.advance(4)
    table.publish(text, 4)
    assert BlockTable(pool, 2).find_prefix(text) == table.blocks[:1]
    assert BlockTable(pool, 2).find_prefix([*text, 5]) == table.blocks
    assert BlockTable(pool, 2).find_prefix([1, 9, 3, 4, 5]) == []


def test_clear_frees_the_tail_of_a_chain_first() -> None:
    pool = BlockPool(3)
    table = BlockTable(pool, block_size=1)
    table.reserve(3)
    table.advance(3)
    table.publish([7, 8, 9], 3)
    table.clear()
    pool.take()
    assert BlockTable(pool, 1).find_prefix([7, 8, 9, 1]) == [0, 1]


class Tables(RuleBasedStateMachine):
    """Sequences that grow, fork and end, compared with a dictionary of what each slot must hold."""

    def __init__(self) -> None:
        super().__init__()
        self.pool, self.memory = BlockPool(9), {}
        self.texts: list[list[int]] = []
        self.tables: list[BlockTable] = []
        self.written = 0

    @rule()
    def begin(self) -> None:
        self.tables.append(BlockTable(self.pool, 3))
        self.texts.append([])

    @precondition(lambda self: self.tables)
    @rule(which=st.integers(0, 50), tokens=st.integers(1, 5), guesses=st.integers(0, 4))
    def grow(self, which: int, tokens: int, guesses: int) -> None:
        at = which % len(self.tables)
        table, text = self.tables[at], self.texts[at]
        free, needed = self.pool.free, table.missing(table.held + tokens + guesses)
        if needed > free:
            with pytest.raises(BlockError):
                table.reserve(table.held + tokens + guesses)
            table.clear()
            del self.tables[at], self.texts[at]
            return
        for source, target in table.reserve(table.held + tokens + guesses):
            self.memory.update({(target, slot): self.memory.get((source, slot)) for slot in range(3)})
        assert free - self.pool.free == needed
        for place in range(table.held, table.held + tokens):
            self.written += 1
            text.append(self.written)
            self.memory[table.blocks[place // 3], place % 3] = self.written
        table.advance(tokens)
        table.trim()

    @precondition(lambda self: self.tables)
    @rule(which=st.integers(0, 50))
    def fork(self, which: int) -> None:
        at = which % len(self.tables)
        self.tables.append(self.tables[at].fork())
        self.texts.append(self.texts[at].copy())

    @precondition(lambda self: self.tables)
    @rule(which=st.integers(0, 50))
    def end(self, which: int) -> None:
        at = which % len(self.tables)
        self.tables[at].clear()
        del self.tables[at], self.texts[at]

    @invariant()
    def every_slot_holds_its_token(self) -> None:
        for table, text in zip(self.tables, self.texts, strict=True):
            assert [self.memory[table.blocks[at // 3], at % 3] for at in range(len(text))] == text

    @invariant()
    def references_are_the_tables_entries(self) -> None:
        entries = [block for table in self.tables for block in table.blocks]
        assert self.pool.references == tuple(map(entries.count, range(9)))
        assert self.pool.free == self.pool.references.count(0)


TestTables = Tables.TestCase
TestTables.settings = settings(max_examples=60, stateful_step_count=30)
