"""The choices that the SVG and the plotly view share: ceilings to show, the axes' ranges, the points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mlsys_labkit.roofline.place import Placement, place
from mlsys_labkit.roofline.roof import Ceiling, Roof
from mlsys_labkit.work import Work

# A chart with every dtype has too many lines. These four are drawn; others only when a point needs them.
SHOWN = ("float64", "float32", "bfloat16", "float8")


@dataclass(frozen=True)
class RooflineView:
    """Ranges in log10 of FLOP/B and FLOP/s, the ceilings to draw and the points on them."""

    x: tuple[float, float]
    y: tuple[float, float]
    compute: tuple[Ceiling, ...]
    memory: tuple[Ceiling, ...]
    points: tuple[tuple[Placement, float], ...]


def view(
    roofline: Roof, works: Sequence[Work], dtypes: Sequence[str] | None = None, level: str = "dram"
) -> RooflineView:
    """Choose what to show. A work without seconds is drawn on its roof; one without FLOPs is left out."""
    placed = [place(roofline, work, level) for work in works if work.flops and math.isfinite(work.intensity)]
    points = tuple((p, p.achieved_flops_per_second or p.attainable_flops_per_second) for p in placed)
    half = () if "bfloat16" in roofline.dtypes() else ("float16",)  # Volta and Turing
    wanted = set(dtypes or [*SHOWN, *half, *(p.work.dtype for p in placed)])
    compute = tuple(c for c in roofline.ceilings if c.dtype and (c.dtype in wanted))
    if not compute:
        compute = tuple(c for c in roofline.ceilings if c.kind == "compute")
    memory = tuple(c for c in roofline.ceilings if c.kind == "memory")
    ridges = [c.value / m.value for c in compute for m in memory]
    intensities = [p.intensity for p in placed]
    x_low = math.floor(math.log10(min([*ridges, *intensities]) / 4))
    x_high = math.ceil(math.log10(max([*ridges, *intensities]) * 4))
    y_high = math.log10(max([c.value for c in compute] + [speed for _, speed in points])) + 0.35
    slow = min(c.value for c in memory)
    y_low = min([math.log10(slow * 10**x_low) + 0.4] + [math.log10(speed) - 0.5 for _, speed in points])
    return RooflineView((float(x_low), float(x_high)), (math.floor(y_low), y_high), compute, memory, points)


def slope_start(memory: Ceiling, shown: RooflineView) -> float:
    """Return log10 of the intensity at which a bandwidth line enters the picture."""
    return max(shown.x[0], shown.y[0] - math.log10(memory.value))


def flat_start(compute: Ceiling, shown: RooflineView) -> float:
    """Return log10 of the intensity at which a compute ceiling meets the fastest memory of its own origin, if any."""
    own = [m for m in shown.memory if m.origin == compute.origin] or shown.memory
    return max(shown.x[0], ridge_of(compute, max(own, key=lambda m: m.value)))


def ridge_of(compute: Ceiling, memory: Ceiling) -> float:
    """Return log10 of the intensity at which the two ceilings meet."""
    return math.log10(compute.value / memory.value)
