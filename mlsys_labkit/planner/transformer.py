"""The shape of a decoder-only transformer: its parameters, piece by piece, and its FLOPs, exact and by the rules."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mlsys_labkit.planner.errors import PlanError
from mlsys_labkit.planner.models import PUBLISHED
from mlsys_labkit.work import Work

if TYPE_CHECKING:
    from mlsys_labkit.lm import Config

_SIZES = ("vocabulary", "width", "layers", "heads", "kv_heads", "head_width", "hidden", "context")


@dataclass(frozen=True)
class Flops:
    """FLOPs of a forward pass, a multiply-add being two. Norms, activations, softmax and RoPE are left out.

    Args:
        projections: queries, keys, values and the output of attention, all layers.
        attention: scores and their mixing of values, over all pairs of positions, as PaLM and Megatron-LM count.
            A causal kernel that skips the upper triangle does about half of it.
        mlp: all layers; of a mixture, the experts that a token visits, and the router.
        head: the output layer.
    """

    projections: int
    attention: int
    mlp: int
    head: int

    @property
    def layers(self) -> int:
        """FLOPs of everything but the output layer."""
        return self.projections + self.attention + self.mlp

    @property
    def total(self) -> int:
        return self.layers + self.head


@dataclass(frozen=True)
class Transformer:
    """Sizes in the field's notation: V tokens, width d, H heads that share K key-value heads, hidden width of the MLP.

    Args:
        tied: the output layer is the embedding's transpose.
        gated: the MLP has a gate (SwiGLU, three matrices) instead of two matrices and a GELU.
        biased: the block of GPT-2: biases on all matrices of a layer, LayerNorm (scale and shift), dropout masks.
            Without, RMSNorm.
        positions: rows of a learned table of positions, 0 for RoPE.
        experts, active_experts: MLPs of a layer, and how many of them a token visits. One is a dense model.
        parallel: attention and MLP read the same normalised input (PaLM), one norm per layer instead of two.
        name, source: of a published model, and where its sizes stand.

    Raises PlanError for a size that cannot be.

    Example:
        >>> model = Transformer.named("llama-3-8b")
        >>> model.parameters
        8030261248
        >>> round(6 * model.parameters / model.training_flops_per_token(8192), 2)   # attention is what 6N leaves out
        0.83

    Reference: Touvron et al., "LLaMA", arXiv:2302.13971; Narayanan et al., arXiv:2104.04473, eq. 2 (parameters of GPT).
    """

    vocabulary: int
    width: int
    layers: int
    heads: int
    kv_heads: int
    head_width: int
    hidden: int
    context: int = 2048
    tied: bool = False
    gated: bool = True
    biased: bool = False
    positions: int = 0
    experts: int = 1
    active_experts: int = 1
    parallel: bool = False
    name: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        for size in (*_SIZES, "experts", "active_experts"):
            value = getattr(self, size)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise PlanError(f"{size} must be a whole number from 1 up, got {value!r}")
        if self.heads % self.kv_heads:
            raise PlanError(f"heads must be a multiple of kv_heads: got {self.heads} and {self.kv_heads}")
        if self.active_experts > self.experts:
            raise PlanError(
                f"a token visits at most all {self.experts} experts, got active_experts={self.active_experts}"
            )

    @classmethod
    def from_config(cls, config: Config) -> Transformer:
        """Return the shape of a model of ``mlsys_labkit.lm``."""
        return cls(**{size: getattr(config, size) for size in (*_SIZES, "tied")})

    @classmethod
    def gpt(cls, layers: int, width: int, heads: int, vocabulary: int = 51_200, context: int = 2048) -> Transformer:
        """Return a GPT as Megatron-LM builds it: tied, biased, learned positions, an MLP of four times the width.

        Example:
            >>> round(Transformer.gpt(layers=128, width=25600, heads=160).parameters / 1e9, 1)
            1008.0

        Reference: Narayanan et al., arXiv:2104.04473, table 1.
        """
        sizes = (vocabulary, width, layers, heads, heads, width // heads, 4 * width, context)
        return cls(*sizes, tied=True, gated=False, biased=True, positions=context)

    @classmethod
    def named(cls, name: str) -> Transformer:
        """Return a published model by a name in ``planner.MODELS``. Raises PlanError for other names."""
        if name not in MODELS:
            raise PlanError(f"no model {name!r}; there are {', '.join(MODELS)}")
        return MODELS[name]

    def resized(self, **sizes: int) -> Transformer:
        """Return the same kind of model in another size, without the name and the source of the published one."""
        return replace(self, **sizes, name="", source="")  # type: ignore[arg-type]

    # --- parameters ---------------------------------------------------------------------------------------------------

    @property
    def query_width(self) -> int:
        return self.heads * self.head_width

    @property
    def kv_width(self) -> int:
        """Width of the keys, and of the values."""
        return self.kv_heads * self.head_width

    @property
    def attention_parameters(self) -> int:
        """Parameters of one layer: the matrices of queries, keys, values and output."""
        joint = self.query_width + 2 * self.kv_width
        return self.width * (joint + self.query_width) + (joint + self.width) * self.biased

    @property
    def expert_parameters(self) -> int:
        """Parameters of one MLP."""
        into = 2 if self.gated else 1
        return self.width * self.hidden * (into + 1) + (into * self.hidden + self.width) * self.biased

    @property
    def router_parameters(self) -> int:
        """Parameters of the router of one layer; a dense layer has none."""
        return self.width * self.experts if self.experts > 1 else 0

    @property
    def norm_parameters(self) -> int:
        """Parameters of one norm."""
        return self.width * (2 if self.biased else 1)

    @property
    def layer_parameters(self) -> int:
        """Parameters of one layer with all experts."""
        norms = (1 if self.parallel else 2) * self.norm_parameters
        return self.attention_parameters + self.experts * self.expert_parameters + self.router_parameters + norms

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the token table, and of the table of positions if they are learned."""
        return (self.vocabulary + self.positions) * self.width

    @property
    def parameters(self) -> int:
        """Parameters of the whole model; a tied output layer counts once."""
        head = 0 if self.tied else self.vocabulary * self.width
        return self.layers * self.layer_parameters + self.norm_parameters + self.embedding_parameters + head

    @property
    def active_parameters(self) -> int:
        """Parameters that a token uses: all, but of the experts only those it is sent to."""
        return self.parameters - self.layers * (self.experts - self.active_experts) * self.expert_parameters

    def kv_bytes_per_token(self, itemsize_bytes: int = 2) -> int:
        """Return the bytes of keys and values of one token in the cache of a serving engine."""
        return 2 * self.layers * self.kv_width * itemsize_bytes

    # --- FLOPs --------------------------------------------------------------------------------------------------------

    def forward_flops(self, sequences: int, length: int) -> Flops:
        """Return the FLOPs of a forward pass over ``sequences`` of ``length`` tokens.

        Example:
            >>> tiny = Transformer(vocabulary=10, width=4, layers=1, heads=2, kv_heads=1, head_width=2, hidden=8)
            >>> tiny.forward_flops(1, 3)
            Flops(projections=288, attention=144, mlp=576, head=240)
        """
        tokens = sequences * length
        joint = 2 * (self.query_width + self.kv_width)
        mlp = self.active_experts * (3 if self.gated else 2) * self.width * self.hidden + self.router_parameters
        return Flops(
            projections=2 * tokens * self.layers * self.width * joint,
            attention=4 * tokens * length * self.layers * self.query_width,
            mlp=2 * tokens * self.layers * mlp,
            head=2 * tokens * self.width * self.vocabulary,
        )

    def training_flops_per_token(self, length: int) -> int:
        """Return the FLOPs per token of forward and backward (3 x forward), in sequences of ``length`` tokens."""
        return 3 * self.forward_flops(1, length).total // length

    def training_work(self, sequences: int, length: int, dtype: str = "bfloat16") -> Work:
        """Return forward and backward as ``Work``: FLOPs by formula, no bytes."""
        flops = 3 * self.forward_flops(sequences, length).total
        return Work(
            flops=flops, dtype=dtype, name=f"training of {self.name or 'a transformer'}", how={"flops": "formula"}
        )


MODELS = {name: Transformer(**sizes, name=name) for name, sizes in PUBLISHED.items()}
"""Name -> ``Transformer``: the published models."""
