"""The planner's memory against live bytes: of real training steps, of steps on fake tensors, of FSDP2 in processes."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from mlsys_labkit import lm, ranks
from mlsys_labkit.memory import MemoryTrace
from mlsys_labkit.planner import (
    MODELS,
    Layout,
    PlanError,
    Precision,
    StageMemory,
    Transformer,
    stage_memory,
    stage_parameters,
)

pytestmark = pytest.mark.usefixtures("small_heap")

SINGLE, HALF = Precision.single(), Precision(2, 2, 4)  # AdamW's two moments have the weights' own dtype
WIDE = lm.Config(vocabulary=8192, width=128, layers=3, heads=4, kv_heads=4, head_width=32, hidden=352, tied=False)
DEEP = lm.Config(vocabulary=512, width=128, layers=8, heads=8, kv_heads=4, head_width=16, hidden=352, tied=False)
TIED = lm.Config(vocabulary=2048, width=192, layers=4, heads=6, kv_heads=2, head_width=32, hidden=512)


def planned(config: lm.Config, **layout: Any) -> StageMemory:
    return stage_memory(Transformer.from_config(config), Layout(kernels="eager", **layout), 0)


def trainer(
    config: lm.Config,
    precision: Precision,
    batch: int,
    length: int,
    micro_batches: int,
    recompute: bool = False,
    prepare: Callable[[Any], Any] = lambda model: None,
    watch: Callable[..., Any] = lambda model, optimizer: None,
) -> Callable[[], None]:
    """Return a training step that has run once, so that the optimizer has its state. No variable keeps the logits."""
    torch.manual_seed(0)
    torch.set_default_dtype(getattr(torch, precision.compute))
    model = lm.LanguageModel(config)
    torch.set_default_dtype(torch.float32)
    if recompute:
        for layer in model.model.layers:
            layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
    prepare(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    tokens, targets = (torch.randint(config.vocabulary, (micro_batches, batch, length)) for _ in range(2))

    def step() -> None:
        for some, theirs in zip(tokens, targets, strict=True):
            functional.cross_entropy(model(some).float().flatten(0, 1), theirs.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    watch(model, optimizer)
    return step


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def live(step: Callable[[], None]) -> MemoryTrace:
    """Run ``mlsys_labkit.trace_memory(step)`` without following numpy from line to line."""
    from mlsys_labkit.memory.torch_tracer import TorchTracer  # two seconds: it imports torch's compiler

    trace = MemoryTrace()
    gc.collect()
    with TorchTracer(trace):
        step()
    return trace


# --- one process -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", [WIDE, DEEP, TIED], ids=["wide", "deep", "tied"])
@pytest.mark.parametrize("precision", [SINGLE, HALF], ids=["float32", "bfloat16"])
@pytest.mark.parametrize(("batch", "length", "micro_batches"), [(4, 128, 2), (1, 40, 2), (1, 40, 1)])
def test_the_peak_of_a_real_step(
    config: lm.Config, precision: Precision, batch: int, length: int, micro_batches: int
) -> None:
    """Compare the peaks; the long bfloat16 steps, which take a CPU seconds, run on fake tensors of the same sizes."""
    slow = precision is HALF and batch * length > 100
    with FakeTensorMode() if slow else contextlib.nullcontext():
        trace = live(trainer(config, precision, batch, length, micro_batches))
    sizes = {"micro_batch": batch, "global_batch": batch * micro_batches, "sequence": length}
    memory = planned(config, precision=precision, **sizes)
    assert memory.peak == pytest.approx(trace.peak_bytes, rel=0.01)  # the bar is 5 %
    held = trace.peak_by_category
    assert memory.parameters == held["parameters"]
    assert memory.optimizer == pytest.approx(held["optimizer"], rel=0.001)  # and a step count for each weight
    if config is DEEP and precision is SINGLE and batch == 4:  # the peak is at the loss: compare the other categories
        assert memory.activations == pytest.approx(held["activations"], rel=0.01)
        assert memory.gradients == held["gradients"]
        assert memory.buffers == pytest.approx(held["other"], rel=0.02)  # and the batch


def test_the_peak_of_a_real_step_with_full_recomputation() -> None:
    trace = live(trainer(DEEP, SINGLE, 4, 128, 2, recompute=True))
    sizes = {"micro_batch": 4, "global_batch": 8, "sequence": 128}
    memory = planned(DEEP, precision=SINGLE, recompute="full", **sizes)
    assert memory.peak == pytest.approx(trace.peak_bytes, rel=0.05)
    assert memory.peak < 0.6 * planned(DEEP, precision=SINGLE, **sizes).peak


# --- fake tensors ----------------------------------------------------------------------------------------------------

LARGE = lm.Config(  # Llama 3 70B, but for its layers: 3.8 billion parameters
    128_256, 8192, 2, 64, 8, 128, 28_672, context=8192, tied=False
)


@pytest.mark.parametrize("precision", [SINGLE, HALF], ids=["float32", "bfloat16"])
def test_the_peak_of_billions_of_parameters_without_memory(precision: Precision) -> None:
    with FakeTensorMode():
        trace = live(trainer(LARGE, precision, 1, 8192, 2))
    memory = planned(LARGE, precision=precision, global_batch=2, sequence=8192)
    assert LARGE.parameters > 3e9
    assert memory.peak == pytest.approx(trace.peak_bytes, rel=0.01)


def test_the_peak_is_that_of_torchs_own_tracker() -> None:
    from torch.distributed._tools.mem_tracker import MemTracker

    with FakeTensorMode():
        tracker = MemTracker()
        step = trainer(LARGE, HALF, 1, 8192, 1, watch=tracker.track_external)
        with tracker:
            step()
    theirs = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]
    memory = planned(LARGE, precision=HALF, sequence=8192)
    assert memory.peak == pytest.approx(theirs, rel=0.01)


# --- real processes --------------------------------------------------------------------------------------------------

SIZES = [(2, 4, 128), (1, 1, 40)]  # micro-batches, sequences of one, tokens of one


def _fsdp_peaks(config: lm.Config) -> list[int]:
    from torch.distributed.fsdp import fully_shard

    torch.set_num_threads(1)

    def shard(model: Any) -> None:
        for layer in model.model.layers:
            fully_shard(layer)
        fully_shard(model)

    def peak(micro_batches: int, batch: int, length: int) -> int:
        # A step may take a buffer before gloo's threads let go of the last one: the least of three has no such overlap.
        steps = (live(trainer(config, SINGLE, batch, length, micro_batches, prepare=shard)) for _ in range(3))
        return min(step.peak_bytes for step in steps)

    return [peak(*sizes) for sizes in SIZES]


@pytest.mark.xdist_group("rank-processes")
@pytest.mark.parametrize(
    ("world", "config"), [(2, replace(DEEP, layers=4)), pytest.param(4, WIDE, marks=pytest.mark.soak)], ids=["2", "4"]
)
def test_rank_0_under_fsdp2(world: int, config: lm.Config) -> None:
    run = ranks.run(_fsdp_peaks, world, backend="gloo", args=(config,), timeout_seconds=180)
    for (micro_batches, batch, length), *peaks in zip(SIZES, *run.values, strict=True):
        layout = {"micro_batch": batch, "global_batch": world * batch * micro_batches, "sequence": length}
        memory = planned(config, data=world, zero=3, precision=SINGLE, **layout)
        assert peaks == pytest.approx([memory.peak] * world, rel=0.05)


# --- sums over ranks -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("tensor", "pipeline"), [(1, 1), (1, 2), (2, 1), (4, 3), (2, 6)])
def test_the_ranks_weights_add_up_to_the_model(name: str, tensor: int, pipeline: int) -> None:
    """Except for what Megatron-LM stores repeatedly: norms, late biases, routers, positions, a tied table."""
    model = MODELS[name].resized(layers=12)
    expert = 2 if model.experts > 1 else 1
    layout = Layout(data=expert, expert=expert, tensor=tensor, pipeline=pipeline, global_batch=2)
    parts = [stage_parameters(model, layout, stage) for stage in range(pipeline)]
    single = 2 * model.width * model.kv_width * (model.kv_heads == 1)
    if model.latent:
        single = model.latent.shared(model.width)
    norms = (1 if model.parallel else 2) * model.norm_parameters + 2 * model.width * model.biased
    routers = (12 - model.dense_layers) * model.router_parameters
    whole = 12 * (norms + single) + routers + model.norm_parameters + model.positions * model.width
    again = model.vocabulary * model.width if model.tied and pipeline > 1 else 0
    held = sum(tensor * (dense + expert * experts) for dense, experts in parts)
    assert held == pytest.approx(model.parameters + (tensor - 1) * whole + again, rel=1e-12)


def test_layers_are_dealt_out_and_ends_count_as_layers() -> None:
    model = Transformer.named("llama-3-405b")
    layout = Layout(pipeline=16, global_batch=16, ends_as_layers=True)
    layers = [layout.layers(model, stage) for stage in range(16)]
    assert layers == [7, *[8] * 14, 7]
    assert sum(layers) == model.layers


@pytest.mark.parametrize("chunks", [1, 2, 4])
def test_micro_batches_in_flight_are_those_of_the_schedule(chunks: int) -> None:
    """Counted by walking 1F1B's own order of work, interleaved or not, not by its formula."""
    p, m = 4, 16
    layout = Layout(pipeline=p, chunks=chunks, global_batch=m)
    for stage in range(p):
        warm = p - stage - 1 if chunks == 1 else 2 * (p - stage - 1) + (chunks - 1) * p
        alive = most = 0
        order = "F" * warm + "FB" * (m * chunks - warm) + "B" * warm
        for work in order:
            alive += 1 if work == "F" else -1
            most = max(most, alive)
        assert layout.in_flight(stage) == most / chunks
    # Korthikanti et al., sec. 4.2.3: the first stage holds the activations of L (1 + (p - 1)/(p v)) layers.
    if chunks > 1:
        assert layout.in_flight(0) / p == pytest.approx(1 + (p - 1) / (p * chunks))


def test_offloading_moves_the_optimizer_to_the_host() -> None:
    model = Transformer.named("llama-2-7b")
    here, away = (
        stage_memory(model, Layout(data=8, zero=1, global_batch=8, offload=offload), 0)
        for offload in ("none", "optimizer")
    )
    assert away.host == here.optimizer == pytest.approx(12 * model.parameters / 8)
    assert here.total - away.total == here.optimizer


def test_a_published_run_fits_its_gpus() -> None:
    """Narayanan et al., table 1: a trillion parameters on 384 x 8 A100 of 80 GB, recomputing everything."""
    model = Transformer.named("megatron-1t")
    layout = Layout(data=6, tensor=8, pipeline=64, global_batch=3072, recompute="full", flash=False)
    peak = max(stage_memory(model, layout, stage).peak for stage in range(64))
    assert 16 * model.parameters / 512 < peak < 80 * 2**30
    with pytest.raises(PlanError, match="layers = 128 is not divisible by pipeline x chunks = 96"):
        Layout(tensor=8, pipeline=96, global_batch=96).check(model)
