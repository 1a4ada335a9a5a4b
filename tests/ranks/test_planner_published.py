"""The planner's step times beside published runs, and the terms that they are made of beside sums by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from mlsys_labkit.planner import (
    CLUSTERS,
    MODELS,
    Assumptions,
    Cluster,
    LatentAttention,
    Layout,
    Plan,
    PlanError,
    PublishedRun,
    Transformer,
    plan,
    published_runs,
    search,
    stage_memory,
)
from mlsys_labkit.planner.layer_time import LayerClock
from mlsys_labkit.planner.operators import layer_bytes
from mlsys_labkit.planner.products import CEILINGS, Product, layer_products, product_seconds
from mlsys_labkit.work.network_link import Link

RUNS = published_runs()
GROUPS = list(dict.fromkeys(run.group for run in RUNS))
H100 = CLUSTERS["dgx-h100"]
ROOT = Path(__file__).parents[2]
FIGURES = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")


# --- published runs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", GROUPS)
def test_every_run_is_within_a_fifth_or_its_failing_assumption_is_named(group: str) -> None:
    for run in RUNS:
        if run.group == group:
            assert abs(run.error) <= 0.2 or run.miss, f"{run.name}: {run.error:+.0%}"
            assert abs(run.error) > 0.2 or not run.miss, f"{run.name} is named as a miss, and is none"


@pytest.mark.parametrize("group", GROUPS)
def test_the_figures_print_what_the_benchmark_does(group: str) -> None:
    errors = [run.error for run in RUNS if run.group == group]
    close, n = sum(abs(error) <= 0.2 for error in errors), len(errors)
    ends = f"{100 * min(errors):+.0f} %, {100 * max(errors):+.0f} %"
    row = f"| {group} | {n} | {close} of {n} | {100 * median(abs(error) for error in errors):.0f} % | {ends} |"
    assert row in FIGURES


def test_the_figures_sum_up_all_fitted_and_held_out_runs() -> None:
    kinds = [[abs(run.error) for run in RUNS if run.fitted in kind] for kind in ((True, False), (True,), (False,))]
    close = [str(sum(error <= 0.2 for error in errors)) for errors in kinds]
    middle = [f"{100 * median(errors):.1f} %" for errors in kinds]
    assert f"| {len(RUNS)} | {'; '.join(close)} | {'; '.join(middle)} | |" in FIGURES
    assert f"the {len(kinds[1])} to which four constants were fitted; the {len(kinds[2])} held out" in FIGURES
    assert f"{close[0]} of {len(RUNS)} within 20 %, median error {middle[0]}" in (ROOT / "README.md").read_text("utf-8")


def test_held_out_runs_are_as_good_as_those_that_were_fitted() -> None:
    fitted, held = ([abs(run.error) for run in RUNS if run.fitted is kind] for kind in (True, False))
    assert len(held) > 2 * len(fitted)
    for errors in (fitted, held):
        assert median(errors) < 0.1
        assert sum(error <= 0.2 for error in errors) > 0.9 * len(errors)


def test_runs_of_the_last_two_years_and_of_many_sources_are_there() -> None:
    assert len({run.source.split(",")[0] for run in RUNS}) >= 9
    assert len({run.group for run in RUNS if run.year >= 2025}) >= 4
    assert {"deepseek-v3", "qwen-3-235b-a22b"} <= {run.model.name for run in RUNS if run.year >= 2025}
    names = [(run.group, run.name) for run in RUNS]
    assert len(names) == len(set(names))
    assert all(run.source and 2020 < run.year < 2027 and run.value > 0 for run in RUNS)


@pytest.mark.parametrize(
    ("group", "name", "percent"),
    [
        ("Nemotron-4 340B, H100", "1536 GPUs", 42.4),  # Adler et al., arXiv:2406.11704, table 2
        ("Nemotron-4 340B, H100", "6144 GPUs", 41.0),
        ("Megatron-LM 2022, A100", "1T", 56.3),  # Korthikanti et al., arXiv:2205.05198, table 5
        ("Llama 3, H100", "405B, 8192 GPUs", 43),  # Grattafiori et al., arXiv:2407.21783, table 4
        ("MosaicML, H100", "mpt-13b, 64 GPUs, 2048 tokens", 39.86),  # the MFU column of the same table
        ("torchtitan, A100", "Llama 2 13B", 61.1),
    ],
)
def test_published_figures_give_the_published_utilisation(group: str, name: str, percent: float) -> None:
    """The sizes, the GPUs and the peak that we take for a run are those of its authors."""
    run = next(run for run in RUNS if (run.group, run.name) == (group, name))
    made = run.plan()
    per_second = {"s/step": made.flops / run.value, "TFLOP/s/GPU": run.value * 1e12 * run.cluster.gpus}
    rate = per_second.get(run.unit, made.flops / made.tokens * run.value * run.cluster.gpus)
    assert 100 * rate / run.cluster.gpus / run.cluster.peak("bfloat16") == pytest.approx(percent, rel=0.02)


def test_seconds_and_rates_are_compared_as_speeds() -> None:
    run = next(run for run in RUNS if run.unit == "s/step")
    slower = replace(run, value=run.plan().step_seconds * 2)
    assert slower.error == pytest.approx(1.0)  # twice as fast as "published"
    faster = replace(run, unit="tokens/s/GPU", value=run.plan().tokens_per_second / run.cluster.gpus * 2)
    assert faster.error == pytest.approx(-0.5)


# --- terms of the time -----------------------------------------------------------------------------------------------


def test_a_product_is_never_faster_than_its_peak_or_its_memory() -> None:
    for m, k, n in ((1, 64, 64), (128, 128, 128), (4096, 4096, 4096), (100_000, 8192, 16_384), (8, 8192, 8192)):
        product = Product(m, k, n)
        seconds = product_seconds(product, "h100-sxm", "bfloat16", 800e12, 3e12)
        assert seconds >= product.flops / 800e12
        assert seconds >= 2 * (m * k + k * n + m * n) / 3e12
    thin = product_seconds(Product(8, 8192, 8192), "h100-sxm", "bfloat16", 800e12, 3e12)
    assert thin == pytest.approx(2 * (8 * 8192 * 2 + 8192**2) / 3e12)  # decoding: the weights are all that is moved


def test_the_last_wave_is_paid_in_full() -> None:
    """132 SMs work on 132 tiles of 128 x 256 at once; one more tile takes as long again."""
    full, more = (product_seconds(Product(128 * rows, 8192, 256), "h100-sxm", "bfloat16", 1e15, 1e18)
                  for rows in (132, 133))  # fmt: skip
    assert more > 1.5 * full
    assert Product(128 * 132, 8192, 256).flops / full == pytest.approx(1e15 * 8192 / (8192 + 160))


@pytest.mark.parametrize("name", ["gpt-3-175b", "llama-3-8b", "mixtral-8x7b", "qwen-3-235b-a22b", "deepseek-v3"])
def test_products_are_the_models_flops(name: str) -> None:
    model, layout = MODELS[name], Layout(sequence=512)
    forward = model.forward_flops(1, 512)
    dense = sum(product.flops for product in layer_products(model, layout, dense=True)) if model.dense_layers else 0
    sparse = sum(product.flops for product in layer_products(model, layout))
    total = model.dense_layers * dense + (model.layers - model.dense_layers) * sparse
    assert total == pytest.approx(forward.projections + forward.mlp, rel=1e-12)
    split = Layout(tensor=4, sequence=512, data=8, expert=8 if model.experts > 1 else 1, global_batch=8)
    shared = model.latent.shared(model.width) - model.latent.query_rank - model.latent.kv_rank if model.latent else 0
    each = sum(product.flops for product in layer_products(model, split))
    again = 2 * 512 * (shared + model.router_parameters) * 3  # on all four ranks
    assert 4 * each == pytest.approx(sparse + again, rel=1e-12)


def test_backward_has_two_products_of_the_same_size() -> None:
    assert sorted(Product(3, 5, 7).backward) == [(3, 7, 5, 1), (5, 3, 7, 1)]


def test_operators_of_a_llama_layer_by_hand() -> None:
    """In numbers of 2 bytes a token: norms and residuals 3 + 3 + 1 + 1, RoPE 2 + 2, the gate 3; and more back."""
    model, layout = MODELS["llama-3-8b"], Layout(sequence=1024)
    d, qk, h = 4096, 4096 + 1024, 14_336
    found = layer_bytes(model, layout)
    assert found.forward == 2 * 1024 * (8 * d + 2 * qk + 3 * h)
    assert found.backward == 2 * 1024 * (10 * d + 2 * qk + 2 * d + 5 * h)
    eager = layer_bytes(model, replace(layout, kernels="eager"))
    assert eager.forward > 2 * found.forward


def clock(**layout: Any) -> LayerClock:
    return LayerClock(
        MODELS["llama-3-8b"], replace(H100, gpus=8), Layout(**{"sequence": 8192, **layout}), Assumptions()
    )


def test_recomputation_leaves_out_the_last_product() -> None:
    once, half, full = (clock(recompute=kind).layer() for kind in ("none", "half", "full"))
    assert once.forward == half.forward == full.forward
    again = full.backward - once.backward
    assert half.backward - once.backward == pytest.approx(again / 2)
    last = Product(8192, 14_336, 4096)
    rate = H100.peak("bfloat16") * CEILINGS["h100", "bfloat16"] * 0.9
    alone = product_seconds(last, "h100-sxm", "bfloat16", rate, 0.7 * 3.35e12)
    assert again == pytest.approx(once.forward - alone)


def test_a_slow_host_sets_the_pace_of_small_layers_only() -> None:
    given = Assumptions(launch_seconds=1e-3)
    slow = LayerClock(MODELS["llama-3-8b"], H100, Layout(data=8, global_batch=8, sequence=128), given).layer()
    assert slow.forward == 16e-3
    assert slow.backward == 32e-3
    big = LayerClock(MODELS["llama-3-8b"], H100, Layout(sequence=65_536), given).layer()
    assert big.forward == clock(sequence=65_536).layer().forward


def test_a_further_prediction_takes_a_second_head_and_the_product_that_joins_two_vectors() -> None:
    """The join is of 2 x width by width (arXiv:2412.19437, eq. 21): three products of that size in a training step."""
    models = [replace(MODELS["deepseek-v3"], extra_predictions=extra) for extra in (0, 1)]
    one, two = (LayerClock(model, H100, Layout(sequence=4096), Assumptions()).head() for model in models)
    least = 3 * 2 * 4096 * 2 * 7168**2 / (H100.peak("bfloat16") * CEILINGS["h100", "bfloat16"] * 0.9)
    assert least < two - 2 * one < 1.3 * least


def test_power_sets_the_clock_by_its_square_root() -> None:
    run = plan(MODELS["llama-3-8b"], H100, Layout(data=8, global_batch=64, sequence=8192))
    capped = plan(run.model, replace(H100, watts=350), run.layout)
    assert 1.3 < capped.seconds.compute / run.seconds.compute < 2**0.5  # what memory bounds is as fast as before
    assert replace(H100, watts=350).clock_factor == pytest.approx(0.5**0.5)


# --- FSDP and HSDP ---------------------------------------------------------------------------------------------------


def fsdp(micro_batch: int = 1, gpus: int = 64, replicas: int = 1, inter: Link = H100.inter) -> Plan:
    layout = Layout(data=gpus, zero=3, replicas=replicas, micro_batch=micro_batch, global_batch=gpus * micro_batch,
                    sequence=4096)  # fmt: skip
    return plan(MODELS["llama-3-8b"], replace(H100, gpus=gpus, inter=inter), layout)


def test_hidden_communication_delays_what_hides_it_and_the_rest_is_exposed() -> None:
    run = fsdp(micro_batch=8)
    sent = sum(one.seconds for one in run.transfers)
    assert 0.4 * sent < run.seconds.exposed["data"] < 0.5 * sent  # all hidden but the first gather and the last scatter
    free = plan(run.model, run.cluster, run.layout, Assumptions(interference=0.0))
    assert free.seconds.exposed["data"] < 0.1 * sent
    bare = plan(run.model, run.cluster, run.layout, Assumptions(hidden={}))  # its gathers and scatters need no entry
    assert bare.seconds.exposed == run.seconds.exposed
    once = plan(run.model, run.cluster, replace(run.layout, zero=0), Assumptions(hidden={}))
    assert once.seconds.exposed["data"] == pytest.approx(sum(one.seconds for one in once.transfers))
    slow = fsdp(inter=replace(H100.inter, bytes_per_second=2e9))
    sent = sum(one.seconds for one in slow.transfers)
    assert slow.seconds.exposed["data"] > sent - slow.seconds.compute  # nothing hides more than it computes


def test_hsdp_gathers_within_a_replica_and_sums_shares_over_replicas() -> None:
    """Zhao et al., arXiv:2304.11277, sec. 3.2.2: gathers and scatters among F ranks, all-reduces of 1/F among W/F."""
    run = fsdp(gpus=64, replicas=8)
    weights = 2 * run.model.parameters
    sent = {one.operation: one for one in run.transfers}
    assert {name: one.group for name, one in sent.items()} == {"all_gather": 8, "reduce_scatter": 8, "all_reduce": 8}
    assert sent["all_gather"].sent_bytes == pytest.approx(2 * weights * 7 / 8)
    assert sent["reduce_scatter"].sent_bytes == pytest.approx(weights * 7 / 8)
    assert sent["all_reduce"].sent_bytes == pytest.approx(2 * weights / 8 * 7 / 8)
    assert sent["all_reduce"].each_step
    assert run.stages[0].optimizer == pytest.approx(12 * run.model.parameters / 8)
    assert fsdp(gpus=64).stages[0].optimizer == pytest.approx(12 * run.model.parameters / 64)
    slow = replace(H100.inter, bytes_per_second=5e9)
    assert fsdp(gpus=64, replicas=8, inter=slow).step_seconds < fsdp(gpus=64, inter=slow).step_seconds


# --- layouts ---------------------------------------------------------------------------------------------------------


def test_sixty_one_layers_are_dealt_out_and_dense_ones_come_first() -> None:
    model = MODELS["deepseek-v3"]
    for pipeline in (1, 4, 8, 16):
        layout = Layout(pipeline=pipeline, global_batch=pipeline, uneven=True)
        layout.check(model)
        layers = [layout.layers(model, stage) for stage in range(pipeline)]
        assert sum(layers) == 61
        assert max(layers) - min(layers) <= 1
        assert sum(layout.dense_layers(model, stage) for stage in range(pipeline)) == 3
    with_mtp = replace(model, extra_predictions=1)
    assert sum(Layout(pipeline=16, global_batch=16, uneven=True).layers(with_mtp, stage) for stage in range(16)) == 62
    with pytest.raises(PlanError, match="layers = 61 is not divisible by pipeline x chunks = 16"):
        Layout(pipeline=16, global_batch=16).check(model)
    with pytest.raises(PlanError, match="stages empty"):
        Layout(pipeline=64, global_batch=64, uneven=True).check(model)


def test_bubbles_of_the_schedules() -> None:
    """DeepSeek-AI, arXiv:2412.19437, table 2, with F = 1, B = 2, W = 1 and F and B together 3."""
    p, m = 16, 120
    bubbles = {name: Layout(pipeline=p, global_batch=m, schedule=name).bubble * 3 * m
               for name in ("1f1b", "zero-bubble", "dualpipe")}  # fmt: skip
    assert bubbles == pytest.approx({"1f1b": 15 * 3, "zero-bubble": 15 * (1 + 2 - 2), "dualpipe": 7 * (3 + 2 - 3)})


def test_tensor_parallel_is_limited_by_key_value_heads_and_latent_attention_is_not() -> None:
    for name, tensor in (("qwen-3-235b-a22b", 8), ("llama-3-70b", 16)):
        with pytest.raises(
            PlanError, match=f"kv_heads = {MODELS[name].kv_heads} is not divisible by tensor = {tensor}"
        ):
            Layout(tensor=tensor).check(MODELS[name])
    Layout(tensor=16).check(MODELS["deepseek-v3"])


def test_a_rack_of_72_gpus_is_one_node() -> None:
    whole, part = Cluster.named("gb200-nvl72", 72), Cluster.named("gb200-nvl72", 256)
    assert (whole.nodes, part.nodes, part.gpus_per_node) == (1, 4, 64)
    assert float(part.link(1, 64).bytes_per_second) == 900e9
    assert float(part.link(64, 4).bytes_per_second) == 50e9
    assert whole.memory_bytes * 72 == pytest.approx(14.4e12, rel=0.01)  # 13.4 TiB
    assert Cluster.named("gb300-nvl72", 8).memory_bytes > 1.4 * whole.memory_bytes


def test_experts_on_more_gpus_of_a_rack_shrink_the_all_to_all_not_at_all() -> None:
    model = MODELS["deepseek-v3"]
    runs = [
        plan(model, Cluster.named(name, 256), Layout(data=64, pipeline=4, expert=64, zero=1, global_batch=512,
                                                     sequence=4096, uneven=True))
        for name in ("gb200-nvl72", "dgx-b200")
    ]  # fmt: skip
    rack, nodes = (next(one for one in run.transfers if one.way == "expert") for run in runs)
    assert rack.sent_bytes == nodes.sent_bytes == pytest.approx(4 * 16 * 63 / 64 * 2 * 4096 * 8 * 7168)
    whole = Layout(data=256, expert=64, zero=1, global_batch=256, sequence=4096)
    sent = plan(model, Cluster.named("gb200-nvl72", 256), whole).transfers
    assert next(one.calls for one in sent if one.way == "expert") == 4 * 58  # the three dense layers send nothing
    assert nodes.seconds > 1.8 * rack.seconds  # eight ports of 50 GB/s a node against 900 GB/s of NVLink


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Layout(data=8, zero=3, replicas=3, global_batch=8), "replicas=3 must divide the 8"),
        (lambda: Layout(data=8, replicas=2, global_batch=8), "needs ZeRO"),
        (lambda: Layout(schedule="gpipe"), "schedule is one of"),  # type: ignore[arg-type]
        (lambda: Layout(replicas=0), "replicas must be a whole number"),
        (lambda: Layout(pipeline=2).check(MODELS["deepseek-v3"]), "choose a divisor of 61 or uneven=True"),
        (lambda: replace(H100, watts=-5), "watts must be above 0"),
        (lambda: replace(H100, memory_gib=0), "memory_gib must be above 0"),
        (lambda: Assumptions(hidden={"experts": 1.0}), "hidden has an entry for tensor, expert"),
        (lambda: Assumptions(attention_kernel="flash-9"), "attention_kernel is one of"),  # type: ignore[arg-type]
        (lambda: LatentAttention(query_rank=0), "query_rank must be a whole number"),
        (lambda: replace(MODELS["olmo-2-7b"], query_key_norm="heads"), "query_key_norm is one of"),
    ],
)
def test_impossible_input_is_refused_in_one_line(make: Any, says: str) -> None:
    with pytest.raises(PlanError, match=says) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_memory_of_a_rank_of_deepseek_v3_is_what_its_parts_add_up_to() -> None:
    """256 H800s hold one copy: EP 64 of each stage's experts, 16 stages. 671 B weights of 2 bytes are 1.3 TB."""
    model = MODELS["deepseek-v3"]
    layout = Layout(data=64, pipeline=16, expert=64, zero=1, global_batch=1024, sequence=4096, uneven=True)
    held = [stage_memory(model, layout, stage) for stage in range(16)]
    experts = sum(stage.parameter_count[1] for stage in held) * 64
    assert experts == 58 * 256 * model.expert_parameters
    assert sum(stage.parameter_count[0] for stage in held) + experts == model.parameters


