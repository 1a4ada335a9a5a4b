"""The place of a piece of work under a roof, and the sentence that describes it."""

from __future__ import annotations

import html
import math
from dataclasses import dataclass
from typing import Literal

from mlsys_labkit._base.light_dark_colours import COLOURS
from mlsys_labkit._base.units import plain, si
from mlsys_labkit.roofline.roof import Ceiling, Roof
from mlsys_labkit.work import Work

# Boards may clock up to about 8 % above the printed boost clock, and a busy machine measures its ceilings too low.
SLACK = 1.10


@dataclass(frozen=True)
class Placement:
    """One piece of work under one roof.

    ``fraction`` is the least possible time over the time taken: 1 is the roof, None without a time. ``above_roof``
    means an error: no run is faster than the hardware, so units, precision, FLOP counting or scope are wrong.
    """

    work: Work
    intensity: float
    bound: Literal["memory", "compute"]
    ceiling: Ceiling
    attainable_flops_per_second: float
    achieved_flops_per_second: float | None
    fraction: float | None
    above_roof: bool
    verdict: str

    def __str__(self) -> str:
        return self.verdict

    def _repr_html_(self) -> str:
        part = "above-roof" if self.above_roof else "memory-ceiling" if self.bound == "memory" else "compute-ceiling"
        edge = COLOURS[f"roofline-{part}"].figure
        style = f"border-left:4px solid {edge};padding:.2em .8em;margin:.3em 0;color:inherit;background:transparent"
        return f'<div style="{style}">{html.escape(self.verdict)}</div>'


def place(roofline: Roof, work: Work, level: str = "dram") -> Placement:
    """Place ``work`` under the roof (see ``Roofline.place``)."""
    intensity = work.intensity  # raises a one-line error for work that does nothing
    memory = roofline.memory(level)
    compute = roofline.compute(work.dtype) if work.flops else None  # a copy in any dtype needs no peak
    ceiling = compute if compute and compute.value <= memory.attainable(intensity) else memory
    # (least seconds this ceiling allows, the ceiling, the speed reached)
    limits = [(work.bytes_moved / memory.value, memory, work.bytes_per_second)]
    if compute:
        limits.append((work.flops / compute.value, compute, work.flops_per_second))
    least_seconds = max(seconds for seconds, _, _ in limits)
    broken = [
        (top, speed)
        for top, speed in ((_highest(roofline, limit), speed) for _, limit, speed in limits)
        if speed is not None and speed > SLACK * (top.ci_high or top.value)
    ]
    if broken:
        verdict = _accuse(roofline, work, *broken[-1], level=level)
    else:
        verdict = _describe(roofline, work, ceiling, least_seconds)
    return Placement(
        work=work,
        intensity=intensity,
        bound="memory" if ceiling is memory else "compute",
        ceiling=ceiling,
        attainable_flops_per_second=ceiling.attainable(intensity) if work.flops else 0.0,
        achieved_flops_per_second=work.flops_per_second,
        fraction=least_seconds / work.seconds if work.seconds else None,
        above_roof=bool(broken),
        verdict=verdict,
    )


def _highest(roofline: Roof, ceiling: Ceiling) -> Ceiling:
    """Return the hard limit: the datasheet ceiling if there is one, because kernels may exceed a measured ceiling."""
    same = [c for c in roofline.ceilings if (c.kind, c.dtype, c.level) == (ceiling.kind, ceiling.dtype, ceiling.level)]
    return max(same, key=lambda c: c.value)


def _describe(roofline: Roof, work: Work, ceiling: Ceiling, least_seconds: float) -> str:
    bound = ceiling.kind
    intensity = f"{plain(work.intensity)} FLOP/B" if math.isfinite(work.intensity) else "no bytes moved"
    origin = "datasheet: model, not measured" if roofline.virtual else ceiling.origin
    roof = f"{si(ceiling.value, ceiling.unit)} of {ceiling.label} {'bandwidth' if bound == 'memory' else 'arithmetic'}"
    head = f"{work.name or 'This work'} is {bound} bound at {intensity}"
    speed = work.bytes_per_second if bound == "memory" else work.flops_per_second
    if speed is None or work.seconds is None:
        most = f"at most {si(ceiling.attainable(work.intensity), 'FLOP/s')}, " if work.flops else ""
        return f"{head}: {most}at least {si(least_seconds, 's')}, by {roof} ({origin})."
    share = f"{least_seconds / work.seconds:.0%}"
    return f"{head} and reaches {share} of the roof: {si(speed, ceiling.unit)} of {roof} ({origin})."


def _accuse(roofline: Roof, work: Work, limit: Ceiling, speed: float, *, level: str) -> str:
    """Return a sentence that names likely errors, the likeliest first, for the ceiling that was exceeded."""
    if limit.kind == "compute":
        roomy = [d for d in roofline.dtypes() if d != work.dtype and roofline.compute(d).value * SLACK >= speed]
        suspects = [
            f"precision (did it run in {' or '.join(roomy[:2])}?)" if roomy else "precision",
            "FLOP counting (an FMA is 2, a matmul 2·m·n·k)",
            "scope (is the whole run timed?)",
        ]
    else:
        faster = [other for other in roofline.levels() if other != level and roofline.memory(other).value >= speed]
        suspects = [
            f"scope (did the bytes come from {faster[0] if faster else 'a cache'}?)",
            "byte and FLOP counting (data that is reused moves once)",
            "precision (bytes an element)",
        ]
    busy = " Or the machine was busy when its ceilings were measured: try Roofline.measure(refresh=True)."
    again = busy if limit.origin == "measured" else ""
    found = f"{si(speed, limit.unit)} against {si(limit.value, limit.unit)} of {limit.label} ({limit.origin})"
    return (
        f"{work.name or 'This work'} is above the roof: {found}. No run beats the hardware, so this is an error in the "
        f"counting: check {', '.join(suspects)} and units (ms for s, GB for GiB).{again}"
    )
