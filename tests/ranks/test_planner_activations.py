"""The planner's saved tensors of a layer, against what autograd of real modules saves and a published table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional

from mlsys_labkit import lm
from mlsys_labkit.planner import (
    Layout,
    Precision,
    Saved,
    Transformer,
    head_activations,
    input_activations,
    layer_activations,
)
from mlsys_labkit.planner.activations import stage_activations

SINGLE, HALF = Precision.single(), Precision(2, 2, 4)


def saved_bytes(run: Callable[[], Any], weights: Iterable[Tensor]) -> Counter[int]:
    """Count the storages, by size, that autograd keeps for the backward pass of ``run``, without the weights."""
    mine = {weight.untyped_storage()._cdata for weight in weights}
    kept: dict[int, Any] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in mine:
            kept[storage._cdata] = storage  # held, so that no address is reused
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        held = run()
    del held
    return Counter(storage.nbytes() for storage in kept.values())


def planned(rows: Iterable[Saved]) -> Counter[int]:
    return Counter(round(row.bytes) for row in rows)


def total(rows: Iterable[Saved]) -> float:
    return sum(row.bytes for row in rows if "statistics" not in row.name)


# --- the kit's own model, tensor by tensor ---------------------------------------------------------------------------

SHAPES = [
    lm.Config(vocabulary=301, width=64, layers=2, heads=8, kv_heads=2, head_width=12, hidden=114, tied=False),
    lm.Config(vocabulary=77, width=48, layers=3, heads=3, kv_heads=3, head_width=22, hidden=90),  # heads wider than d
]


@pytest.mark.parametrize("config", SHAPES, ids=["grouped", "tied"])
@pytest.mark.parametrize("precision", [SINGLE, HALF], ids=["float32", "bfloat16"])
def test_every_tensor_that_the_kits_model_saves(config: lm.Config, precision: Precision) -> None:
    torch.manual_seed(0)
    model = lm.LanguageModel(config).to(getattr(torch, precision.compute))
    tokens = torch.randint(config.vocabulary, (3, 40))
    targets = torch.randint(config.vocabulary, (3, 40))

    def step() -> Tensor:
        return functional.cross_entropy(model(tokens).float().flatten(0, 1), targets.flatten())

    ours = Transformer.from_config(config)
    layout = Layout(micro_batch=3, global_batch=3, sequence=40, kernels="eager", precision=precision)
    rows = [row for _ in range(config.layers) for row in layer_activations(ours, layout)]
    ends = [*input_activations(ours, layout), *stage_activations(ours, layout), *head_activations(ours, layout)]
    assert saved_bytes(step, list(model.parameters())) - Counter([4]) == planned([*rows, *ends])  # 4: the loss's count


# --- blocks as the papers describe them, without memory ---------------------------------------------------------------


def dropout(x: Tensor) -> Tensor:
    """Apply dropout as on a GPU, where the mask takes one byte per element."""
    return torch.native_dropout(x, 0.1, True)[0]


class GPTBlock(nn.Module):
    """GPT-2's block with dropout, scores kept: Korthikanti et al., fig. 2 and 3."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        b, s, d = x.shape

        def split(y: Tensor) -> Tensor:  # contiguous, as three projections would leave them
            return y.view(b, s, self.heads, -1).transpose(1, 2).contiguous().view(b * self.heads, s, -1)

        q, k, v = (split(part) for part in self.qkv(self.first(x)).chunk(3, dim=-1))
        scores = torch.baddbmm(x.new_empty(b * self.heads, s, s), q, k.transpose(1, 2), beta=0, alpha=0.1)
        mixed = dropout(scores.softmax(-1)) @ v
        mixed = mixed.view(b, self.heads, s, -1).transpose(1, 2).reshape(b, s, d)
        x = x + dropout(self.out(mixed))
        return x + dropout(self.down(functional.gelu(self.up(self.second(x)))))


@pytest.mark.parametrize(("width", "heads", "batch", "length"), [(12288, 96, 1, 2048), (1024, 16, 4, 512)])
def test_every_tensor_that_a_gpt_block_saves(width: int, heads: int, batch: int, length: int) -> None:
    with FakeTensorMode():
        torch.set_default_dtype(torch.bfloat16)
        block = GPTBlock(width, heads)
        torch.set_default_dtype(torch.float32)
        x = torch.empty(batch, length, width, dtype=torch.bfloat16, requires_grad=True)
        found = saved_bytes(lambda: block(x), list(block.parameters()))
    layout = Layout(micro_batch=batch, global_batch=batch, sequence=length, flash=False)
    rows = [row for row in layer_activations(Transformer.gpt(1, width, heads), layout) if "statistics" not in row.name]
    statistics = Counter([2 * batch * length] * 4)  # of two norms; in the input's dtype on a CPU, float32 on a GPU
    assert found == planned(rows) + statistics