def test_dualpipe_holds_two_stages_and_one_more_micro_batch() -> None:
    """DeepSeek-AI, arXiv:2412.19437, table 2: parameters 1 x and 2 x, activations PP and PP + 1."""
    layout = Layout(data=64, pipeline=16, expert=64, zero=1, global_batch=2048, sequence=4096, uneven=True)
    one, two = (stage_memory(MODELS["deepseek-v3"], replace(layout, schedule=name), 0) for name in ("1f1b", "dualpipe"))
    assert two.parameters == 2 * one.parameters
    assert two.gradients == 2 * one.gradients
    assert two.optimizer == one.optimizer  # shared out over twice as many ranks
    assert two.activations == pytest.approx(one.activations * 17 / 16)


def test_a_run_is_read_as_its_source_has_it() -> None:
    run = next(run for run in RUNS if run.group == "DeepSeek-V3, H800")
    assert isinstance(run, PublishedRun)
    assert run.value == pytest.approx(1e12 / (180e3 * 3600), rel=1e-4)  # 180 K GPU hours a trillion tokens
    assert run.cluster.gpus == 2048
    assert run.layout.data * run.layout.pipeline == 2048
    assert run.model == replace(Transformer.named("deepseek-v3"), extra_predictions=1)


def test_the_search_cuts_sixty_one_layers_over_a_rack() -> None:
    best = search(MODELS["deepseek-v3"], Cluster.named("gb200-nvl72", 256), global_batch=1024, sequence=4096, count=3)
    assert all(one.fits and one.layout.ranks == 256 for one in best)
    assert best[0].layout.expert > 1


@pytest.mark.parametrize("pipeline", [2, 4, 16, 32])
@pytest.mark.parametrize("expert", [1, 64])
def test_the_stages_that_tell_are_the_fullest_and_the_slowest(pipeline: int, expert: int) -> None:
    model = MODELS["deepseek-v3"]
    layout = Layout(64, 1, pipeline, expert=expert, zero=1, global_batch=2048, sequence=4096, uneven=True)
    peaks = [stage_memory(model, layout, stage).peak for stage in range(pipeline)]
    sparse = [layout.layers(model, stage) - layout.dense_layers(model, stage) for stage in range(pipeline)]
    told = layout.telling_stages(model)
    assert max(peaks[stage] for stage in told) == max(peaks)
    assert max(sparse[stage] for stage in told) == max(sparse)
