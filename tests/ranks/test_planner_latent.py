"""DeepSeek-V3 in the planner: parameters and memory beside its own layers in PyTorch, without memory (fake tensors)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from mlsys_labkit.planner import MODELS, LatentAttention, Layout, Precision, StageMemory, stage_memory
from tests.ranks.latent_model import LatentModel
from tests.ranks.test_planner_memory import live

# Two of its layers, one dense, the other with the experts that a rank holds if sixteen ranks share out all 256.
# PyTorch's attention on a CPU keeps no scores only if keys and values are equally wide, so RoPE turns half of a key.
WIDE = replace(
    MODELS["deepseek-v3"].resized(layers=2, dense_layers=1, experts=16, vocabulary=32_000),
    latent=LatentAttention(no_rope_width=64),
)
SINGLE, HALF = Precision.single(), Precision(2, 2, 4)
SMALL = WIDE.resized(width=64, heads=4, kv_heads=4, hidden=32, dense_hidden=96, vocabulary=100)


def test_parameters_and_flops_are_those_of_the_modules() -> None:
    with torch.device("meta"):
        model = LatentModel(SMALL)
        with FlopCounterMode(display=False) as counter:
            model(torch.zeros(2, 48, dtype=torch.int64))
    assert SMALL.parameters == sum(weight.numel() for weight in model.parameters())
    assert SMALL.forward_flops(2, 48).total == counter.get_total_flops()


def trainer(precision: Precision, micro_batches: int, length: int, watch: Callable[..., Any]) -> Callable[[], None]:
    """Return a step of training that has run once, so that the optimizer has its state."""
    torch.set_default_dtype(getattr(torch, precision.compute))
    model = LatentModel(WIDE)
    torch.set_default_dtype(torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    tokens = torch.zeros(1, length, dtype=torch.int64)

    def step() -> None:
        for _ in range(micro_batches):
            functional.cross_entropy(model(tokens).float().flatten(0, 1), tokens.flatten()).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()

    step()
    watch(model, optimizer)
    return step


def planned(precision: Precision, micro_batches: int, length: int) -> StageMemory:
    layout = Layout(kernels="eager", precision=precision, global_batch=micro_batches, sequence=length)
    return stage_memory(WIDE, layout, 0)


def test_the_peak_of_a_step_is_that_of_torchs_own_tracker() -> None:
    from torch.distributed._tools.mem_tracker import MemTracker

    with FakeTensorMode():
        tracker = MemTracker()
        step = trainer(HALF, 1, 16_384, tracker.track_external)
        with tracker:
            step()
    theirs = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]
    assert planned(HALF, 1, 16_384).peak == pytest.approx(theirs, rel=0.05)


@pytest.mark.parametrize(("precision", "length"), [(SINGLE, 32_768), (HALF, 1024)], ids=["float32", "bfloat16"])
def test_the_peak_of_a_step_of_two_micro_batches(precision: Precision, length: int) -> None:
    with FakeTensorMode():
        trace = live(trainer(precision, 2, length, lambda *_: None))
    memory = planned(precision, 2, length)
    assert memory.peak == pytest.approx(trace.peak_bytes, rel=0.05)
    assert memory.parameters == trace.peak_by_category["parameters"]
