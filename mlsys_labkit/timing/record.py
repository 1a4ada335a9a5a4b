"""``Timing`` and ``Comparison``: measured times, their intervals, and advice."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mlsys_labkit._base.light_dark_colours import COLOURS
from mlsys_labkit.timing.statistics import Values, outliers

if TYPE_CHECKING:
    from mlsys_labkit.work import Work

_EDGE = {"stable": "green", "faster": "green", "same": "blue", "slower": "red"}  # the rest is amber


def _card(verdict: str, first: str, details: str, advice: str) -> str:
    """Return HTML for both themes: it inherits the page's colours and adds only an edge. ``first`` is HTML, too."""
    edge = COLOURS[_EDGE.get(verdict, "amber")].figure
    style = f"border-left:4px solid {edge};padding:.2em .8em;margin:.3em 0;color:inherit;background:transparent"
    return (
        f'<div style="{style}"><div>{first}</div><div style="opacity:.75;font-size:90%">{html.escape(details)}</div>'
        f"{f'<div>{html.escape(advice)}</div>' if advice else ''}</div>"
    )


@dataclass(frozen=True)
class Timing:
    """Samples of one function's run time. All durations are seconds per call.

    Args:
        samples: the samples kept, in order of time.
        ci_low, ci_high: 95 % interval of the median.
        warmup_dropped: samples dropped from the beginning; ``first_call_seconds`` is apart from them.
        calls_per_sample: calls averaged in one sample, so that it is well above the timer's resolution.
        verdict: "stable", "noisy", "too_short", "throttled" or "drifting"; ``advice`` says what to do.
        threads: threads torch uses, or None without torch. load: mean number of busy processes in the last minute.
        launch_overhead_seconds: the time of a kernel that does nothing; None on a CPU.
        cache: "cold" if a GPU's L2 cache held nothing of the call's data before each call, "warm" if it held what the
            call before it left there; "" on a CPU, whose caches are warm.
    """

    name: str
    samples: tuple[float, ...]
    ci_low: float
    ci_high: float
    first_call_seconds: float
    verdict: str
    advice: str
    warmup_dropped: int = 0
    calls_per_sample: int = 1
    device: str = "cpu"
    threads: int | None = None
    load: float | None = None
    launch_overhead_seconds: float | None = None
    cache: str = ""

    @property
    def n(self) -> int:
        return len(self.samples)

    @property
    def median(self) -> float:
        return float(np.median(self._values))

    @property
    def minimum(self) -> float:
        return min(self.samples)

    @property
    def p10(self) -> float:
        return float(np.percentile(self._values, 10))

    @property
    def p90(self) -> float:
        return float(np.percentile(self._values, 90))

    @property
    def iqr(self) -> float:
        """Distance between the quartiles."""
        return float(np.subtract(*np.percentile(self._values, [75, 25])))

    @property
    def outliers(self) -> int:
        """Samples beyond three interquartile ranges from the quartiles. They stay in ``samples``."""
        return outliers(self._values)

    def work(self, work: Work) -> Work:
        """Return ``work`` with the median as its duration: a measured point for the roofline."""
        return work.with_seconds(self.median)

    def __str__(self) -> str:
        interval = f"95 % CI {duration(self.ci_low)} – {duration(self.ci_high)}"
        first = f"{self.name} {duration(self.median)} ({interval}): {self.verdict}"
        return f"{first}\n  {self._details()}" + (f". {self.advice}" if self.advice else "")

    def _repr_html_(self) -> str:
        name, interval = html.escape(self.name), f"{duration(self.ci_low)} – {duration(self.ci_high)}"
        first = f"<b>{name}</b> <b>{duration(self.median)}</b> <span>(95 % CI {interval}) · {self.verdict}</span>"
        return _card(self.verdict, first, self._details(), self.advice)

    def _details(self) -> str:
        parts = [
            f"n = {self.n} × {self.calls_per_sample} call{'s' if self.calls_per_sample > 1 else ''}",
            f"min {duration(self.minimum)}",
            f"IQR {duration(self.iqr)}",
            f"{self.outliers} outliers",
            f"first call {duration(self.first_call_seconds)}",
            f"{self.warmup_dropped} warm-up samples dropped",
            _place(self.device, self.cache),
        ]
        if self.launch_overhead_seconds is not None:
            parts.append(f"empty kernel {duration(self.launch_overhead_seconds)}")
        if self.threads is not None:
            parts.append(f"{self.threads} torch thread{'s' if self.threads > 1 else ''}")
        if self.load is not None:
            parts.append(f"load {self.load:.1f}")
        return ", ".join(parts)

    @property
    def _values(self) -> Values:
        return np.asarray(self.samples, dtype=np.float64)


