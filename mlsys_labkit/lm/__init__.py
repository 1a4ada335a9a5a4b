"""A tiny, real language model that needs no network, and the loader for larger ones.

    from mlsys_labkit import lm

    model, tokenizer = lm.load()                        # 3.5 million parameters, trained by this repository
    for token in lm.generate(model, tokenizer.encode("def read"), 50):
        print(tokenizer.decode([token]), end="")
    lm.perplexity(model, tokens)                        # how well a text is predicted
    lm.load("path/to/a/llama/folder")                   # any Llama checkpoint in Hugging Face's format

Needs torch and safetensors (the extra ``torch``); they are imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from mlsys_labkit.errors import require

_HOME = {
    "Config": "config",
    "KVCache": "cache",
    "LanguageModel": "model",
    "Tokenizer": "tokenizer",
    "CheckpointError": "errors",
    "ContextError": "errors",
    "generate": "text",
    "held_out": "checkpoint",
    "load": "checkpoint",
    "nats_per_token": "text",
    "perplexity": "text",
    "save": "checkpoint",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if _HOME[name] in ("cache", "model", "text", "checkpoint"):
        require("torch", "torch")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__


if TYPE_CHECKING:
    from mlsys_labkit.lm.cache import KVCache as KVCache
    from mlsys_labkit.lm.checkpoint import held_out as held_out
    from mlsys_labkit.lm.checkpoint import load as load
    from mlsys_labkit.lm.checkpoint import save as save
    from mlsys_labkit.lm.config import Config as Config
    from mlsys_labkit.lm.errors import CheckpointError as CheckpointError
    from mlsys_labkit.lm.errors import ContextError as ContextError
    from mlsys_labkit.lm.model import LanguageModel as LanguageModel
    from mlsys_labkit.lm.text import generate as generate
    from mlsys_labkit.lm.text import nats_per_token as nats_per_token
    from mlsys_labkit.lm.text import perplexity as perplexity
    from mlsys_labkit.lm.tokenizer import Tokenizer as Tokenizer
