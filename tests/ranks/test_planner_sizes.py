"""Parameters, FLOPs and ZeRO's bytes against published tables, transformers' own modules and torch's FLOP counter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from mlsys_labkit import lm
from mlsys_labkit.planner import MODELS, PlanError, Precision, Transformer, zero_bytes

# Tensors of the published checkpoints, as their model cards count them.
CHECKPOINTS = {
    "gpt-2": 124_439_808,
    "llama-2-7b": 6_738_415_616,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3-405b": 405_853_388_800,
    "mixtral-8x7b": 46_702_792_704,
}
# Narayanan et al., arXiv:2104.04473, table 1: billions of parameters, heads, width, layers.
MEGATRON = [
    (1.7, 24, 2304, 24),
    (3.6, 32, 3072, 30),
    (7.5, 32, 4096, 36),
    (18.4, 48, 6144, 40),
    (39.1, 64, 8192, 48),
    (76.1, 80, 10240, 60),
    (145.6, 96, 12288, 80),
    (310.1, 128, 16384, 96),
    (529.6, 128, 20480, 105),
    (1008.0, 160, 25600, 128),
]


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_parameters_of_published_checkpoints(name: str) -> None:
    assert Transformer.named(name).parameters == CHECKPOINTS[name]


@pytest.mark.parametrize("row", MEGATRON, ids=lambda row: f"{row[0]}B")
def test_parameters_of_the_megatron_table(row: tuple[float, int, int, int]) -> None:
    billions, heads, width, layers = row
    assert round(Transformer.gpt(layers, width, heads).parameters / 1e9, 1) == billions


def test_parameters_that_papers_print() -> None:
    assert round(Transformer.named("palm-540b").parameters / 1e9, 2) in (540.35, 540.36)  # table 1 prints 540.35
    assert round(Transformer.named("gpt-3-175b").parameters / 1e9) == 175
    assert round(Transformer.named("mixtral-8x7b").active_parameters / 1e9) == 13  # "uses only 13B active parameters"


def _theirs(name: str) -> Any:
    """Build the same model by the transformers library, without memory."""
    transformers = pytest.importorskip("transformers", reason="needs transformers: pip install transformers")
    model = MODELS[name]
    sizes = {
        "vocab_size": model.vocabulary,
        "hidden_size": model.width,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads,
        "intermediate_size": model.hidden,
        "tie_word_embeddings": model.tied,
    }
    if model.latent:
        config = transformers.DeepseekV3Config(
            **sizes | {"intermediate_size": model.dense_hidden},
            moe_intermediate_size=model.hidden,
            n_routed_experts=model.experts,
            n_shared_experts=model.shared_experts,
            first_k_dense_replace=model.dense_layers,
            q_lora_rank=model.latent.query_rank,
            kv_lora_rank=model.latent.kv_rank,
            qk_nope_head_dim=model.latent.no_rope_width,
            qk_rope_head_dim=model.latent.rope_width,
            v_head_dim=model.latent.value_width,
        )
        kind = transformers.DeepseekV3ForCausalLM
    elif model.query_key_norm == "head":
        config = transformers.Qwen3MoeConfig(
            **sizes,
            head_dim=model.head_width,
            moe_intermediate_size=model.hidden,
            num_experts=model.experts,
            num_experts_per_tok=model.active_experts,
        )
        kind = transformers.Qwen3MoeForCausalLM
    elif model.query_key_norm == "whole":
        config, kind = transformers.Olmo2Config(**sizes), transformers.Olmo2ForCausalLM
    elif not model.gated and not model.biased:
        config, kind = transformers.NemotronConfig(**sizes), transformers.NemotronForCausalLM
    elif model.experts > 1:
        config = transformers.MixtralConfig(**sizes, num_local_experts=model.experts)
        kind = transformers.MixtralForCausalLM
    elif model.biased:
        config = transformers.GPT2Config(
            vocab_size=model.vocabulary,
            n_embd=model.width,
            n_layer=model.layers,
            n_head=model.heads,
            n_positions=model.positions,
        )
        kind = transformers.GPT2LMHeadModel
    else:
        config, kind = transformers.LlamaConfig(**sizes), transformers.LlamaForCausalLM
    with torch.device("meta"):
        return kind(config)


@pytest.mark.parametrize("name", [name for name in MODELS if not MODELS[name].parallel])
def test_parameters_are_those_of_the_transformers_library(name: str) -> None:
    """The shifts of Nemotron's LayerNorms are all that the planner leaves out: 0.001 % of it."""
    theirs = _theirs(name).named_parameters()
    left_out = "norm.bias" if name.startswith("nemotron") else "nothing"
    assert MODELS[name].parameters == sum(weight.numel() for key, weight in theirs if not key.endswith(left_out))


