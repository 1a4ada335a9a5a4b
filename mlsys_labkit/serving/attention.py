"""Attention over pages: the queries of a ragged batch, each over the blocks of its own sequence.

Reference: Kwon et al., "PagedAttention", arXiv:2309.06180, sec. 4.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

Ints = NDArray[np.int64]


# One more group costs a layer about ten calls, which take about as long as reading this many padded slots.
_WORTH_A_GROUP_SLOTS = 800
_PROGRAMS = 264  # two for each multiprocessor of a large GPU


@dataclass(frozen=True)
class Group:
    """Sequences of a batch that are padded to equal numbers of new tokens and of blocks.

    Attributes:
        start, end: their rows of the batch.
        queries: new tokens per sequence, padding included.
        pieces: [2 · sequences · key-value heads · blocks] numbers of (block, head) pieces: all keys, then all values.
        gathered: [pieces, slots · head width], reused by each layer because fresh memory would cost page faults.
        mask: [sequences, 1, queries per key-value head, slots], 0 where a query may look and -inf elsewhere.
        spread: [sequences · queries], a row of the batch for each padded query; None where nothing is padded.
        gather: [end - start], the padded query of each row; None where nothing is padded.
        decodes: block tables [sequence, blocks] and lengths [sequence], for the kernel, which needs nothing else.
    """

    start: int
    end: int
    queries: int
    pieces: Tensor
    gathered: Tensor
    mask: Tensor
    spread: Tensor | None
    gather: Tensor | None
    decodes: tuple[Tensor, Tensor] | None = None


def order_of(counts: Ints, pasts: Ints) -> Ints:
    """Return the order of sequences in which ``groups_of`` pads the least."""
    return np.lexsort((counts + pasts, np.frexp(counts)[1]))


def groups_of(counts: Ints, pasts: Ints, tables: Ints, page: Tensor, heads: int, kernel: bool = False) -> list[Group]:
    """Cut a batch of sequences, sorted by ``order_of``, into groups.

    Numbers of new tokens in one group have the same number of bits, so that queries are padded to less than twice
    their number: a step has one group of decodes and a few of prompts. A group is cut again where that saves reading
    many padded slots.

    Args:
        counts, pasts: [sequence] new tokens, and tokens before them.
        tables: [sequence, blocks] block tables, padded.
        page: one layer of the cache, [block, 2 · key-value heads, slot, head width].
        heads: query heads.
        kernel: the Triton kernel computes the decodes.
    """
    bits = np.frexp(counts)[1]
    cuts = [0, *(np.flatnonzero(np.diff(bits)) + 1).tolist(), len(counts)]
    totals = counts + pasts
    spans = [part for first, last in pairwise(cuts) for part in _worthwhile(totals, first, last)]
    starts = np.concatenate(([0], np.cumsum(counts)))
    return [
        _decodes(totals, tables, starts, span, page.device)
        if kernel and counts[span[1] - 1] == 1
        else _group_of(counts, pasts, tables, starts, slice(*span), page=page, heads=heads)
        for span in spans
    ]


def _worthwhile(totals: Ints, first: int, last: int) -> list[tuple[int, int]]:
    """Cut sequences first..last, sorted by length, where most padding is saved, while the saving is worth a group."""
    saved = np.arange(last - first) * (totals[last - 1] - np.concatenate(([0], totals[first : last - 1])))
    cut = int(saved.argmax())
    if saved[cut] < _WORTH_A_GROUP_SLOTS:
        return [(first, last)]
    return [*_worthwhile(totals, first, first + cut), *_worthwhile(totals, first + cut, last)]


def _group_of(
    counts: Ints, pasts: Ints, tables: Ints, starts: Ints, inside: slice, *, page: Tensor, heads: int
) -> Group:
    count, past = counts[inside], pasts[inside]
    both, block_size = page.shape[1], page.shape[2]
    queries, pages = int(count.max()), -(-int((count + past).max()) // block_size)
    column = np.minimum(np.arange(queries), count[:, None] - 1)  # padding repeats a sequence's last query
    visible = np.arange(pages * block_size) <= (past[:, None] + column)[:, :, None]
    mask = np.where(visible, np.float32(0), np.float32(-np.inf))[:, None]
    spread = gather = None
    if int(count.min()) < queries:
        spread = _tensor((starts[inside][:, None] + column).ravel(), page.device)
        gather = _tensor(np.flatnonzero(np.arange(queries) < count[:, None]), page.device)
    # [2, sequence, key-value head, block]
    pieces = tables[inside, :pages][None, :, None] * both + np.arange(both).reshape(2, 1, -1, 1)
    return Group(
        int(starts[inside.start]),
        int(starts[inside.stop]),
        queries,
        _tensor(pieces.ravel(), page.device),
        page.new_empty(pieces.size, block_size * page.shape[3]),
        _tensor(np.tile(mask, (1, 1, 2 * heads // both, 1)), page.device).to(page.dtype),
        spread,
        gather,
    )


def _decodes(totals: Ints, tables: Ints, starts: Ints, span: tuple[int, int], device: torch.device) -> Group:
    inside, nothing = slice(*span), torch.empty(0, device=device)
    pair = _tensor(tables[inside].copy(), device), _tensor(totals[inside], device)
    return Group(int(starts[span[0]]), int(starts[span[1]]), 1, nothing, nothing, nothing, None, None, pair)


def paged_attention(queries: Tensor, page: Tensor, groups: list[Group]) -> Tensor:
    """Return mixed values [token, heads · head width] of ``queries`` [token, heads, head width].

    ``page`` [block, 2 · key-value heads, slot, head width] is one layer of the cache, the new tokens in it already. The
    queries that share a key-value head become further queries of one head, so keys and values are never repeated.
    """
    mixed = [_group(queries, page, group) for group in groups]
    return mixed[0] if len(mixed) == 1 else torch.cat(mixed)


def _group(queries: Tensor, page: Tensor, group: Group) -> Tensor:
    if group.decodes:
        from mlsys_labkit.serving.decode_kernel import decode

        tables, lengths = group.decodes
        programs = len(tables) * page.shape[1] // 2
        splits = max(1, min(_PROGRAMS // programs, tables.shape[1] * page.shape[2] // 256))
        return decode(queries[group.start : group.end], page, tables, lengths, splits)
    sequences, kv_heads, width = group.mask.shape[0], page.shape[1] // 2, page.shape[3]
    rows = queries[group.start : group.end] if group.spread is None else queries.index_select(0, group.spread)
    q = rows.view(sequences, group.queries, kv_heads, -1, width).permute(0, 2, 3, 1, 4)
    torch.index_select(page.view(-1, page.shape[2] * width), 0, group.pieces, out=group.gathered)
    keys, values = group.gathered.view(2, sequences, kv_heads, -1, width)
    out = functional.scaled_dot_product_attention(q.reshape(sequences, kv_heads, -1, width), keys, values, group.mask)
    out = out.view(sequences, kv_heads, -1, group.queries, width).permute(0, 3, 1, 2, 4)
    out = out.reshape(sequences * group.queries, -1)
    return out if group.gather is None else out.index_select(0, group.gather)


def _tensor(values: NDArray[Any], device: torch.device) -> Tensor:
    return torch.from_numpy(values).to(device)
