"""A DeepSeek-V3 in plain PyTorch: latent attention, a dense layer, experts that are equally popular, a shared one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from mlsys_labkit.lm.model import RMSNorm, rotate
from mlsys_labkit.planner import LatentAttention, Transformer


def linear(width: int, to: int) -> nn.Linear:
    return nn.Linear(width, to, bias=False)


class Latent(nn.Module):
    def __init__(self, model: Transformer, sizes: LatentAttention) -> None:
        super().__init__()
        self.heads, self.sizes = model.heads, sizes
        self.query_down, self.query_norm = linear(model.width, sizes.query_rank), RMSNorm(sizes.query_rank, 1e-6)
        self.query_up = linear(sizes.query_rank, model.query_width)
        self.down, self.norm = linear(model.width, sizes.cached_width), RMSNorm(sizes.kv_rank, 1e-6)
        self.up = linear(sizes.kv_rank, model.heads * (sizes.no_rope_width + sizes.value_width))
        self.output = linear(model.value_width, model.width)

    def forward(self, x: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
        batch, length, _ = x.shape
        plain, turned, value = self.sizes.no_rope_width, self.sizes.rope_width, self.sizes.value_width

        def heads(found: Tensor, width: int) -> Tensor:
            return found.view(batch, length, -1, width).transpose(1, 2)

        queries = heads(self.query_up(self.query_norm(self.query_down(x))), plain + turned)
        queries = torch.cat([queries[..., :plain], rotate(queries[..., plain:], *angles)], -1)
        short, shared = self.down(x).split([self.sizes.kv_rank, turned], -1)
        both = heads(self.up(self.norm(short)), plain + value)
        shared = rotate(shared.unsqueeze(1), *angles).expand(-1, self.heads, -1, -1)
        keys = torch.cat([both[..., :plain], shared], -1)
        values = both[..., plain:].contiguous()
        mixed = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        found: Tensor = self.output(mixed.transpose(1, 2).reshape(batch, length, -1))
        return found


class Gated(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate, self.up, self.down = linear(width, hidden), linear(width, hidden), linear(hidden, width)

    def forward(self, x: Tensor) -> Any:
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Experts(nn.Module):
    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model, self.router = model, linear(model.width, model.experts)
        self.shared = Gated(model.width, model.shared_experts * model.hidden)
        into = (model.experts, model.width, model.hidden)
        self.gate, self.up = (nn.Parameter(torch.empty(into)) for _ in range(2))
        self.down = nn.Parameter(torch.empty(model.experts, model.hidden, model.width))

    def forward(self, x: Tensor) -> Any:
        rows = x.flatten(0, 1)
        weights, chosen = self.router(rows).float().sigmoid().topk(self.model.active_experts)
        order = chosen.flatten().argsort()
        sent = rows[order // self.model.active_experts].view(self.model.experts, -1, self.model.width)
        found = torch.bmm(functional.silu(torch.bmm(sent, self.gate)) * torch.bmm(sent, self.up), self.down)
        weighted = found.flatten(0, 1) * weights.flatten()[order].to(x.dtype).unsqueeze(1)
        back = weighted[order.argsort()].view(len(rows), self.model.active_experts, -1).sum(1)
        return back.view_as(x) + self.shared(x)


class LatentLayer(nn.Module):
    def __init__(self, model: Transformer, latent: LatentAttention, dense: bool) -> None:
        super().__init__()
        self.first, self.second = RMSNorm(model.width, 1e-6), RMSNorm(model.width, 1e-6)
        self.attention = Latent(model, latent)
        self.mlp = Gated(model.width, model.dense_hidden) if dense else Experts(model)

    def forward(self, x: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
        x = x + self.attention(self.first(x), angles)
        return x + self.mlp(self.second(x))


class LatentModel(nn.Module):
    def __init__(self, model: Transformer) -> None:
        super().__init__()
        assert model.latent
        self.turned = model.latent.rope_width
        self.table = nn.Embedding(model.vocabulary, model.width)
        self.layers = nn.ModuleList(
            LatentLayer(model, model.latent, layer < model.dense_layers) for layer in range(model.layers)
        )
        self.norm, self.head = RMSNorm(model.width, 1e-6), linear(model.width, model.vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.table(tokens)
        angles = torch.outer(torch.arange(tokens.shape[1]).to(x.dtype), torch.ones(self.turned, dtype=x.dtype))
        for layer in self.layers:
            x = layer(x, (angles.cos(), angles.sin()))
        found: Tensor = self.head(self.norm(x))
        return found
