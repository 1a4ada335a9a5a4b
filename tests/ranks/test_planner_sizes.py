"""Parameters, FLOPs and ZeRO's bytes against published tables, transformers' own modules and torch's FLOP counter."""

from __future__ import annotations

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
    if model.experts > 1:
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
    assert MODELS[name].parameters == sum(weight.numel() for weight in _theirs(name).parameters())


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
    ],
)
def test_impossible_sizes_are_refused_in_one_line(make: Any, says: str) -> None:
    with pytest.raises(PlanError, match=says) as caught:
        make()
    assert "\n" not in str(caught.value)
