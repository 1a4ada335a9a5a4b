"""The shape of a decoder-only transformer: its parameters, piece by piece, and its FLOPs, exact and by the rules."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from mlsys_labkit.planner.attention import LatentAttention
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
        shared_experts: further MLPs of a layer with experts, which every token visits.
        dense_layers, dense_hidden: the first layers of a mixture that have one MLP instead of experts, and its width.
        latent: multi-head latent attention (MLA), whose keys and values come from a short vector.
        query_key_norm: RMSNorm of queries and keys, over each "head" or over the "whole" vector.
        extra_predictions: further layers at the end that predict further tokens (DeepSeek-V3's MTP), with the same
            embedding and output layer.
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
    shared_experts: int = 0
    dense_layers: int = 0
    dense_hidden: int = 0
    latent: LatentAttention | None = None
    query_key_norm: Literal["none", "head", "whole"] = "none"
    extra_predictions: int = 0
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
        for size in ("shared_experts", "dense_layers", "dense_hidden", "extra_predictions"):
            value = getattr(self, size)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise PlanError(f"{size} must be a whole number from 0 up, got {value!r}")
        if self.query_key_norm not in ("none", "head", "whole"):
            raise PlanError(f"query_key_norm is one of none, head, whole; got {self.query_key_norm!r}")
        if (self.dense_layers or self.shared_experts) and self.experts == 1:
            raise PlanError("dense_layers and shared_experts belong to a model with experts; set experts above 1")
        if self.dense_layers > self.layers or (self.dense_layers and not self.dense_hidden):
            raise PlanError(
                f"dense_layers is at most layers={self.layers} and needs dense_hidden, got {self.dense_layers} and "
                f"dense_hidden={self.dense_hidden}"
            )
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

        Raises PlanError if the heads do not divide the width.

        Reference: Narayanan et al., arXiv:2104.04473, table 1.
        """
        if heads < 1 or width % heads:
            raise PlanError(f"width must be a multiple of heads: got {width} and {heads}")
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
        """Width of the queries, all heads."""
        return self.heads * (self.latent.query_head_width if self.latent else self.head_width)

    @property
    def kv_width(self) -> int:
        """Width of the keys, and of the values. Latent attention expands them to all heads, values to fewer numbers."""
        return self.query_width if self.latent else self.kv_heads * self.head_width

    @property
    def value_width(self) -> int:
        """Width of what attention hands to the output projection, all heads."""
        return self.heads * (self.latent.value_width if self.latent else self.head_width)

    @property
    def attention_parameters(self) -> int:
        """Parameters of one layer: the matrices of queries, keys, values and output, and their own norms."""
        normed = {"none": 0, "head": 2 * self.head_width, "whole": self.query_width + self.kv_width}
        if self.latent:
            return self.latent.parameters(self.width, self.heads) + normed[self.query_key_norm]
        joint = self.query_width + 2 * self.kv_width
        matrices = self.width * (joint + self.query_width) + (joint + self.width) * self.biased
        return matrices + normed[self.query_key_norm]

    def _mlp_parameters(self, hidden: int) -> int:
        into = 2 if self.gated else 1
        return self.width * hidden * (into + 1) + (into * hidden + self.width) * self.biased

    @property
    def expert_parameters(self) -> int:
        """Parameters of one MLP; of a mixture, of one expert."""
        return self._mlp_parameters(self.hidden)

    @property
    def dense_mlp_parameters(self) -> int:
        """Parameters of the MLP of one of the ``dense_layers``."""
        return self._mlp_parameters(self.dense_hidden)

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
        experts = (self.experts + self.shared_experts) * self.expert_parameters
        return self._bare_layer + experts + self.router_parameters

    @property
    def dense_layer_parameters(self) -> int:
        """Parameters of one of the ``dense_layers``."""
        return self._bare_layer + self.dense_mlp_parameters

    @property
    def _bare_layer(self) -> int:
        return self.attention_parameters + (1 if self.parallel else 2) * self.norm_parameters

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the token table, and of the table of positions if they are learned."""
        return (self.vocabulary + self.positions) * self.width

    @property
    def prediction_parameters(self) -> int:
        """Parameters of the further predictions: each a layer, three norms and a matrix that joins two vectors."""
        each = self.layer_parameters + 3 * self.norm_parameters + 2 * self.width**2
        return self.extra_predictions * each

    @property
    def parameters(self) -> int:
        """Parameters of the whole model; a tied output layer counts once."""
        head = 0 if self.tied else self.vocabulary * self.width
        layers = (self.layers - self.dense_layers) * self.layer_parameters
        layers += self.dense_layers * self.dense_layer_parameters + self.prediction_parameters
        return layers + self.norm_parameters + self.embedding_parameters + head

    @property
    def active_parameters(self) -> int:
        """Parameters that a token uses: all, but of the experts only those it is sent to."""
        sparse = self.layers - self.dense_layers + self.extra_predictions
        return self.parameters - sparse * (self.experts - self.active_experts) * self.expert_parameters

    def kv_bytes_per_token(self, itemsize_bytes: int = 2) -> int:
        """Return the bytes of keys and values of one token in the cache of a serving engine.

        Latent attention caches its short vector and the turned part of the keys, for all heads together.

        Example:
            >>> Transformer.named("deepseek-v3").kv_bytes_per_token()       # "70 KB": arXiv:2505.09343, table 1
            70272
        """
        cached = self.latent.cached_width if self.latent else 2 * self.kv_width
        return self.layers * cached * itemsize_bytes

    # --- FLOPs --------------------------------------------------------------------------------------------------------

    def forward_flops(self, sequences: int, length: int) -> Flops:
        """Return the FLOPs of a forward pass over ``sequences`` of ``length`` tokens.

        Example:
            >>> tiny = Transformer(vocabulary=10, width=4, layers=1, heads=2, kv_heads=1, head_width=2, hidden=8)
            >>> tiny.forward_flops(1, 3)
            Flops(projections=288, attention=144, mlp=576, head=240)
        """
        tokens, extra = sequences * length, self.extra_predictions
        if self.latent:
            projections = self.latent.matrices(self.width, self.heads)
        else:
            projections = 2 * self.width * (self.query_width + self.kv_width)
        layers, matrices = self.layers + extra, (3 if self.gated else 2) * self.width
        visited = (self.active_experts + self.shared_experts) * self.hidden
        mlp = (layers - self.dense_layers) * (matrices * visited + self.router_parameters)
        mlp += self.dense_layers * matrices * self.dense_hidden
        return Flops(
            projections=2 * tokens * (layers * projections + extra * 2 * self.width**2),
            attention=2 * tokens * length * layers * (self.query_width + self.value_width),
            mlp=2 * tokens * mlp,
            head=2 * tokens * self.width * self.vocabulary * (1 + extra),
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
