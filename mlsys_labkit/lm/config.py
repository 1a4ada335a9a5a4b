"""The shape of a decoder-only transformer, and what it costs in parameters and cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlsys_labkit.lm.errors import CheckpointError


@dataclass(frozen=True)
class RopeScaling:
    """The change that Llama 3.1 makes to RoPE, by which a model reads longer texts than it was first trained on.

    A pair that turns fully at least ``high`` times within ``original_context`` positions keeps its frequency, one that
    turns at most ``low`` times is slowed down by ``factor``, and in between the change is gradual.

    Example:
        >>> RopeScaling(factor=8.0, low=1.0, high=4.0, original_context=8192).factor
        8.0

    Reference: Grattafiori et al., "The Llama 3 Herd of Models", arXiv:2407.21783, sec. 3.4.2; its numbers are in the
    ``config.json`` of each checkpoint.
    """

    factor: float
    low: float
    high: float
    original_context: int

    def __post_init__(self) -> None:
        sound = self.factor >= 1 and 0 < self.low < self.high and self.original_context >= 1
        if not sound:
            raise CheckpointError(
                f"a scaled RoPE takes factor >= 1, 0 < low < high and an original context from 1 up, got {self}"
            )


@dataclass(frozen=True)
class Config:
    """Sizes in the notation of the field: V tokens, width d, L layers, H heads that share K key-value heads of width h.

    Example:
        >>> tiny = Config(vocabulary=2048, width=256, layers=4, heads=8, kv_heads=4, head_width=32, hidden=704)
        >>> tiny.parameters
        3475712
        >>> tiny.cache_bytes_per_token(2)
        2048

    Reference: Touvron et al., "LLaMA", arXiv:2302.13971, sec. 2; Ainslie et al., "GQA", arXiv:2305.13245.
    """

    vocabulary: int
    width: int
    layers: int
    heads: int
    kv_heads: int
    head_width: int
    hidden: int
    context: int = 512
    rope_base: float = 10_000.0
    norm_epsilon: float = 1e-5
    tied: bool = True  # the output layer is the embedding's transpose
    rope_scaling: RopeScaling | None = None

    def __post_init__(self) -> None:
        for name in ("vocabulary", "width", "layers", "heads", "kv_heads", "head_width", "hidden", "context"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                raise CheckpointError(f"{name} must be a whole number from 1 up, got {getattr(self, name)!r}")
        if self.heads % self.kv_heads:
            raise CheckpointError(f"heads must be a multiple of kv_heads: got {self.heads} and {self.kv_heads}")
        if self.head_width % 2:
            raise CheckpointError(f"head_width must be even, since RoPE turns pairs: got {self.head_width}")

    @property
    def parameters(self) -> int:
        """Count the weights of the whole model; a tied output layer counts once."""
        attention = 2 * self.width * self.head_width * (self.heads + self.kv_heads)
        layer = attention + 3 * self.width * self.hidden + 2 * self.width
        return self.layers * layer + self.width + self.vocabulary * self.width * (1 if self.tied else 2)

    def cache_bytes_per_token(self, itemsize_bytes: int) -> int:
        """Return the bytes of keys and values per cached token of one sequence: 2·L·K·h items."""
        return 2 * self.layers * self.kv_heads * self.head_width * itemsize_bytes

    def to_llama(self) -> dict[str, Any]:
        """Return the settings as ``config.json`` of a Llama checkpoint in Hugging Face's format has them."""
        settings: dict[str, Any] = {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": self.vocabulary,
            "hidden_size": self.width,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_width,
            "intermediate_size": self.hidden,
            "max_position_embeddings": self.context,
            "rope_theta": self.rope_base,
            "rms_norm_eps": self.norm_epsilon,
            "tie_word_embeddings": self.tied,
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
        }
        if self.rope_scaling:
            settings["rope_scaling"] = {
                "rope_type": "llama3",
                "factor": self.rope_scaling.factor,
                "low_freq_factor": self.rope_scaling.low,
                "high_freq_factor": self.rope_scaling.high,
                "original_max_position_embeddings": self.rope_scaling.original_context,
            }
        return settings

    @classmethod
    def from_llama(cls, settings: Mapping[str, Any]) -> Config:
        """Read ``config.json`` of a Llama checkpoint.

        Raises CheckpointError when a size is missing, or for what this model does not compute: another architecture,
        biases, another activation, a RoPE scaled in another way than Llama 3.1's.
        """
        rope = settings.get("rope_parameters") or {}
        scaling = settings.get("rope_scaling") or {}
        if not isinstance(rope, dict) or not isinstance(scaling, dict):
            raise CheckpointError("config.json's rope_scaling is no object; fetch it again")
        kinds = {each.get("rope_type", each.get("type", "default")) for each in (rope, scaling)} - {"default"}
        expected = {
            "model_type": (settings.get("model_type"), "llama"),
            "hidden_act": (settings.get("hidden_act", "silu"), "silu"),
            "attention_bias": (settings.get("attention_bias", False), False),
            "mlp_bias": (settings.get("mlp_bias", False), False),
        }
        for name, (actual, wanted) in expected.items():
            if actual != wanted:
                raise CheckpointError(f"config.json says {name} = {actual!r}; this model computes {wanted!r} only")
        if kinds - {"llama3"}:
            named = ", ".join(map(str, sorted(kinds, key=str)))
            raise CheckpointError(
                f"config.json says rope type = {named!r}; this model computes default and llama3 only"
            )
        try:
            heads = settings["num_attention_heads"]
            return cls(
                vocabulary=settings["vocab_size"],
                width=settings["hidden_size"],
                layers=settings["num_hidden_layers"],
                heads=heads,
                kv_heads=settings.get("num_key_value_heads") or heads,
                head_width=settings.get("head_dim") or settings["hidden_size"] // heads,
                hidden=settings["intermediate_size"],
                context=settings.get("max_position_embeddings", 2048),
                rope_base=float(rope.get("rope_theta", settings.get("rope_theta", 10_000.0))),
                norm_epsilon=settings.get("rms_norm_eps", 1e-6),
                tied=settings.get("tie_word_embeddings", False),
                rope_scaling=_llama3(rope | scaling) if kinds else None,
            )
        except KeyError as missing:
            raise CheckpointError(f"config.json has no {missing}; a Llama checkpoint's has") from None


def _llama3(settings: Mapping[str, Any]) -> RopeScaling:
    try:
        return RopeScaling(
            factor=float(settings["factor"]),
            low=float(settings["low_freq_factor"]),
            high=float(settings["high_freq_factor"]),
            original_context=int(settings["original_max_position_embeddings"]),
        )
    except KeyError as missing:
        raise CheckpointError(f"config.json says rope type = 'llama3' and has no {missing}; fetch it again") from None
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"config.json's rope_scaling is damaged ({error}); fetch it again") from None
