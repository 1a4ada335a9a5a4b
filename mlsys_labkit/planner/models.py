"""Sizes of published models, each with its source."""

from __future__ import annotations

from typing import Any

from mlsys_labkit.planner.attention import LatentAttention

_LLAMA_2 = "Touvron et al., arXiv:2307.09288, and config.json of meta-llama/Llama-2-{}-hf"
_LLAMA_3 = "Grattafiori et al., arXiv:2407.21783, table 3"
_MIXTRAL = "Jiang et al., arXiv:2401.04088, table 1"
_PALM = "Chowdhery et al., arXiv:2204.02311, table 1"
_OLMO_2 = "OLMo et al., arXiv:2501.00656, table 1, and config.json of allenai/OLMo-2-{}"
_NEMOTRON_4 = "Parmar et al., arXiv:2402.16819, table 1, and Adler et al., arXiv:2406.11704, table 1"
_QWEN_3 = "Yang et al., arXiv:2505.09388, table 2, and config.json of Qwen/Qwen3-{}"
_MEGATRON = "Narayanan et al., arXiv:2104.04473, table 1"


Sizes = dict[str, Any]
_NAMES = ("vocabulary", "width", "layers", "heads", "kv_heads", "hidden", "context")


def _llama(source: str, sizes: tuple[int, ...], **more: int) -> Sizes:
    named: Sizes = dict(zip(_NAMES, sizes, strict=True))
    return named | {"head_width": named["width"] // named["heads"], "source": source} | more


def _gpt(source: str, layers: int, width: int, heads: int, vocabulary: int, context: int) -> Sizes:
    """Return the sizes of a GPT as Megatron-LM builds it: an MLP of four times the width, learned positions."""
    shape = _llama(source, (vocabulary, width, layers, heads, heads, 4 * width, context))
    return shape | {"tied": True, "gated": False, "biased": True, "positions": context}


def _qwen(name: str, layers: int, width: int, heads: int, hidden: int) -> Sizes:
    shape = _llama(_QWEN_3.format(name), (151_936, width, layers, heads, 4, hidden, 32_768))
    return shape | {"head_width": 128, "experts": 128, "active_experts": 8, "query_key_norm": "head"}


_WHOLE = {"query_key_norm": "whole"}
PUBLISHED: dict[str, Sizes] = {
    "gpt-2": _gpt("Radford et al. 2019, table 2; config.json of openai-community/gpt2", 12, 768, 12, 50_257, 1024),
    "gpt-3-175b": _gpt("Brown et al., arXiv:2005.14165, table 2.1", 96, 12_288, 96, 50_257, 2048),
    "megatron-1t": _gpt(_MEGATRON, 128, 25_600, 160, 51_200, 2048),
    "llama-2-7b": _llama(_LLAMA_2.format("7b"), (32_000, 4096, 32, 32, 32, 11_008, 4096)),
    "llama-2-70b": _llama(_LLAMA_2.format("70b"), (32_000, 8192, 80, 64, 8, 28_672, 4096)),
    "llama-3-8b": _llama(_LLAMA_3, (128_256, 4096, 32, 32, 8, 14_336, 8192)),
    "llama-3-70b": _llama(_LLAMA_3, (128_256, 8192, 80, 64, 8, 28_672, 8192)),
    "llama-3-405b": _llama(_LLAMA_3, (128_256, 16_384, 126, 128, 8, 53_248, 8192)),
    "llama-2-13b": _llama(_LLAMA_2.format("13b"), (32_000, 5120, 40, 40, 40, 13_824, 4096)),
    "code-llama-34b": _llama(
        "Roziere et al., arXiv:2308.12950, and config.json of codellama/CodeLlama-34b-hf",
        (32_000, 8192, 48, 64, 8, 22_016, 16_384),
    ),
    "olmo-2-7b": _llama(_OLMO_2.format("1124-7B"), (100_352, 4096, 32, 32, 32, 11_008, 4096)) | _WHOLE,
    "olmo-2-13b": _llama(_OLMO_2.format("1124-13B"), (100_352, 5120, 40, 40, 40, 13_824, 4096)) | _WHOLE,
    "olmo-2-32b": _llama(_OLMO_2.format("0325-32B"), (100_352, 5120, 64, 40, 8, 27_648, 4096)) | _WHOLE,
    "nemotron-4-340b": _llama(_NEMOTRON_4, (256_000, 18_432, 96, 96, 8, 73_728, 4096)) | {"gated": False},
    "qwen-3-30b-a3b": _qwen("30B-A3B", 48, 2048, heads=32, hidden=768),
    "qwen-3-235b-a22b": _qwen("235B-A22B", 94, 4096, heads=64, hidden=1536),
    "deepseek-v3": {
        **_llama(
            "DeepSeek-AI, arXiv:2412.19437, sec. 4.2, and config.json of deepseek-ai/DeepSeek-V3, without MTP",
            (129_280, 7168, 61, 128, 128, 2048, 4096),
        ),
        "head_width": 128,
        "latent": LatentAttention(),
        "experts": 256,
        "active_experts": 8,
        "shared_experts": 1,
        "dense_layers": 3,
        "dense_hidden": 18_432,
    },
    "mixtral-8x7b": _llama(_MIXTRAL, (32_000, 4096, 32, 32, 8, 14_336, 32_768), experts=8, active_experts=2),
    "palm-540b": _llama(_PALM, (256_000, 18_432, 118, 48, 1, 4 * 18_432, 2048))
    | {"head_width": 256, "tied": True, "parallel": True},
}
"""Name -> the arguments of ``Transformer``."""
