"""Tests of the model against transformers' Llama on small random weights, and of its cache against no cache."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st

from mlsys_labkit import lm
from mlsys_labkit.lm.checkpoint import WEIGHTS
from mlsys_labkit.lm.model import rotary_angles

SHAPES: list[dict[str, Any]] = [
    {"num_attention_heads": 4, "num_key_value_heads": 4, "tie_word_embeddings": True},
    {"num_attention_heads": 8, "num_key_value_heads": 2, "tie_word_embeddings": False},
    {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "tie_word_embeddings": False},
    {"num_attention_heads": 4, "num_key_value_heads": 2, "rope_theta": 500_000.0, "rms_norm_eps": 1e-3},
]

# Of the pairs of a head 16 wide, two keep their frequency, two are slowed down gradually, and four by the whole factor.
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3 |= {"original_max_position_embeddings": 32}
SHAPES.append({"num_attention_heads": 4, "num_key_value_heads": 2, "rope_theta": 500.0, "rope_scaling": LLAMA3})


def random_llama(folder: Path, **shape: Any) -> Any:
    """Save a Llama of transformers in ``folder``, with weights large enough that every part matters."""
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=97, hidden_size=64, intermediate_size=112, num_hidden_layers=3, max_position_embeddings=64,
        **{"rms_norm_eps": 1e-5, **shape},
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config).eval()
    for name, weight in model.named_parameters():
        torch.nn.init.normal_(weight, mean=1.0 if "norm" in name else 0.0, std=0.2)
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text((Path(str(WEIGHTS)) / "tokenizer.json").read_text())
    return model


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_equal_those_of_transformers(tmp_path: Path, shape: dict[str, Any]) -> None:
    theirs = random_llama(tmp_path, **shape)
    ours, _ = lm.load(tmp_path)
    tokens = torch.randint(97, (3, 40), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = theirs(tokens).logits
        actual = ours(tokens)
    assert expected.std() > 0.5, "weights too small to tell anything"
    assert (actual - expected).abs().max() <= 1e-5 * expected.abs().max()


def test_llama3_rope_equals_that_of_transformers() -> None:
    """The numbers of Llama 3.1 8B, 3.1 405B, 3.2 1B and a small model, at positions up to the end of the context."""
    import transformers
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    for factor, original, width, base in (
        (8.0, 8192, 128, 5e5), (8.0, 8192, 128, 1e4), (32.0, 8192, 64, 5e5), (4.0, 32, 16, 500.0)
    ):  # fmt: skip
        told = {**LLAMA3, "factor": factor, "original_max_position_embeddings": original}
        sizes = {"hidden_size": width, "num_attention_heads": 1, "num_key_value_heads": 1}
        theirs = transformers.LlamaConfig(
            **sizes, head_dim=width, max_position_embeddings=131072, rope_parameters={**told, "rope_theta": base}
        )
        for told_config in (
            json.loads(theirs.to_json_string()),
            {"model_type": "llama", **told_before(theirs, told, base)},
        ):
            config = lm.Config.from_llama(told_config)
            assert config.rope_scaling == lm.RopeScaling(factor, 1.0, 4.0, original)
            positions = torch.tensor([0, 1, 31, 8191, 8192, 100_000, 131_071])
            cosine, sine = LlamaRotaryEmbedding(theirs)(torch.zeros(1), positions[None])
            ours = rotary_angles(config, positions)
            # A float32 angle of 131,071 has an error of 0.008 by itself.
            assert torch.allclose(ours[0], cosine[0], rtol=0, atol=0.02)
            assert torch.allclose(ours[1][:4], sine[0][:4], rtol=0, atol=1e-3)
            assert lm.Config.from_llama(config.to_llama()) == config


def told_before(config: Any, scaling: dict[str, Any], base: float) -> dict[str, Any]:
    """Return the settings in the form that Meta's own checkpoints have."""
    kept = {name: value for name, value in config.to_dict().items() if name not in ("rope_parameters", "model_type")}
    return {**kept, "rope_theta": base, "rope_scaling": scaling}


def test_damaged_rope_is_refused_by_name() -> None:
    settings = lm.Config(40, 24, 1, 4, 2, 6, 32).to_llama()
    for scaling, says in (
        ({"rope_type": "yarn", "factor": 4.0}, "rope type = 'yarn'; this model computes default and llama3 only"),
        ({"type": "linear", "factor": 4.0}, "rope type = 'linear'"),
        ({k: v for k, v in LLAMA3.items() if k != "factor"}, "and has no 'factor'"),
        ({**LLAMA3, "factor": "x"}, "rope_scaling is damaged"),
        ({**LLAMA3, "high_freq_factor": 1.0}, "a scaled RoPE takes factor >= 1, 0 < low < high"),
        ("llama3", "rope_scaling is no object"),
    ):
        with pytest.raises(lm.CheckpointError, match=says):
            lm.Config.from_llama({**settings, "rope_scaling": scaling})


def test_a_checkpoint_in_several_files_is_read_whole(tmp_path: Path) -> None:
    theirs = random_llama(tmp_path / "one", **SHAPES[1])
    theirs.save_pretrained(tmp_path / "many", max_shard_size="100KB")
    (tmp_path / "many/tokenizer.json").write_text((tmp_path / "one/tokenizer.json").read_text())
    assert len(list((tmp_path / "many").glob("*.safetensors"))) > 1
    tokens = torch.arange(30)[None]
    with torch.no_grad():
        assert torch.equal(lm.load(tmp_path / "one")[0](tokens), lm.load(tmp_path / "many")[0](tokens))


