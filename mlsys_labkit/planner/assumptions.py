"""Constants that the model of a step's time assumes, each with its meaning."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from mlsys_labkit.planner.errors import PlanError


@dataclass(frozen=True)
class Assumptions:
    """Assumptions of the step time; everything else follows from sizes and datasheets.

    Args:
        compute_fraction: part of a device's dense peak that its large matrix products reach; None for what others
            measured on the device (``products.CEILINGS``), times ``sustained_fraction``.
        sustained_fraction: part of its largest rate that a device keeps for hours: hot, and never at the best shape.
        bandwidth_fraction: part of a memory's bandwidth that norms, gates and other small operators reach.
        link_fraction: part of a link's rate that collectives reach.
        memory_fraction: part of a device's memory that tensors may fill: the rest is the driver's, NCCL's, fragments.
        hidden: for each way of cutting, the part of the computing under which its communication can hide. Tensor and
            expert parallel wait for each other at every block; gradients of a whole step travel behind the last
            backward pass; keys and values travel around the ring behind attention. ZeRO's gathers and scatters of a
            micro-batch hide behind the neighbouring layers and need no entry. Of a way without an entry nothing hides.
        interference: part of the time of hidden communication by which it delays the computing that hides it, for it
            takes SMs and bandwidth.
        attention_kernel: "flash-3" for the kernels of Hopper and later (also cuDNN's), "flash-2" and "flash-1" for
            older ones.
        launch_seconds, gap_seconds: of the host for each kernel, and between two kernels on the device.

    ``sustained_fraction``, ``bandwidth_fraction``, ``interference`` and ``launch_seconds`` are fitted, to one part of
    the published runs (``published_runs``); the other runs are held out. The rest is measured by others or assumed, and
    fitted to nothing.

    Raises PlanError for an unknown way of cutting or attention kernel, a fraction outside 0 to 1, negative seconds.
    """

    compute_fraction: float | None = None
    sustained_fraction: float = 0.9
    bandwidth_fraction: float = 0.7
    link_fraction: float = 0.8
    memory_fraction: float = 0.92
    hidden: dict[str, float] = field(
        default_factory=lambda: {"tensor": 0.0, "expert": 0.0, "pipeline": 0.0, "context": 0.1, "data": 0.9}
    )
    interference: float = 0.4
    attention_kernel: Literal["flash-1", "flash-2", "flash-3"] = "flash-3"
    launch_seconds: float = 20e-6
    gap_seconds: float = 2e-6

    def __post_init__(self) -> None:
        for name in ("compute", "sustained", "bandwidth", "link", "memory"):
            value = getattr(self, f"{name}_fraction")
            if value is not None and not 0 < value <= 1:
                raise PlanError(f"{name}_fraction must be above 0 and at most 1, got {value!r}")
        for name in ("interference", "launch_seconds", "gap_seconds"):
            if not getattr(self, name) >= 0:
                raise PlanError(f"{name} must be 0 or more, got {getattr(self, name)!r}")
        kernels, ways = ("flash-1", "flash-2", "flash-3"), ("tensor", "expert", "pipeline", "context", "data")
        if self.attention_kernel not in kernels:
            raise PlanError(f"attention_kernel is one of {', '.join(kernels)}; got {self.attention_kernel!r}")
        for way in self.hidden:
            if way not in ways:
                raise PlanError(f"hidden has an entry for {', '.join(ways)}; got {way!r}")
