"""The runner: one pass of the model over a ragged batch of single tokens and pieces of prompts.

Reference: Yu et al., "Orca: A Distributed Serving System for Transformer-Based Generative Models", OSDI 2022, sec. 3.2
(selective batching: everything but attention sees one long row of tokens).
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from itertools import repeat
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from mlsys_labkit.lm.model import LanguageModel, rotary_frequencies
from mlsys_labkit.serving.attention import Ints, groups_of, order_of, paged_attention
from mlsys_labkit.serving.cache import Memory, PagedCache
from mlsys_labkit.serving.packed import linear


class Chunk(NamedTuple):
    """One sequence's part of a batch.

    Attributes:
        tokens: the new ones.
        past: tokens before them, whose keys and values are in the cache.
        blocks: the sequence's block table, with room for the new tokens.
        logits: number of the last new tokens whose logits are wanted.
    """

    tokens: Sequence[int]
    past: int
    blocks: Sequence[int]
    logits: int


class ModelRunner(Protocol):
    """The interface between the engine and a model; ``Runner`` implements it, and so do stubs."""

    context: int
    vocabulary: int

    @property
    def cache(self) -> Memory: ...
    def run(self, chunks: Sequence[Chunk]) -> Tensor: ...


class Runner:
    """A model with its pages.

    Args:
        model: its weights are read here, once.
        cache: pages of the model's shape.
        packed: on a CPU in float32, copy the weights into the order of the CPU's kernels. This doubles the memory and
            saves a third of a decode step's time. Elsewhere the weights are used in place.
        kernel: True computes decodes by the Triton kernel; None: on a GPU, where Triton is installed.

    Example:
        >>> from mlsys_labkit import lm
        >>> model, tokenizer = lm.load()
        >>> runner = Runner(model, PagedCache(model.config, blocks=8))
        >>> first = runner.run([Chunk((5, 6, 7), 0, (3,), 1), Chunk((8,) * 20, 0, (0, 2), 1)])
        >>> torch.allclose(first[0], model(torch.tensor([[5, 6, 7]]))[0, -1], atol=1e-4)
        True
    """

    def __init__(
        self, model: LanguageModel, cache: PagedCache, packed: bool = True, kernel: bool | None = None
    ) -> None:
        self.config, self.cache = model.config, cache
        self.context, self.vocabulary = model.config.context, model.config.vocabulary
        body = cast(Any, model.model)
        self._embed = body.embed_tokens
        self._layers = [_Layer(layer, packed) for layer in body.layers]
        self._head = linear([model.lm_head], packed, body.norm)
        frequencies = rotary_frequencies(model.config, cache.pages.device)
        self._frequencies = torch.cat([-frequencies, frequencies])
        self._kernel = cache.pages.is_cuda and find_spec("triton") is not None if kernel is None else kernel

    @torch.inference_mode()
    def run(self, chunks: Sequence[Chunk]) -> Tensor:
        """Write the chunks' keys and values to the cache and return logits [wanted, vocabulary], ordered by chunk."""
        config, cache = self.config, self.cache
        batch = _Batch(chunks, cache.block_size, cache.pages.device)
        groups = groups_of(batch.counts, batch.pasts, batch.tables, cache.pages[0], config.heads, self._kernel)
        x = cast(Tensor, self._embed(batch.tokens))
        angles = torch.outer(batch.positions.float(), self._frequencies)[:, None]
        cosine, sine = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        turned = config.heads + config.kv_heads
        for number, layer in enumerate(self._layers):
            heads = layer.queries_keys_values(x).view(len(x), -1, config.head_width)
            _rotate_in_place(heads[:, :turned], cosine, sine)
            page = cache.write(number, batch.blocks, batch.slots, heads[:, config.heads :])
            x += layer.output(paged_attention(heads[:, : config.heads], page, groups))
            gate, up = layer.gate_up(x).chunk(2, dim=1)
            x += layer.down(functional.silu(gate).mul_(up))
        return self._head(x.index_select(0, batch.wanted))


def _rotate_in_place(x: Tensor, cosine: Tensor, sine: Tensor) -> None:
    """Turn the pairs (i, i + half) of x [token, head, head width]; ``sine`` is that of the negative angle for i < half.

    The model's ``rotate`` does the same in eight operators. Here there are three.
    """
    partner = x.roll(x.shape[-1] // 2, dims=-1)
    x.mul_(cosine).addcmul_(partner, sine)


class _Layer:
    """The matrix products of one layer; products of the same input are joined, and take it before it is normalised."""

    def __init__(self, layer: Any, packed: bool) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        projections = [attention.q_proj, attention.k_proj, attention.v_proj]
        self.queries_keys_values = linear(projections, packed, layer.input_layernorm)
        self.output = linear([attention.o_proj], packed)
        self.gate_up = linear([mlp.gate_proj, mlp.up_proj], packed, layer.post_attention_layernorm)
        self.down = linear([mlp.down_proj], packed)


class _Batch:
    """Index tensors of a ragged batch, made once per pass; the rows are the chunks' tokens, sorted for attention."""

    def __init__(self, chunks: Sequence[Chunk], block_size: int, device: torch.device) -> None:
        counts = np.array([len(chunk.tokens) for chunk in chunks])
        pasts = np.array([chunk.past for chunk in chunks])
        order = order_of(counts, pasts)
        self.counts, self.pasts = counts[order], pasts[order]
        self.tables = _padded([chunks[at].blocks for at in order])
        ends = np.cumsum(self.counts)
        positions = np.arange(ends[-1]) + np.repeat(self.pasts + self.counts - ends, self.counts)
        place, slots = np.divmod(positions, block_size)
        blocks = self.tables[np.repeat(np.arange(len(chunks)), self.counts), place]
        wanted = np.array([chunk.logits for chunk in chunks])
        last = np.empty_like(ends)
        last[order] = ends  # of each chunk, in the order they came
        rows = np.arange(wanted.sum()) + np.repeat(last - np.cumsum(wanted), wanted)
        self.tokens = torch.tensor([token for at in order for token in chunks[at].tokens], device=device)
        self.positions, self.blocks, self.slots, self.wanted = (
            torch.from_numpy(each).to(device) for each in (positions, blocks, slots, rows)
        )


def _padded(tables: list[Sequence[int]]) -> Ints:
    """Return block tables as one array, padded with block 0, which is read and masked."""
    widest = max(map(len, tables))
    return np.array([[*table, *repeat(0, widest - len(table))] for table in tables])
