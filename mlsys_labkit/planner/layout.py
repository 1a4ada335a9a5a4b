"""The layout of a training run: data, tensor, pipeline, expert, context parallel, ZeRO, micro-batches, recompute."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from mlsys_labkit.planner.errors import PlanError
from mlsys_labkit.planner.state import Precision
from mlsys_labkit.planner.transformer import Transformer

Recompute = Literal["none", "selective", "full"]
_SIZES = ["data", "tensor", "pipeline", "context", "expert", "micro_batch", "global_batch", "sequence", "chunks"]


@dataclass(frozen=True)
class Layout:
    """One way to train; ``data * tensor * pipeline * context`` GPUs take part.

    Args:
        data, tensor, pipeline, context: ranks along each way of cutting.
        expert: ranks that share out a layer's experts; they are taken from the data-parallel ones.
        zero: ZeRO stage over the data and context-parallel ranks: 0 nothing, 1 optimizer, 2 gradients, 3 parameters.
        micro_batch, global_batch: sequences of a micro-batch, and of a step over all ranks.
        sequence: tokens of a sequence.
        chunks: pieces of the model on each pipeline rank (interleaved 1F1B), 1 for plain 1F1B.
        ends_as_layers: embedding and output layer count as a layer each when layers are dealt out to pipeline stages.
        recompute: "none"; "selective", the attention scores again in backward; "full", keep only each layer's input.
        offload: "optimizer" keeps the optimizer's state, and does its step, in the host's memory.
        sequence_parallel: what tensor parallel ranks would hold twice is cut along the sequence.
        kernels: "fused", norms, RoPE, gates and loss save as little as they can; "eager", each operation of PyTorch
            saves its own, as in ``mlsys_labkit.lm``.
        flash: attention keeps no scores (FlashAttention); without, softmax saves them.
        precision: bytes per parameter.

    Raises PlanError for a size that cannot be.

    Example:
        >>> Layout(data=4, tensor=8, pipeline=2, global_batch=64, sequence=4096).micro_batches
        16
    """

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1
    zero: int = 0
    micro_batch: int = 1
    global_batch: int = 1
    sequence: int = 2048
    chunks: int = 1
    ends_as_layers: bool = False
    recompute: Recompute = "none"
    offload: Literal["none", "optimizer"] = "none"
    sequence_parallel: bool = True
    kernels: Literal["fused", "eager"] = "fused"
    flash: bool = True
    precision: Precision = field(default_factory=Precision)

    def __post_init__(self) -> None:
        for name in _SIZES:
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise PlanError(f"{name} must be a whole number from 1 up, got {value!r}")
        for name, known in (
            ("zero", (0, 1, 2, 3)),
            ("recompute", ("none", "selective", "full")),
            ("offload", ("none", "optimizer")),
            ("kernels", ("fused", "eager")),
        ):
            if getattr(self, name) not in known:
                raise PlanError(f"{name} is one of {', '.join(map(str, known))}; got {getattr(self, name)!r}")
        if self.data % self.expert:
            raise PlanError(f"expert={self.expert} must divide data={self.data}: expert ranks are data-parallel ranks")
        if self.global_batch % (self.data * self.micro_batch):
            raise PlanError(
                f"global_batch={self.global_batch} does not divide into micro-batches of {self.micro_batch} on "
                f"{self.data} data-parallel ranks; make it a multiple of {self.data * self.micro_batch}"
            )
        if self.chunks > 1 and self.micro_batches % self.pipeline:
            raise PlanError(
                f"interleaving needs micro-batches in multiples of pipeline={self.pipeline}, got {self.micro_batches}"
            )

    @property
    def ranks(self) -> int:
        """GPUs that take part."""
        return self.data * self.tensor * self.pipeline * self.context

    @property
    def sharded(self) -> int:
        """Ranks that average their gradients and, without ZeRO, hold the same weights: data times context."""
        return self.data * self.context

    @property
    def micro_batches(self) -> int:
        """Micro-batches a pipeline works through in a step, m."""
        return self.global_batch // (self.data * self.micro_batch)

    @property
    def tokens(self) -> int:
        """Tokens of a micro-batch on one rank: its part of the sequences under context parallelism."""
        return self.micro_batch * self.sequence // self.context

    @property
    def bubble(self) -> float:
        """Idle time over the time of useful work: (p - 1)/(m · chunks).

        Reference: Narayanan et al., arXiv:2104.04473, sec. 2.2.
        """
        return (self.pipeline - 1) / (self.micro_batches * self.chunks)

    def in_flight(self, stage: int) -> float:
        """Return the micro-batches whose activations a stage (from 0) holds at once under 1F1B.

        The unit is a micro-batch through all layers of the stage, so the result is a fraction with chunks.

        Example:
            >>> [Layout(pipeline=4, global_batch=8).in_flight(stage) for stage in range(4)]
            [4.0, 3.0, 2.0, 1.0]

        Reference: Korthikanti et al., arXiv:2205.05198, sec. 4.2.3: 1 + (p - 1)/(p · chunks) of all layers on stage 0.
        """
        warm = self.pipeline - stage
        if self.chunks > 1:
            warm = 2 * (self.pipeline - stage - 1) + (self.chunks - 1) * self.pipeline + 1
        return min(warm, self.micro_batches * self.chunks) / self.chunks

    def layers(self, model: Transformer, stage: int) -> int:
        """Return the number of layers of a stage."""
        if not self.ends_as_layers:
            return model.layers // self.pipeline
        ends = (stage == 0) + (stage == self.pipeline - 1)
        return (model.layers + 2) // self.pipeline - ends

    def check(self, model: Transformer, gpus: int | None = None) -> None:
        """Raise PlanError, in one line, if the layout cannot split this model or does not use exactly ``gpus`` GPUs."""
        if gpus is not None and self.ranks != gpus:
            raise PlanError(
                f"data {self.data} x tensor {self.tensor} x pipeline {self.pipeline} x context {self.context} = "
                f"{self.ranks} ranks, but the cluster has {gpus} GPUs; make the product {gpus}"
            )
        items = model.layers + 2 * self.ends_as_layers
        for what, count, by, size in (
            ("heads", model.heads, "tensor", self.tensor),
            ("kv_heads", model.kv_heads, "tensor", self.tensor if model.kv_heads > 1 else 1),
            ("hidden", model.hidden, "tensor", self.tensor),
            ("layers" + " + 2 ends" * self.ends_as_layers, items, "pipeline x chunks", self.pipeline * self.chunks),
            ("experts", model.experts, "expert", self.expert),
            ("sequence", self.sequence, "context", self.context),
            ("sequence", self.sequence // self.context, "tensor", self.tensor if self.sequence_parallel else 1),
        ):
            if count % size:
                raise PlanError(f"{what} = {count} is not divisible by {by} = {size}; choose a divisor of {count}")

    def __str__(self) -> str:
        sizes = {"DP": self.data, "TP": self.tensor, "PP": self.pipeline, "CP": self.context, "EP": self.expert}
        cut = " x ".join(f"{name} {size}" for name, size in sizes.items() if size > 1 or name == "DP")
        chunks = f", {self.chunks} chunks" if self.chunks > 1 else ""
        rest = f"ZeRO-{self.zero}, micro-batch {self.micro_batch}, recompute {self.recompute}"
        return f"{cut}{chunks}, {rest}{', optimizer on the host' if self.offload != 'none' else ''}"
