"""A decoder-only transformer in the shapes of today's models: RMSNorm, RoPE, grouped-query attention, SwiGLU.

The parameters carry the names of a Llama checkpoint, so that its tensors load as they are.

Reference: Zhang and Sennrich, "Root Mean Square Layer Normalization", arXiv:1910.07467; Su et al., "RoFormer",
arXiv:2104.09864; Ainslie et al., "GQA", arXiv:2305.13245; Shazeer, "GLU Variants", arXiv:2002.05202.
"""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from mlsys_labkit.lm.cache import KVCache
from mlsys_labkit.lm.config import Config
from mlsys_labkit.lm.errors import ContextError


class RMSNorm(nn.Module):
    """Normalisation by the root mean square of the last dimension, in float32, with a learnt scale."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        square = x.float().pow(2).mean(-1, keepdim=True)
        return self.weight * (x.float() * torch.rsqrt(square + self.epsilon)).to(x.dtype)


def rotary_frequencies(config: Config, device: torch.device) -> Tensor:
    """Return the radians per position [head width / 2] by which RoPE turns each pair (i, i + half)."""
    exponent = torch.arange(0, config.head_width, 2, device=device) / config.head_width
    frequencies = config.rope_base**-exponent
    if scaling := config.rope_scaling:
        turns = scaling.original_context * frequencies / (2 * math.pi)
        kept = ((turns - scaling.low) / (scaling.high - scaling.low)).clamp(0, 1)
        frequencies = frequencies * (kept + (1 - kept) / scaling.factor)
    return frequencies


def rotary_angles(config: Config, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Return cosines and sines [positions, head width] by which RoPE turns the pairs (i, i + half)."""
    angles = torch.outer(positions.float(), rotary_frequencies(config, positions.device))
    return torch.cat([angles.cos()] * 2, dim=-1), torch.cat([angles.sin()] * 2, dim=-1)


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Turn the pairs of x [..., positions, head width] by the positions' angles."""
    first, second = x.chunk(2, dim=-1)
    return (x * cosine + torch.cat([-second, first], dim=-1) * sine).to(x.dtype)


class Attention(nn.Module):
    """Grouped-query attention: H query heads, each group of H/K of them over one key-value head."""

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__()
        self.config, self.layer = config, layer
        query, shared = config.heads * config.head_width, config.kv_heads * config.head_width
        self.q_proj = nn.Linear(config.width, query, bias=False)
        self.k_proj = nn.Linear(config.width, shared, bias=False)
        self.v_proj = nn.Linear(config.width, shared, bias=False)
        self.o_proj = nn.Linear(query, config.width, bias=False)

    def forward(self, x: Tensor, angles: tuple[Tensor, Tensor], cache: KVCache | None) -> Tensor:
        batch, new, _ = x.shape

        def heads(projection: nn.Module) -> Tensor:
            return cast(Tensor, projection(x)).view(batch, new, -1, self.config.head_width).transpose(1, 2)

        queries, keys = rotate(heads(self.q_proj), *angles), rotate(heads(self.k_proj), *angles)
        values = heads(self.v_proj)
        if cache is not None:
            keys, values = cache.append(self.layer, keys, values)
        mixed = functional.scaled_dot_product_attention(
            queries,
            keys,
            values,
            _causal_mask(new, keys.shape[2], x.device),
            is_causal=new == keys.shape[2],
            enable_gqa=True,
        )
        return cast(Tensor, self.o_proj(mixed.transpose(1, 2).reshape(batch, new, -1)))


def _causal_mask(new: int, total: int, device: torch.device) -> Tensor | None:
    """Return the positions of ``total`` that each of the last ``new`` attends to; None if the fused kernel masks."""
    if new in (1, total):
        return None
    return torch.ones(new, total, dtype=torch.bool, device=device).tril(total - new)


class MLP(nn.Module):
    """SwiGLU: down(silu(gate(x)) · up(x))."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.width, config.hidden, bias=False)
        self.up_proj = nn.Linear(config.width, config.hidden, bias=False)
        self.down_proj = nn.Linear(config.hidden, config.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x)))


class Layer(nn.Module):
    """Attention, then the MLP, each on normalised input and added to its input."""

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.width, config.norm_epsilon)
        self.self_attn = Attention(config, layer)
        self.post_attention_layernorm = RMSNorm(config.width, config.norm_epsilon)
        self.mlp = MLP(config)

    def forward(self, x: Tensor, angles: tuple[Tensor, Tensor], cache: KVCache | None) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), angles, cache)
        return cast(Tensor, x + self.mlp(self.post_attention_layernorm(x)))


class Body(nn.Module):
    """Embedding, layers, last norm: everything but the output layer."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocabulary, config.width)
        self.layers = nn.ModuleList(Layer(config, layer) for layer in range(config.layers))
        self.norm = RMSNorm(config.width, config.norm_epsilon)


class LanguageModel(nn.Module):
    """A decoder-only transformer: logits of the next token for every position.

    Example:
        >>> config = Config(vocabulary=50, width=16, layers=2, heads=4, kv_heads=2, head_width=4, hidden=32)
        >>> model = LanguageModel(config)
        >>> model(torch.tensor([[1, 2, 3]])).shape
        torch.Size([1, 3, 50])
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.model = Body(config)
        self.lm_head = nn.Linear(config.width, config.vocabulary, bias=False)
        if config.tied:
            self.lm_head.weight = self.model.embed_tokens.weight

    def forward(self, tokens: Tensor, cache: KVCache | None = None) -> Tensor:
        """Return logits [sequence, position, vocabulary] for integers ``tokens`` [sequence, position].

        With a cache, ``tokens`` follow those in the cache and are added to it. Raises ContextError for no tokens, or
        for more than the model's context or the cache has room for.
        """
        past = cache.length if cache is not None else 0
        if tokens.ndim != 2 or not tokens.numel():
            raise ContextError(
                f"tokens must have the shape [sequences, positions], both from 1 up; got {list(tokens.shape)}"
            )
        if past + tokens.shape[1] > self.config.context:
            raise ContextError(
                f"the model has {self.config.context} positions and got {past + tokens.shape[1]}; give it fewer tokens"
            )
        positions = torch.arange(past, past + tokens.shape[1], device=tokens.device)
        cosine, sine = rotary_angles(self.config, positions)
        x = self.model.embed_tokens(tokens)
        angles = cosine.to(x.dtype), sine.to(x.dtype)
        for layer in self.model.layers:
            x = layer(x, angles, cache)
        if cache is not None:
            cache.advance(tokens.shape[1])
        return cast(Tensor, self.lm_head(self.model.norm(x)))
