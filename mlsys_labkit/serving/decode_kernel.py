"""Paged attention of decodes as one Triton kernel, which reads keys and values from the pages once.

Reference: Kwon et al., "PagedAttention", arXiv:2309.06180, sec. 4.1; Dao et al., "Flash-Decoding", 2023 (splitting the
past over programs).
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit  # type: ignore[untyped-decorator]
def paged_decode(  # type: ignore[no-untyped-def]
    queries, page, tables, lengths, mixed, sums, scale, table_stride, split_slots,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Compute ``mixed`` [split, sequence, head, width] and its log-sum-exp ``sums`` for one sequence, head and split.

    ROWS pads the GROUP query heads to what tl.dot takes, TILE slots are read at a time.
    """
    sequence, head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    length = tl.load(lengths + sequence)
    first = split * split_slots
    last = tl.minimum(first + split_slots, length)
    row, column, slot = tl.arange(0, ROWS), tl.arange(0, WIDTH), tl.arange(0, TILE)
    heads = (sequence * KV_HEADS + head) * GROUP + row
    q = tl.load(queries + heads[:, None] * WIDTH + column, mask=row[:, None] < GROUP, other=0.0)
    highest = tl.full((ROWS,), -1e30, tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    sum_of_values = tl.zeros((ROWS, WIDTH), tl.float32)
    for start in range(first, last, TILE):
        place = start + slot
        inside = place < last
        block = tl.load(tables + sequence * table_stride + place // BLOCK_SIZE, mask=inside, other=0)
        piece = (block * 2 * KV_HEADS + head) * BLOCK_SIZE + place % BLOCK_SIZE
        at = piece[:, None] * WIDTH + column
        k = tl.load(page + at, mask=inside[:, None], other=0.0)
        v = tl.load(page + at + KV_HEADS * BLOCK_SIZE * WIDTH, mask=inside[:, None], other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        scores = tl.where(inside[None, :], scores, -float("inf"))
        peak = tl.maximum(highest, tl.max(scores, axis=1))
        powers = tl.exp(scores - peak[:, None])
        fade = tl.exp(highest - peak)
        total = total * fade + tl.sum(powers, axis=1)
        sum_of_values = sum_of_values * fade[:, None] + tl.dot(powers.to(v.dtype), v, input_precision="ieee")
        highest = peak
    out = split * tl.num_programs(0) * KV_HEADS * GROUP + heads
    safe = tl.where(total > 0, total, 1.0)  # a split behind a short sequence's end has nothing to add
    tl.store(mixed + out[:, None] * WIDTH + column, sum_of_values / safe[:, None], mask=row[:, None] < GROUP)
    tl.store(sums + out, tl.where(total > 0, highest + tl.log(safe), -1e30), mask=row < GROUP)


def decode(queries: Tensor, page: Tensor, tables: Tensor, lengths: Tensor, splits: int = 1, **launch: Any) -> Tensor:
    """Return mixed values [sequence, heads · head width] of one query per sequence, over the pages of one layer.

    Args:
        queries: [sequence, heads, head width].
        page: [block, 2 · key-value heads, slot, head width].
        tables: [sequence, blocks], int64; entries after a sequence's own blocks are not read.
        lengths: [sequence] tokens that each query sees, itself included.
        splits: programs that share one sequence and head.
        launch: num_warps, num_stages, TILE: how the kernel is compiled.

    Example:
        >>> import mlsys_labkit.triton_trace    # so that it runs where there is no GPU
        >>> page, tables = torch.rand(3, 2, 16, 16), torch.tensor([[2, 0]])
        >>> mixed = decode(torch.rand(1, 1, 16), page, tables, torch.tensor([1]))
        >>> torch.allclose(mixed[0], page[2, 1, 0])
        True
    """
    sequences, heads, width = queries.shape
    kv_heads, block_size = page.shape[1] // 2, page.shape[2]
    mixed = torch.empty(splits, sequences, heads, width, device=page.device)
    sums = torch.empty(splits, sequences, heads, device=page.device)
    tile = launch.pop("TILE", 64)
    slots = -(-tables.shape[1] * block_size // (splits * tile)) * tile  # a split ends where a tile does
    grid = (sequences, kv_heads, splits)
    paged_decode[grid](
        queries.contiguous(), page, tables, lengths, mixed, sums, width**-0.5, tables.stride(0), slots,
        KV_HEADS=kv_heads, GROUP=heads // kv_heads, ROWS=max(16, triton.next_power_of_2(heads // kv_heads)),
        WIDTH=width, BLOCK_SIZE=block_size, TILE=tile, **launch,
    )  # fmt: skip
    shares = sums.softmax(0)[..., None] if splits > 1 else None
    joined = mixed[0] if shares is None else (mixed * shares).sum(0)
    return joined.to(queries.dtype).flatten(1)
