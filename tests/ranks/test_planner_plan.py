"""Traffic by counting, step times against published runs, the search, and errors in one line."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from mlsys_labkit.planner import (
    CLUSTERS,
    MODELS,
    Assumptions,
    Cluster,
    Layout,
    Plan,
    PlanError,
    Precision,
    Transformer,
    layer_activations,
    plan,
    search,
)
from mlsys_labkit.planner.products import ceiling

A100, H100 = CLUSTERS["dgx-a100"], CLUSTERS["dgx-h100"]
# Narayanan et al., arXiv:2104.04473, table 1: heads, width, layers, tensor, pipeline, GPUs, batch, TFLOP/s a GPU.
MEGATRON = [
    (48, 6144, 40, 8, 1, 256, 1024, 135),
    (64, 8192, 48, 8, 2, 512, 1536, 138),
    (80, 10240, 60, 8, 4, 1024, 1792, 140),
    (96, 12288, 80, 8, 8, 1536, 2304, 148),
    (128, 16384, 96, 8, 16, 1920, 2160, 155),
    (128, 20480, 105, 8, 35, 2520, 2520, 163),
    (160, 25600, 128, 8, 64, 3072, 3072, 163),
]
# Korthikanti et al., arXiv:2205.05198, tables 3 and 5: heads, width, layers, batch, GPUs, seconds a step, MFU in %.
KORTHIKANTI = [
    (64, 6144, 48, 4, 8, 1.10, 41.5),
    (96, 12288, 96, 64, 64, 13.75, 51.4),
    (128, 20480, 105, 280, 280, 37.83, 56.0),
    (160, 25600, 128, 512, 512, 71.49, 56.3),
]


def megatron(row: tuple[int, ...]) -> Plan:
    heads, width, layers, tensor, pipeline, gpus, batch, _ = row
    layout = Layout(
        data=gpus // tensor // pipeline,
        tensor=tensor,
        pipeline=pipeline,
        global_batch=batch,
        recompute="full",
        sequence_parallel=False,
        flash=False,
    )
    return plan(Transformer.gpt(layers, width, heads), replace(A100, gpus=gpus), layout)


# --- FLOPs and time --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", KORTHIKANTI, ids=lambda row: f"{row[4]} GPUs")
def test_published_step_times_give_the_published_utilisation(row: tuple[Any, ...]) -> None:
    heads, width, layers, batch, gpus, seconds, percent = row
    flops = Transformer.gpt(layers, width, heads).training_work(batch, 2048).flops
    assert 100 * flops / (seconds * gpus * A100.peak("bfloat16")) == pytest.approx(percent, abs=0.3)


def test_a_trillion_parameters_take_84_days_and_gpt_3_34() -> None:
    """Narayanan et al., sec. 5.1: 8 T P/(n X) seconds at the throughput that they measured, recomputation included."""
    gpt_3 = (96, 12288, 96, 8, 8, 1024, 1536, 140)
    for row, tokens, rate, days in ((MEGATRON[-1], 450e9, 163e12, 84), (gpt_3, 300e9, 140e12, 34)):
        run = megatron(row)
        seconds = run.hardware_flops / (run.cluster.gpus * rate)
        exact = tokens / (run.tokens / seconds) / 86_400
        assert exact == pytest.approx(days, rel=0.04)  # 8TP leaves out attention
        assert 8 * tokens * run.model.parameters / (run.cluster.gpus * rate) / 86_400 == pytest.approx(days, abs=0.5)
        assert run.days(tokens) == pytest.approx(days, rel=0.15)  # and with our own estimate of the time


@pytest.mark.parametrize("row", MEGATRON, ids=lambda row: f"{row[5]} GPUs")
def test_flops_with_full_recomputation_are_the_published_formula(row: tuple[int, ...]) -> None:
    """Narayanan et al., eq. 3: 96 B s l h² (1 + s/6h + V/16lh); the output layer is not computed again."""
    _, h, layers, *_, batch, _ = row
    theirs = 96 * batch * 2048 * layers * h**2 * (1 + 2048 / (6 * h) + 51_200 / (16 * layers * h))
    assert megatron(row).hardware_flops == pytest.approx(theirs, rel=1e-12)


def test_groups_share_the_ports_of_their_node() -> None:
    cluster = replace(H100, gpus=64)
    rates = [float(cluster.link(*group).bytes_per_second) / 1e9 for group in ((1, 8), (8, 8), (4, 16), (2, 8), (1, 64))]
    assert rates == [450, 50, 100, 200, 400]  # inside; one port; two; four; all eight, under NVLink's rate


@pytest.mark.parametrize("row", MEGATRON, ids=lambda row: f"{row[5]} GPUs")
def test_step_times_of_megatron_on_a100(row: tuple[int, ...]) -> None:
    run = megatron(row)
    assert run.hardware_flops / run.step_seconds / run.cluster.gpus / 1e12 == pytest.approx(row[-1], rel=0.12)


def test_the_bubble_is_that_of_1f1b() -> None:
    for m in (4, 8, 16):
        assert Layout(pipeline=4, global_batch=m).bubble == 3 / m  # over useful time; (p-1)/(m+p-1) of all time
    run = plan(MODELS["llama-2-7b"], replace(H100, gpus=4), Layout(pipeline=4, global_batch=8))
    busy = run.seconds.compute + run.seconds.exposed["pipeline"]
    assert run.seconds.bubble / (busy + run.seconds.bubble) == pytest.approx(3 / 11)


def test_rule_flops_leave_out_attention_and_count_the_embedding() -> None:
    run = plan(MODELS["llama-3-8b"], replace(H100, gpus=8), Layout(data=8, zero=3, global_batch=8, sequence=8192))
    model = run.model
    attention = 12 * model.layers * model.query_width * 8192 * run.tokens
    table, norms = model.vocabulary * model.width, (2 * model.layers + 1) * model.width
    assert run.flops == run.rule_flops + attention - 6 * (table + norms) * run.tokens


# --- traffic ---------------------------------------------------------------------------------------------------------


def sent(run: Plan, way: str) -> float:
    m = run.layout.micro_batches
    return sum(one.sent_bytes * (1 if one.each_step else m) for one in run.transfers if one.way == way)


def small(**layout: Any) -> Plan:
    cut = Layout(**{"sequence": 1024, "global_batch": 8, **layout})
    return plan(MODELS["llama-2-7b"], Cluster(gpus=cut.ranks, gpus_per_node=8), cut)


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_zero_sends_what_its_paper_says(zero: int) -> None:
    """Rajbhandari et al., sec. 7: twice the weights up to stage 2, three times with stage 3, of 2 bytes each."""
    run = small(data=8, zero=zero)
    weights = 2 * run.model.parameters * 7 / 8
    assert sent(run, "data") == pytest.approx((3 if zero == 3 else 2) * weights)
    assert run.work().message_bytes == pytest.approx(sent(run, "data"))
    assert run.work().how["message_bytes"] == "formula"
    assert run.work().how["seconds"] == "model"


@pytest.mark.parametrize("sequence_parallel", [False, True])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_tensor_parallel_sends_the_same_with_and_without_sequence_parallel(
    sequence_parallel: bool, recompute: Any
) -> None:
    """Korthikanti et al., sec. 4.2.2: gather and scatter move what an all-reduce moves, 4 of them a layer."""
    run = small(tensor=4, sequence_parallel=sequence_parallel, recompute=recompute)
    one = 2 * 3 / 4 * 2 * 1024 * 4096
    passes = 3 if recompute == "full" else 2
    assert sent(run, "tensor") == pytest.approx(8 * 32 * 2 * passes * one)


def test_pipeline_context_and_expert_traffic() -> None:
    assert sent(small(pipeline=4), "pipeline") == 8 * 2 * 2 * 1024 * 4096  # there and back, for 8 micro-batches
    keys_and_values = 2 * 2 * 512 * 4096
    assert sent(small(context=2), "context") == 8 * 32 * 3 * keys_and_values  # forward; backward, with gradients
    mixture = MODELS["mixtral-8x7b"]
    run = plan(mixture, replace(H100, gpus=8), Layout(data=8, expert=8, global_batch=8, sequence=1024, zero=1))
    assert sent(run, "expert") == pytest.approx(32 * 4 * 7 / 8 * 2 * 1024 * 4096 * 2)  # two experts a token


@given(st.sampled_from(sorted(MODELS)), st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4]), st.integers(0, 3),
       st.sampled_from(["none", "selective", "full"]), st.sampled_from([1, 2, 8]))  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_higher_zero_stages_never_hold_more_state(
    name: str, tensor: int, pipeline: int, zero: int, recompute: Any, data: int
) -> None:
    model = MODELS[name].resized(layers=8)
    layout = Layout(data, tensor, pipeline, zero=zero, recompute=recompute, global_batch=8 * data, sequence=512)
    cluster = Cluster(gpus=layout.ranks, gpus_per_node=1)
    if model.heads % tensor or (model.kv_heads > 1 and model.kv_heads % tensor):
        with pytest.raises(PlanError, match="divisible"):
            plan(model, cluster, layout)
        return
    run = plan(model, cluster, layout)
    for stage in run.stages:
        assert stage.peak >= stage.parameters + stage.gradients + stage.optimizer
        assert stage.peak >= stage.total * (1 - 1e-9)  # several micro-batches: gradients are there all along
        assert min(stage.parameters, stage.gradients, stage.optimizer, stage.activations) > 0
    if zero:
        less = plan(model, run.cluster, replace(layout, zero=zero - 1))
        state = [sum(s.parameters + s.gradients + s.optimizer for s in one.stages) for one in (run, less)]
        assert state[0] <= state[1]
    assert 0 < run.mfu < ceiling("h100-sxm", "bfloat16")
    assert math.isclose(run.tokens_per_second * run.step_seconds, run.tokens)
    assert run.hardware_flops >= run.flops
    assert str(run).count("\n") >= 5


def test_layer_activations_are_named_rows() -> None:
    rows = layer_activations(MODELS["llama-2-7b"], Layout())
    assert {"queries", "keys", "values"} < {row.name for row in rows}
    assert all(row.bytes > 0 and row.saved_by for row in rows)


# --- search ----------------------------------------------------------------------------------------------------------


def test_the_search_finds_nothing_worse_than_meta_did() -> None:
    cluster = replace(H100, gpus=16_384)
    best = search(MODELS["llama-3-405b"], cluster, global_batch=2048, sequence=8192)
    theirs = Layout(128, 8, 16, zero=1, global_batch=2048, sequence=8192, chunks=2, ends_as_layers=True)
    assert best[0].step_seconds <= plan(MODELS["llama-3-405b"], cluster, theirs).step_seconds
    assert [one.step_seconds for one in best] == sorted(one.step_seconds for one in best)
    assert all(one.fits and one.layout.ranks == 16_384 for one in best)


def test_search_handles_a_hundred_thousand_gpus() -> None:
    best = search(MODELS["megatron-1t"], replace(H100, gpus=98_304), global_batch=12_288, count=3)
    assert len(best) == 3
    assert best[0].layout.ranks == 98_304


def test_a_small_search_is_the_best_of_all_layouts_tried_by_hand() -> None:
    model, cluster = MODELS["llama-2-7b"], H100
    best = search(model, cluster, global_batch=16, sequence=2048)[0]
    tried = []
    for tensor in (1, 2, 4, 8):
        for pipeline in (1, 2, 4, 8):
            data = 8 // (tensor * pipeline)
            for zero in (0, 1, 2, 3) if data else ():
                for micro in (1, 2, 4, 8, 16):
                    for recompute in ("none", "full"):
                        try:
                            layout = Layout(data, tensor, pipeline, zero=zero, micro_batch=micro, global_batch=16,
                                            sequence=2048, recompute=recompute)  # type: ignore[arg-type]  # fmt: skip
                            tried.append(plan(model, cluster, layout))
                        except PlanError:
                            continue
    assert best.step_seconds <= min(one.step_seconds for one in tried if one.fits) * (1 + 1e-9)


def test_search_without_a_fit_reports_the_missing_memory() -> None:
    with pytest.raises(PlanError) as caught:
        search(MODELS["llama-3-405b"], H100, global_batch=8, sequence=8192)
    said = str(caught.value)
    assert "\n" not in said
    assert "more than the" in said
    assert "most of it is" in said
    fits = search(MODELS["llama-2-70b"], replace(H100, gpus=16), global_batch=16, sequence=2048, offload=True)
    assert fits[0].fits


def test_less_memory_admits_fewer_layouts() -> None:
    tight = Assumptions(memory_fraction=0.05)
    with pytest.raises(PlanError, match="nothing fits"):
        search(MODELS["llama-2-7b"], H100, global_batch=8, assumptions=tight)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: plan(MODELS["llama-2-7b"], H100, Layout(data=4, global_batch=4)), "make the product 8"),
        (lambda: Layout(data=3, global_batch=8), "multiple of 3"),
        (lambda: Layout(data=4, expert=3, global_batch=4), "expert=3 must divide data=4"),
        (lambda: Layout(zero=4), "zero is one of 0, 1, 2, 3"),
        (lambda: Layout(recompute="some"), "recompute is one of"),
        (lambda: Layout(tensor=0), "tensor must be a whole number"),
        (lambda: Layout(pipeline=4, chunks=2, global_batch=6), "multiples of pipeline=4"),
        (lambda: Layout(data=8, global_batch=8, schedule="dualpipe"), "pipeline must be even, got 1"),
        (lambda: Layout(pipeline=4, chunks=4, global_batch=4, schedule="zero-bubble"), "chunks belong to the schedule"),
        (lambda: Assumptions(compute_fraction=0.0), "compute_fraction must be above 0 and at most 1, got 0.0"),
        (lambda: Assumptions(link_fraction=0), "link_fraction must be above 0"),
        (lambda: Assumptions(memory_fraction=5), "memory_fraction must be above 0 and at most 1, got 5"),
        (lambda: Assumptions(gap_seconds=-1e-6), "gap_seconds must be 0 or more"),
        (lambda: Cluster(gpus=8, host_bytes_per_second=0), "host_bytes_per_second must be above 0"),
        (lambda: Transformer.gpt(2, 7, 3), "width must be a multiple of heads: got 7 and 3"),
        (lambda: Precision(compute="flot8"), "compute is one of float64, float32"),
        (lambda: Precision(compute="float4"), "got 'float4'; training in it is not modelled"),
        (lambda: Precision(compute="int8"), "got 'int8'; training in it is not modelled"),
        (lambda: Layout(tensor=3).check(MODELS["llama-2-7b"]), "heads = 32 is not divisible by tensor = 3"),
        (lambda: Layout(tensor=16).check(MODELS["llama-3-8b"]), "kv_heads = 8 is not divisible by tensor = 16"),
        (lambda: Layout(pipeline=5).check(MODELS["llama-2-7b"]), "layers = 32 is not divisible"),
        (lambda: Layout(data=3, expert=3, global_batch=3).check(MODELS["mixtral-8x7b"]), "experts = 8"),
        (lambda: Layout(context=3).check(MODELS["llama-2-7b"]), "sequence = 2048 is not divisible by context = 3"),
        (lambda: Cluster(gpus=12), "whole nodes"),
        (lambda: Cluster(gpus=8, device="xeon-8480"), "no memory of its own"),
        (lambda: Cluster.named("dgx-z", 8), "dgx-h100"),
        (lambda: search(MODELS["llama-2-7b"], replace(H100, gpus=56), global_batch=3), "no layout cuts"),
    ],
)
def test_impossible_sizes_are_refused_in_one_line(make: Any, says: str) -> None:
    with pytest.raises(PlanError, match=says) as caught:
        make()
    assert "\n" not in str(caught.value)