@dataclass(frozen=True)
class Comparison:
    """The result of ``compare(a, b)``. The verdict is about ``b``: "faster" means that b is the faster of the two.

    Args:
        ratio: time of b / time of a; below 1, b is faster. ci_low, ci_high: its 95 % interval.
        verdict: "faster" or "slower" (b, by more than the margin), "same" (within the margin) or "undecided".
        margin: 0.05 means that ratios from 1/1.05 to 1.05 count as the same.
        pairs: how many times both were timed side by side. a_seconds, b_seconds: medians, seconds per call.
        a_name, b_name: what the two are called in the answer. device, cache: as in Timing.

    Example:
        >>> print(Comparison(0.5, 0.48, 0.53, "faster", 0.05, 100, 2e-3, 1e-3, "loop", "vector"))
        vector is 2.00× faster than loop
          time of vector / time of loop = 0.500 (95 % CI 0.480 – 0.530), vector 1.00 ms, loop 2.00 ms, 100 pairs, cpu
    """

    ratio: float
    ci_low: float
    ci_high: float
    verdict: str
    margin: float
    pairs: int
    a_seconds: float
    b_seconds: float
    a_name: str = "a"
    b_name: str = "b"
    advice: str = ""
    device: str = "cpu"
    load: float | None = None
    cache: str = ""

    def __str__(self) -> str:
        return f"{self._sentence()}\n  {self._details()}" + (f". {self.advice}" if self.advice else "")

    def _repr_html_(self) -> str:
        return _card(self.verdict, html.escape(self._sentence()), self._details(), self.advice)

    def _sentence(self) -> str:
        a, b = self.a_name, self.b_name
        verdicts = {
            "faster": f"{b} is {1 / self.ratio:.2f}× faster than {a}",
            "slower": f"{b} is {self.ratio:.2f}× slower than {a}",
            "same": f"{b} takes the same time as {a}, within {100 * self.margin:.3g} %",
            "undecided": f"undecided whether {b} is faster or slower than {a}",
        }
        return verdicts[self.verdict]

    def _details(self) -> str:
        a, b = self.a_name, self.b_name
        load = f", load {self.load:.1f}" if self.load is not None else ""
        return (
            f"time of {b} / time of {a} = {self.ratio:.3f} (95 % CI {self.ci_low:.3f} – {self.ci_high:.3f}), "
            f"{b} {duration(self.b_seconds)}, {a} {duration(self.a_seconds)}, {self.pairs} pairs, "
            f"{_place(self.device, self.cache)}{load}"
        )


def _place(device: str, cache: str) -> str:
    return f"{device} with a {cache} L2 cache" if cache else device


def duration(seconds: float) -> str:
    """Format seconds with three digits and a unit: 1.5e-6 -> '1.50 µs'."""
    if not np.isfinite(seconds):
        return f"{seconds:g} s"
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if abs(seconds) >= scale * 0.9995:
            return f"{_three_digits(seconds / scale)} {unit}"
    return f"{_three_digits(seconds / 1e-9)} ns"


def _three_digits(value: float) -> str:
    decimals = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    return f"{value:.{decimals}f}"