class Lean(torch.autograd.Function):
    """A fused kernel that saves only the inputs it is given, and float32 statistics where it has some."""

    @staticmethod
    def forward(ctx: Any, like: Tensor, statistics: int, *inputs: Tensor) -> Tensor:
        extra = [like.new_empty(statistics, dtype=torch.float32)] if statistics else []
        ctx.save_for_backward(*inputs, *extra)
        return torch.empty_like(like)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise NotImplementedError


def test_every_tensor_that_a_llama_block_of_fused_kernels_saves() -> None:
    """A block that saves what each backward needs: fused norms and gates, FlashAttention, RoPE without copies."""
    model = Transformer.named("llama-3-8b")
    b, s, d, q, kv = 2, 4096, model.width, model.query_width, model.kv_width
    with FakeTensorMode():
        make = lambda *shape: torch.empty(shape, dtype=torch.bfloat16)  # noqa: E731
        weights = {name: nn.Parameter(make(*shape)) for name, shape in {
            "q": (q, d), "k": (kv, d), "v": (kv, d), "o": (d, q), "gate": (model.hidden, d), "up": (model.hidden, d),
            "down": (d, model.hidden)}.items()}  # fmt: skip
        x = make(b, s, d).requires_grad_()

        def block() -> Tensor:
            linear = functional.linear
            normed = Lean.apply(x, b * s, x)
            queries, keys, values = (linear(normed, weights[name]) for name in ("q", "k", "v"))
            turned = Lean.apply(queries, 0), Lean.apply(keys, 0)  # RoPE goes back with the angles alone
            mixed = _flash(*turned, values, b * s * model.heads)
            after = x + linear(mixed, weights["o"])
            second = Lean.apply(after, b * s, after)
            gate, up = linear(second, weights["gate"]), linear(second, weights["up"])
            return after + linear(Lean.apply(gate, 0, gate, up), weights["down"])

        found = saved_bytes(block, list(weights.values()))
    layout = Layout(micro_batch=b, global_batch=b, sequence=s)
    assert found == planned(layer_activations(model, layout))


def _flash(queries: Tensor, keys: Tensor, values: Tensor, statistics: int) -> Tensor:
    class Attention(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Tensor) -> Tensor:
            out = torch.empty_like(inputs[0])
            ctx.save_for_backward(*inputs, out, out.new_empty(statistics, dtype=torch.float32))
            return out

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Any:
            raise NotImplementedError

    return Attention.apply(queries, keys, values)


# --- Korthikanti et al., table 2 -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "heads"), [(6144, 64), (12288, 96), (20480, 128), (25600, 160)])
@pytest.mark.parametrize("batch", [1, 4])
def test_the_published_formulas_of_a_layer(width: int, heads: int, batch: int) -> None:
    model, s, t = Transformer.gpt(1, width, heads), 2048, 8
    sbh, scores = s * batch * width, 5 * heads * s / width

    def ours(**layout: Any) -> float:
        cut = Layout(micro_batch=batch, global_batch=batch, sequence=s, **{"flash": False, **layout})
        return total(layer_activations(model, cut)) / sbh

    assert ours() == pytest.approx(34 + scores)
    assert ours(tensor=t, sequence_parallel=False) == pytest.approx(10 + 24 / t + scores / t)
    assert ours(tensor=t) == pytest.approx((34 + scores) / t)
    assert ours(tensor=t, sequence_parallel=False, recompute="selective") == pytest.approx(10 + 24 / t)
    assert ours(tensor=t, recompute="selective") == pytest.approx(34 / t)
    assert ours(recompute="full") == pytest.approx(2)


def test_context_parallel_cuts_the_sequence_and_not_its_keys() -> None:
    model = Transformer.gpt(1, 1024, 16)
    whole, half = (
        layer_activations(model, Layout(context=c, sequence=4096, flash=False, global_batch=1)) for c in (1, 2)
    )
    assert [row.bytes / 2 for row in whole] == [row.bytes for row in half]


def test_experts_hold_each_token_as_often_as_it_is_sent() -> None:
    dense, mixture = (
        Transformer.named("mixtral-8x7b").resized(experts=n, active_experts=k) for n, k in ((1, 1), (8, 2))
    )
    layout = Layout(sequence=1024)
    before, after = ({row.name: row.bytes for row in layer_activations(model, layout)} for model in (dense, mixture))
    for name in ("first projection", "second projection", "input of the last projection"):
        assert after[name] == 2 * before[name]
    assert after["tokens sent to experts"] == 2 * before["input of MLP"]
