"""The layout of a training run: data, tensor, pipeline, expert, context parallel, ZeRO, micro-batches, recompute."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from mlsys_labkit.planner.errors import PlanError
from mlsys_labkit.planner.state import Precision
from mlsys_labkit.planner.transformer import Transformer

Schedule = Literal["1f1b", "zero-bubble", "dualpipe"]
Recompute = Literal["none", "selective", "half", "full"]
_SIZES = ["data", "tensor", "pipeline", "context", "expert", "micro_batch", "global_batch", "sequence"]
_SIZES += ["chunks", "replicas"]


@dataclass(frozen=True)
class Layout:
    """One way to train; ``data * tensor * pipeline * context`` GPUs take part.

    Args:
        data, tensor, pipeline, context: ranks along each way of cutting.
        expert: ranks that share out a layer's experts; they are taken from the data-parallel ones.
        zero: ZeRO stage over the data and context-parallel ranks: 0 nothing, 1 optimizer, 2 gradients, 3 parameters.
        replicas: groups of ranks that hold all that ZeRO shares out (HSDP); 1 shares it out among all ranks.
        micro_batch, global_batch: sequences of a micro-batch, and of a step over all ranks.
        sequence: tokens of a sequence.
        chunks: pieces of the model on each pipeline rank (interleaved 1F1B), 1 for plain 1F1B.
        schedule: of the pipeline: "1f1b", interleaved with ``chunks``; "zero-bubble", gradients of weights fill
            the gaps; "dualpipe", micro-batches enter at both ends, and every rank holds two stages' weights.
        ends_as_layers: embedding and output layer count as a layer each when layers are dealt out to pipeline stages.
        uneven: if the layers do not divide, some stages have one more, those in the middle first.
        recompute: "none"; "selective", the attention scores again in backward; "half", keep only the input of every
            second layer; "full", keep only each layer's input.
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
    replicas: int = 1
    micro_batch: int = 1
    global_batch: int = 1
    sequence: int = 2048
    chunks: int = 1
    schedule: Schedule = "1f1b"
    ends_as_layers: bool = False
    uneven: bool = False
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
            ("recompute", get_args(Recompute)),
            ("offload", ("none", "optimizer")),
            ("schedule", get_args(Schedule)),
            ("kernels", ("fused", "eager")),
        ):
            if getattr(self, name) not in known:
                raise PlanError(f"{name} is one of {', '.join(map(str, known))}; got {getattr(self, name)!r}")
        if self.data * self.context % self.replicas or (self.replicas > 1 and not self.zero):
            raise PlanError(
                f"replicas={self.replicas} must divide the {self.data * self.context} data and context-parallel ranks, "
                f"and needs ZeRO; got zero={self.zero}"
            )
        if self.data % self.expert:
            raise PlanError(f"expert={self.expert} must divide data={self.data}: expert ranks are data-parallel ranks")
        if self.global_batch % (self.data * self.micro_batch):
            raise PlanError(
                f"global_batch={self.global_batch} does not divide into micro-batches of {self.micro_batch} on "
                f"{self.data} data-parallel ranks; make it a multiple of {self.data * self.micro_batch}"
            )
        if self.chunks > 1 and self.schedule != "1f1b":
            raise PlanError(f"chunks belong to the schedule 1f1b; got chunks={self.chunks} with {self.schedule!r}")
        if self.schedule == "dualpipe" and self.pipeline % 2:
            raise PlanError(f"dualpipe pairs stages from both ends: pipeline must be even, got {self.pipeline}")
        if self.chunks > 1 and self.micro_batches % self.pipeline:
            raise PlanError(
                f"interleaving needs micro-batches in multiples of pipeline={self.pipeline}, got {self.micro_batches}"
            )

    @property
    def ranks(self) -> int:
        """GPUs that take part."""
        return self.data * self.tensor * self.pipeline * self.context

    @property
    def averaged(self) -> int:
        """Ranks that average their gradients and, without ZeRO, hold the same weights: data times context."""
        return self.data * self.context

    @property
    def sharded(self) -> int:
        """Ranks among which ZeRO shares out: all that average their gradients, or a replica's part of them."""
        return self.averaged // self.replicas

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
        """Idle time over the time of useful work, 1F1B: (p - 1)/(m · chunks).

        The other schedules: with backward for inputs, and for weights, each as long as forward.

        Reference: Narayanan et al., arXiv:2104.04473, sec. 2.2; DeepSeek-AI, arXiv:2412.19437, table 2.
        """
        if self.schedule == "zero-bubble":
            return (self.pipeline - 1) / (3 * self.micro_batches)
        if self.schedule == "dualpipe":
            return max(0.0, self.pipeline / 2 - 1) * 2 / (3 * self.micro_batches)
        return (self.pipeline - 1) / (self.micro_batches * self.chunks)

    def in_flight(self, stage: int) -> float:
        """Return the micro-batches whose activations a stage (from 0) holds at once under 1F1B.

        The unit is a micro-batch through all layers of the stage, so the result is a fraction with chunks.

        Example:
            >>> [Layout(pipeline=4, global_batch=8).in_flight(stage) for stage in range(4)]
            [4.0, 3.0, 2.0, 1.0]

        Reference: Korthikanti et al., arXiv:2205.05198, sec. 4.2.3: 1 + (p - 1)/(p · chunks) of all layers on stage 0.
        """
        if self.schedule == "dualpipe":
            return min(self.pipeline + 1, self.micro_batches)
        warm = self.pipeline - stage
        if self.chunks > 1:
            warm = 2 * (self.pipeline - stage - 1) + (self.chunks - 1) * self.pipeline + 1
        return min(warm, self.micro_batches * self.chunks) / self.chunks

    def layers(self, model: Transformer, stage: int) -> int:
        """Return the number of layers of a stage, those of further predictions included.

        Example:
            >>> [Layout(pipeline=8, uneven=True).layers(Transformer.named("deepseek-v3"), stage) for stage in range(8)]
            [7, 8, 8, 8, 8, 8, 7, 7]
        """
        ends = ((stage == 0) + (stage == self.pipeline - 1)) * self.ends_as_layers
        each, rest = divmod(model.layers + model.extra_predictions + 2 * self.ends_as_layers, self.pipeline)
        place = (stage - 1) % self.pipeline  # the second stage is served first, the first one last
        return each + (self.uneven and place < rest) - ends

    def dense_layers(self, model: Transformer, stage: int) -> int:
        """Return how many of a stage's layers are a mixture's first, dense ones."""
        first = self.layers(model, 0) / self.chunks  # with chunks, the first one of every stage follows
        before = round(first) if stage else 0
        before += round((stage - 1) * self.layers(model, min(1, self.pipeline - 1)) / self.chunks) if stage > 1 else 0
        own = round(self.layers(model, stage) / self.chunks)
        return max(0, min(own, model.dense_layers - before))

    def telling_stages(self, model: Transformer) -> set[int]:
        """Return the stages that can need the most memory or time.

        The first holds the most micro-batches, the last the loss. The second may have a layer more than the first. The
        first stage after a mixture's dense layers has experts only.
        """
        found = {0, min(1, self.pipeline - 1), self.pipeline - 1}
        if model.dense_layers:
            found |= set(range(self.pipeline)[: 1 + model.dense_layers])
        return found

    def check(self, model: Transformer, gpus: int | None = None) -> None:
        """Raise PlanError, in one line, if the layout cannot split this model or does not use exactly ``gpus`` GPUs."""
        if gpus is not None and self.ranks != gpus:
            raise PlanError(
                f"data {self.data} x tensor {self.tensor} x pipeline {self.pipeline} x context {self.context} = "
                f"{self.ranks} ranks, but the cluster has {gpus} GPUs; make the product {gpus}"
            )
        items = model.layers + model.extra_predictions + 2 * self.ends_as_layers
        if items < self.pipeline:
            raise PlanError(f"{items} layers leave some of pipeline={self.pipeline} stages empty; use fewer stages")
        for what, count, by, size in (
            ("heads", model.heads, "tensor", self.tensor),
            ("kv_heads", model.kv_heads, "tensor", self.tensor if model.kv_heads > 1 else 1),
            ("hidden", model.hidden, "tensor", self.tensor),
            (
                "layers" + " + 2 ends" * self.ends_as_layers,
                items,
                "pipeline x chunks",
                1 if self.uneven else self.pipeline * self.chunks,
            ),
            ("experts", model.experts, "expert", self.expert),
            ("sequence", self.sequence, "context", self.context),
            ("sequence", self.sequence // self.context, "tensor", self.tensor if self.sequence_parallel else 1),
        ):
            if count % size:
                way_out = " or uneven=True" if by == "pipeline x chunks" else ""
                raise PlanError(
                    f"{what} = {count} is not divisible by {by} = {size}; choose a divisor of {count}{way_out}"
                )

    def __str__(self) -> str:
        sizes = {"DP": self.data, "TP": self.tensor, "PP": self.pipeline, "CP": self.context, "EP": self.expert}
        cut = " x ".join(f"{name} {size}" for name, size in sizes.items() if size > 1 or name == "DP")
        chunks = f", {self.chunks} chunks" if self.chunks > 1 else ""
        groups = f" in {self.replicas} replicas" if self.replicas > 1 else ""
        rest = f"ZeRO-{self.zero}{groups}, micro-batch {self.micro_batch}, recompute {self.recompute}"
        return f"{cut}{chunks}, {rest}{', optimizer on the host' if self.offload != 'none' else ''}"
