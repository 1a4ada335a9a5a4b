"""Paged attention of decodes as one Triton kernel, which reads keys and values from the pages once.

Reference: Kwon et al., "PagedAttention", arXiv:2309.06180, sec. 4.1; Dao et al., "Flash-Decoding", 2023 (splitting the
past over programs).
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit  # type: ignore[untyped-decorator]
def add_tile(q, k, v, inside, factor, highest, total, mixed, MASK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Add one tile of keys and values to a running softmax in powers of two."""
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * factor
    if MASK:
        scores = tl.where(inside[None, :], scores, -float("inf"))
    peak = tl.maximum(highest, tl.max(scores, axis=1))
    powers, fade = tl.exp2(scores - peak[:, None]), tl.exp2(highest - peak)
    total = total * fade + tl.sum(powers, axis=1)
    return peak, total, tl.dot(powers.to(v.dtype), v, mixed * fade[:, None], input_precision="ieee")


@triton.jit  # type: ignore[untyped-decorator]
def paged_decode(  # type: ignore[no-untyped-def]
    queries, page, tables, lengths, mixed, sums, factor, table_stride, split_slots,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Compute ``mixed`` [split, sequence, head, width] and its log-sum-exp ``sums`` for one sequence, head and split.

    ROWS pads the GROUP query heads to what tl.dot takes, TILE slots are read at a time. ``factor`` is the scale of the
    scores times log2(e). With EARLY, block numbers are loaded one tile ahead, so that the copies of a tile can start
    while others are computed, and only a split's last tile has masks.
    """
    sequence, head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first = split * split_slots
    last = tl.minimum(first + split_slots, tl.load(lengths + sequence).to(tl.int32))
    whole = first
    if EARLY:
        whole += tl.maximum(last - first, 0) // TILE * TILE
    row, column, slot = tl.arange(0, ROWS), tl.arange(0, WIDTH), tl.arange(0, TILE)
    heads = (sequence * KV_HEADS + head) * GROUP + row
    q = tl.load(queries + heads[:, None] * WIDTH + column, mask=row[:, None] < GROUP, other=0.0)
    highest = tl.full((ROWS,), -1e30, tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    values = tl.zeros((ROWS, WIDTH), tl.float32)
    table = tables + sequence * table_stride
    half: tl.constexpr = KV_HEADS * BLOCK_SIZE * WIDTH  # a block's keys; its values follow
    shift: tl.constexpr = (
        TILE % BLOCK_SIZE != 0
    )  # else every tile begins with a block, and `within` is the same for all
    if EARLY:
        block = tl.load(table + (first + slot) // BLOCK_SIZE, mask=first + slot < last, other=0)
        for start in range(first, whole, TILE):
            within = (head * BLOCK_SIZE + (start * shift + slot) % BLOCK_SIZE)[:, None] * WIDTH + column
            at = page + (block.to(tl.int64) * 2 * half)[:, None] + within
            k, v = tl.load(at), tl.load(at + half)
            place = start + TILE + slot
            block = tl.load(table + place // BLOCK_SIZE, mask=place < last, other=0)
            highest, total, values = add_tile(q, k, v, slot, factor, highest, total, values, False)
    for start in range(whole, last, TILE):
        inside = start + slot < last
        block = tl.load(table + (start + slot) // BLOCK_SIZE, mask=inside, other=0)
        within = (head * BLOCK_SIZE + (start * shift + slot) % BLOCK_SIZE)[:, None] * WIDTH + column
        at = page + (block.to(tl.int64) * 2 * half)[:, None] + within
        k = tl.load(at, mask=inside[:, None], other=0.0)
        v = tl.load(at + half, mask=inside[:, None], other=0.0)
        highest, total, values = add_tile(q, k, v, inside, factor, highest, total, values, True)
    out = split * tl.num_programs(0) * KV_HEADS * GROUP + heads
    safe = tl.where(total > 0, total, 1.0)  # a split behind a short sequence's end has nothing to add
    answer = (values / safe[:, None]).to(mixed.dtype.element_ty)
    tl.store(mixed + out[:, None] * WIDTH + column, answer, mask=row[:, None] < GROUP)
    log_sums = tl.where(total > 0, (highest + tl.log2(safe)) * 0.6931471805599453, -1e30)
    tl.store(sums + out, log_sums, mask=row < GROUP)


def decode(queries: Tensor, page: Tensor, tables: Tensor, lengths: Tensor, splits: int = 1, **launch: Any) -> Tensor:
    """Return mixed values [sequence, heads · head width] of one query per sequence, over the pages of one layer.

    Args:
        queries: [sequence, heads, head width].
        page: [block, 2 · key-value heads, slot, head width].
        tables: [sequence, blocks], int64; entries after a sequence's own blocks are not read.
        lengths: [sequence] tokens that each query sees, itself included.
        splits: programs that share one sequence and head.
        launch: num_warps, num_stages, TILE: how the kernel is compiled; by default what was
            fastest on an H100 in half precision, and in FP32 what spills no register under triton 3.6 and 3.7.

    Example:
        >>> import mlsys_labkit.triton_trace    # so that it runs where there is no GPU
        >>> page, tables = torch.rand(3, 2, 16, 16), torch.tensor([[2, 0]])
        >>> mixed = decode(torch.rand(1, 1, 16), page, tables, torch.tensor([1]))
        >>> torch.allclose(mixed[0], page[2, 1, 0])
        True
    """
    sequences, heads, width = queries.shape
    kv_heads, block_size = page.shape[1] // 2, page.shape[2]
    kind = queries.dtype if splits == 1 else torch.float32
    mixed = torch.empty(splits, sequences, heads, width, device=page.device, dtype=kind)
    sums = torch.empty(splits, sequences, heads, device=page.device)
    early = page.element_size() == 2  # in FP32 the tiles ahead and the products in full precision exceed the registers
    launch = {"TILE": 32, "num_warps": 1 if early else 8, "num_stages": 3} | launch
    tile = launch.pop("TILE")
    slots = -(-tables.shape[1] * block_size // (splits * tile)) * tile  # a split ends where a tile does
    grid, factor = (sequences, kv_heads, splits), width**-0.5 * math.log2(math.e)
    paged_decode[grid](
        queries.contiguous(), page, tables, lengths, mixed, sums, factor, tables.stride(0), slots,
        KV_HEADS=kv_heads, GROUP=heads // kv_heads, ROWS=max(16, triton.next_power_of_2(heads // kv_heads)),
        WIDTH=width, BLOCK_SIZE=block_size, TILE=tile, EARLY=early, **launch,
    )  # fmt: skip
    shares = sums.softmax(0)[..., None] if splits > 1 else None
    joined = mixed[0] if shares is None else (mixed * shares).sum(0)
    return joined.to(queries.dtype).flatten(1)