def test_transformers_reads_the_kits_weights() -> None:
    import transformers

    theirs = transformers.AutoModelForCausalLM.from_pretrained(str(WEIGHTS), dtype=torch.float32)
    ours, tokenizer = lm.load()
    tokens = torch.tensor([tokenizer.encode("The for statement is used to iterate over")])
    with torch.no_grad():
        assert (ours(tokens) - theirs(tokens).logits).abs().max() <= 1e-4


@given(cuts=st.lists(st.integers(1, 39), max_size=6), heads=st.sampled_from([(4, 4), (4, 2), (6, 1)]))
@settings(max_examples=25, deadline=None)
def test_cache_keeps_logits_for_any_chunking(cuts: list[int], heads: tuple[int, int]) -> None:
    config = lm.Config(
        vocabulary=50, width=24, layers=2, heads=heads[0], kv_heads=heads[1], head_width=6, hidden=32, context=64
    )
    torch.manual_seed(0)
    model = lm.LanguageModel(config).eval().double()
    tokens = torch.randint(50, (2, 40))
    cache = lm.KVCache(config, batch=2, capacity=40, dtype=torch.float64)
    with torch.no_grad():
        whole = model(tokens)
        bounds = [0, *sorted(set(cuts)), 40]
        parts = [model(tokens[:, start:end], cache) for start, end in pairwise(bounds)]
    assert torch.allclose(torch.cat(parts, dim=1), whole, rtol=0, atol=1e-5)
    assert cache.length == 40


def test_config_counts_the_models_parameters() -> None:
    for tied in (True, False):
        config = lm.Config(40, 24, 3, 4, 2, 6, 32, tied=tied)
        assert sum(weight.numel() for weight in lm.LanguageModel(config).parameters()) == config.parameters
    assert lm.KVCache(config, batch=2, capacity=5).bytes == 2 * 5 * config.cache_bytes_per_token(4)


def test_full_cache_and_long_text_raise_context_error() -> None:
    config = lm.Config(40, 24, 1, 4, 2, 6, 32, context=8)
    model = lm.LanguageModel(config)
    with pytest.raises(lm.ContextError, match="the model has 8 positions and got 9"):
        model(torch.zeros(1, 9, dtype=torch.long))
    with pytest.raises(lm.ContextError, match="room for 4 tokens a sequence, not 5"):
        model(torch.zeros(1, 5, dtype=torch.long), lm.KVCache(config, capacity=4))
    with pytest.raises(lm.ContextError, match="both from 1 up"):
        model(torch.zeros(1, 0, dtype=torch.long))
    for prompt, new, options in (([40], 1, {}), ([-1], 1, {}), ([1], -3, {}), ([1], 1, {"temperature": -1.0})):
        with pytest.raises(lm.TokenError, match=r"the model's tokens are 0 to 39|0 or more, got"):
            list(lm.generate(model, prompt, new, **options))
    with pytest.raises(lm.ContextError, match="window takes 8 tokens and the text has 5"):
        lm.perplexity(model, torch.zeros(5, dtype=torch.long))


def broken(folder: Path, name: str) -> None:
    settings = json.loads((folder / "config.json").read_text())
    match name:
        case "no config":
            (folder / "config.json").unlink()
        case "no weights":
            (folder / "model.safetensors").unlink()
        case "cut weights":
            raw = (folder / "model.safetensors").read_bytes()
            (folder / "model.safetensors").write_bytes(raw[: len(raw) // 2])
        case "no tokenizer":
            (folder / "tokenizer.json").unlink()
        case "another architecture":
            (folder / "config.json").write_text(json.dumps({**settings, "model_type": "gpt2"}))
        case "a scaled rope":
            rope = {"rope_type": "llama3", "factor": 8.0}
            (folder / "config.json").write_text(json.dumps({**settings, "rope_scaling": rope}))
        case "another width":
            (folder / "config.json").write_text(json.dumps({**settings, "intermediate_size": 100}))
        case "more layers":
            (folder / "config.json").write_text(json.dumps({**settings, "num_hidden_layers": 4}))
        case "fewer layers":
            (folder / "config.json").write_text(json.dumps({**settings, "num_hidden_layers": 2}))


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        ("no config", "there is no config.json"),
        ("no weights", "there is no model.safetensors"),
        ("cut weights", "cannot be read"),
        ("no tokenizer", "there is no tokenizer.json"),
        ("another architecture", "model_type = 'gpt2'; this model computes 'llama' only"),
        ("a scaled rope", "rope type = 'llama3'"),
        ("another width", r"should be \[100, 64\] by config.json and is \[112, 64\]"),
        ("more layers", "lacks model.layers.3"),
        ("fewer layers", "which the model of its config.json does not have"),
    ],
)
def test_damaged_checkpoint_is_refused_in_one_line(tmp_path: Path, damage: str, says: str) -> None:
    random_llama(tmp_path, **SHAPES[0])
    broken(tmp_path, damage)
    with pytest.raises(lm.CheckpointError, match=says) as raised:
        lm.load(tmp_path)
    assert "\n" not in str(raised.value)


def test_loading_a_model_imports_no_compiler() -> None:
    """Load where nothing else has imported it: that alone takes two seconds."""
    code = "import sys; from mlsys_labkit import lm; lm.load(); sys.exit('torch._dynamo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