def test_deepseek_v3_is_as_large_as_its_report_says() -> None:
    """DeepSeek-AI, arXiv:2412.19437, abstract: 671B, 37B a token; its model card: 685B with the MTP module."""
    model = Transformer.named("deepseek-v3")
    assert round(model.parameters / 1e9) == 671
    assert round(model.active_parameters / 1e9, 1) == 37.6  # 36.6 without the embedding
    mtp = replace(model, extra_predictions=1)
    tables = 2 * model.vocabulary * model.width  # stored a second time
    assert (mtp.parameters + tables) / 1e9 == pytest.approx(685, rel=0.001)


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("olmo-2-7b", 7.3),
        ("olmo-2-13b", 13.7),
        ("olmo-2-32b", 32.2),
        ("qwen-3-30b-a3b", 30.5),
        ("qwen-3-235b-a22b", 235),
    ],
)
def test_parameters_of_the_model_cards(name: str, billions: float) -> None:
    assert Transformer.named(name).parameters / 1e9 == pytest.approx(billions, rel=0.003)


def test_flops_of_deepseek_v3_are_those_that_nvidia_counts() -> None:
    """NVIDIA Megatron Bridge 25.11: 961 TFLOP/s at 3,848 tokens/s, without MTP and without masked scores."""
    model = Transformer.named("deepseek-v3")
    forward = model.forward_flops(1, 4096)
    assert 3 * (forward.total - forward.attention / 2) / 4096 == pytest.approx(961e12 / 3848, rel=0.01)


SMALL = lm.Config(vocabulary=300, width=48, layers=3, heads=6, kv_heads=2, head_width=10, hidden=112, tied=False)


def test_a_shape_of_the_kits_own_model() -> None:
    assert Transformer.from_config(SMALL).parameters == SMALL.parameters
    assert Transformer.from_config(SMALL).kv_bytes_per_token(4) == SMALL.cache_bytes_per_token(4)


def test_forward_flops_are_those_that_torch_counts() -> None:
    with torch.device("meta"):
        model = lm.LanguageModel(SMALL)
        with FlopCounterMode(display=False) as counter:
            model(torch.zeros(2, 64, dtype=torch.int64))
    assert Transformer.from_config(SMALL).forward_flops(2, 64).total == counter.get_total_flops()


def test_flops_of_a_gpt_are_the_published_formula() -> None:
    """Narayanan et al., eq. 3 without recomputation: 72 B s l h² (1 + s/6h + V/12lh) forward and backward."""
    layers, width, vocabulary, batch, length = 80, 12288, 51_200, 3, 2048
    theirs = 72 * batch * length * layers * width**2 * (
        1 + length / (6 * width) + vocabulary / (12 * layers * width)
    )  # fmt: skip
    ours = Transformer.gpt(layers, width, 96, vocabulary, length).training_work(batch, length)
    assert ours.flops == pytest.approx(theirs, rel=1e-12)
    assert ours.how["flops"] == "formula"


def test_flops_of_palm_give_its_published_utilisation() -> None:
    """Chowdhery et al., table 3: 238.3k tokens/s on 6144 TPU v4 of 275 TFLOP/s are 46.2 % model FLOPs utilisation."""
    flops = 238.3e3 * Transformer.named("palm-540b").training_flops_per_token(2048)
    assert flops / (6144 * 275e12) == pytest.approx(0.462, abs=0.0005)


def test_zero_table_as_printed() -> None:
    """Rajbhandari et al., fig. 1: 7.5 B parameters, 64 ranks, K = 12."""
    printed = [round(zero_bytes(7.5e9, 64, stage).total / 1e9, 1) for stage in range(4)]
    assert printed == [120.0, 31.4, 16.6, 1.9]


def test_zero_of_one_rank_shares_nothing_and_single_precision_is_sixteen_bytes() -> None:
    for stage in range(4):
        assert zero_bytes(1000, 1, stage).total == 16_000
        assert zero_bytes(1000, 1, stage, Precision.single()).total == 16_000
    assert zero_bytes(1000, 4, 1, Precision.single()).optimizer == 2000


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: zero_bytes(1e9, 8, 4), "0, 1, 2 or 3"),
        (lambda: zero_bytes(1e9, 0, 1), "at least one rank"),
        (lambda: Transformer.named("llama-9"), "llama-3-8b"),
        (lambda: Transformer.named("llama-3-8b").resized(layers=0), "layers must be"),
        (lambda: Transformer.named("llama-3-8b").resized(kv_heads=5), "multiple of kv_heads"),
        (lambda: Transformer.named("mixtral-8x7b").resized(active_experts=9), "at most all 8"),
        (lambda: Transformer.named("llama-3-8b").resized(shared_experts=1), "set experts above 1"),
        (lambda: Transformer.named("deepseek-v3").resized(dense_layers=62), "at most layers=61"),
        (lambda: Transformer.named("deepseek-v3").resized(extra_predictions=-1), "from 0 up"),
    ],
)
def test_impossible_sizes_are_refused_in_one_line(make: Any, says: str) -> None:
    with pytest.raises(PlanError, match=says) as caught:
        make()
    assert "\n" not in str(caught.value)
