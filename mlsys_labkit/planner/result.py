"""``Plan``: memory, FLOPs, traffic and time of one layout on one cluster, and its description in words."""

from __future__ import annotations

from dataclasses import dataclass

from mlsys_labkit._base.units import si
from mlsys_labkit.planner.assumptions import Assumptions
from mlsys_labkit.planner.cluster import Cluster
from mlsys_labkit.planner.layout import Layout
from mlsys_labkit.planner.memory import StageMemory
from mlsys_labkit.planner.traffic import Transfer
from mlsys_labkit.planner.transformer import Transformer
from mlsys_labkit.work import Work

_DAY = 86_400
_PARTS = ("parameters", "gradients", "optimizer", "activations", "buffers")


@dataclass(frozen=True)
class Seconds:
    """The time of a step on the busiest stage, part by part.

    Args:
        compute: all micro-batches, recomputation included: products, attention, and the operators between them.
        exposed: way of cutting -> communication that nothing hides, and the delay of the computing that hides the rest.
        bubble: idle time of the pipeline.
        optimizer: the update of the weights, bound by memory.
    """

    compute: float
    exposed: dict[str, float]
    bubble: float
    optimizer: float

    @property
    def total(self) -> float:
        return self.compute + sum(self.exposed.values()) + self.bubble + self.optimizer


@dataclass(frozen=True)
class Plan:
    """One layout of one model on one cluster, and what it costs.

    Attributes:
        stages: memory of a rank, for each pipeline stage.
        transfers: what a rank of the busiest stage sends.
        flops: of the model per step, forward and backward over the whole batch: what MFU counts.
        hardware_flops: with recomputation.
        seconds: where the time of a step goes; the total is ``step_seconds``.
    """

    model: Transformer
    cluster: Cluster
    layout: Layout
    assumptions: Assumptions
    stages: tuple[StageMemory, ...]
    transfers: tuple[Transfer, ...]
    flops: int
    hardware_flops: int
    seconds: Seconds

    @property
    def step_seconds(self) -> float:
        return self.seconds.total

    @property
    def tokens(self) -> int:
        """Tokens of a step."""
        return self.layout.global_batch * self.layout.sequence

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.step_seconds

    @property
    def rule_flops(self) -> int:
        """FLOPs by the rule of thumb: 6N per token, N the weights that a token uses; without attention.

        Reference: Kaplan et al., arXiv:2001.08361, sec. 2.1; Hoffmann et al., arXiv:2203.15556, app. F.
        """
        return 6 * self.model.active_parameters * self.tokens

    @property
    def mfu(self) -> float:
        """Model FLOPs utilisation: useful FLOP/s over the dense peak of all GPUs (arXiv:2204.02311, app. B)."""
        peak = self.cluster.peak(self.layout.precision.compute)
        return self.flops / (self.step_seconds * self.layout.ranks * peak)

    @property
    def flops_per_second_per_gpu(self) -> float:
        """Useful FLOP/s of one GPU."""
        return self.flops / (self.step_seconds * self.layout.ranks)

    @property
    def peak_bytes(self) -> float:
        """Peak memory of a rank of the fullest stage."""
        return max(stage.peak for stage in self.stages)

    @property
    def available_bytes(self) -> float:
        """Memory of a GPU that tensors may fill."""
        return self.cluster.memory_bytes * self.assumptions.memory_fraction

    @property
    def fits(self) -> bool:
        return self.peak_bytes <= self.available_bytes

    def days(self, tokens: float) -> float:
        """Return the days of training on ``tokens`` tokens without a pause."""
        return tokens / self.tokens_per_second / _DAY

    def work(self) -> Work:
        """Return the work of one GPU in a step: FLOPs and bytes sent by formula, seconds by model."""
        sent = sum(each.sent_bytes * (1 if each.each_step else self.layout.micro_batches) for each in self.transfers)
        calls = sum(each.calls * (1 if each.each_step else self.layout.micro_batches) for each in self.transfers)
        return Work(
            flops=self.hardware_flops / self.layout.ranks,
            messages=round(calls),
            message_bytes=sent,
            seconds=self.step_seconds,
            dtype=self.layout.precision.compute,
            name=str(self.layout),
            how={"flops": "formula", "messages": "formula", "message_bytes": "formula", "seconds": "model"},
        )

    def __str__(self) -> str:
        model, layout, seconds = self.model, self.layout, self.seconds
        fullest = max(self.stages, key=lambda stage: stage.peak)
        parts = ", ".join(f"{name} {si(getattr(fullest, name), 'B')}" for name in _PARTS)
        room = f"{si(self.available_bytes, 'B')} of {si(self.cluster.memory_bytes, 'B')}"
        times = {"compute": seconds.compute, "bubble": seconds.bubble, "optimizer": seconds.optimizer}
        times |= {f"{way} parallel exposed": left for way, left in seconds.exposed.items()}
        spent = ", ".join(f"{name} {si(t, 's')}" for name, t in times.items())
        lines = [
            f"{model.name or 'transformer'}, {si(model.parameters, 'parameters')}, "
            f"on {layout.ranks} x {self.cluster.device}",
            f"{layout}, {layout.micro_batches} micro-batches, {si(self.tokens, 'tokens')} a step",
            f"memory, stage {fullest.stage} of {layout.pipeline}: {si(fullest.peak, 'B')} "
            f"({'fits' if self.fits else 'does not fit'} in {room}): {parts}",
            f"FLOPs a step: {si(self.flops, 'FLOP')} (6N: {si(self.rule_flops, 'FLOP')})",
            *(
                f"{each.way}: {each.what}, {each.operation} of {si(each.bytes, 'B')} on {each.group} ranks, "
                f"{each.calls} a {'step' if each.each_step else 'micro-batch'}"
                for each in self.transfers
            ),
            f"step {si(self.step_seconds, 's')}: {spent}",
            f"{si(self.tokens_per_second, 'tokens/s')}, {self.mfu:.1%} MFU (formula and model, nothing measured)",
        ]
        return "\n".join(lines)

    def __repr__(self) -> str:
        fit = "fits" if self.fits else "does not fit"
        return f"<Plan {self.layout}: {si(self.peak_bytes, 'B')} a GPU, {fit}, {self.mfu:.1%} MFU>"
