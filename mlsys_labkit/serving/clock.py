"""The engine's clock: real seconds, or virtual ones from a cost model, which are the same on every machine."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from mlsys_labkit.errors import LabkitError
from mlsys_labkit.lm.config import Config
from mlsys_labkit.serving.records import EngineStep, Scheduled
from mlsys_labkit.specs import DeviceSpec


@dataclass(frozen=True)
class StepCost:
    """Seconds of a step: a constant, a cost per computed token, and a cost per cached token that is read.

    Raises LabkitError for a cost that is negative or no number.

    Example:
        >>> cost = StepCost(seconds_per_step=1e-3, seconds_per_token=1e-5, seconds_per_cached_token=1e-7)
        >>> round(cost.seconds([Scheduled("a", "decode", 1, 400), Scheduled("b", "prefill", 59, 0)]), 6)
        0.00164
    """

    seconds_per_step: float
    seconds_per_token: float
    seconds_per_cached_token: float = 0.0

    def __post_init__(self) -> None:
        for field, seconds in vars(self).items():
            if not 0 <= seconds < math.inf:
                raise LabkitError(f"{field} is {seconds}, expected seconds from 0 up")

    def seconds(self, scheduled: Iterable[Scheduled]) -> float:
        parts = tuple(scheduled)
        tokens, cached = sum(part.tokens for part in parts), sum(part.cached_tokens for part in parts)
        return self.seconds_per_step + self.seconds_per_token * tokens + self.seconds_per_cached_token * cached

    @classmethod
    def of_device(cls, spec: DeviceSpec, config: Config, dtype: str = "bfloat16", itemsize_bytes: int = 2) -> StepCost:
        """Compute the cost from a datasheet, without overlap.

        A step reads all weights, a token takes 2 FLOPs per weight, and a cached token is read once. The result is a
        lower bound, because no kernel reaches its roof.

        Example:
            >>> from mlsys_labkit import specs
            >>> llama = Config(vocabulary=128256, width=4096, layers=32, heads=32, kv_heads=8, head_width=128,
            ...                hidden=14336, tied=False)
            >>> round(1e3 * StepCost.of_device(specs.get("h100-sxm"), llama).seconds_per_step, 1)
            4.8

        Reference: Pope et al., "Efficiently Scaling Transformer Inference", arXiv:2211.05102, sec. 2.
        """
        bandwidth, peak = spec.bandwidth(), spec.peak(dtype)
        return cls(
            seconds_per_step=config.parameters * itemsize_bytes / bandwidth,
            seconds_per_token=2 * config.parameters / peak,
            seconds_per_cached_token=config.cache_bytes_per_token(itemsize_bytes) / bandwidth,
        )

    @classmethod
    def fitted(cls, steps: Iterable[EngineStep]) -> StepCost:
        """Fit the cost to the steps of a run on the real clock by least squares; no cost is below 0.

        Example:
            >>> cost = StepCost(2.0, 0.5, 0.25)
            >>> parts = [(Scheduled("a", "decode", n, n * n),) for n in (1, 2, 3, 4)]
            >>> fitted = StepCost.fitted(EngineStep(0, 0.0, cost.seconds(part), part) for part in parts)
            >>> round(fitted.seconds_per_step, 6), round(fitted.seconds_per_cached_token, 6)
            (2.0, 0.25)
        """
        rows = [(1, step.tokens, sum(p.cached_tokens for p in step.scheduled), step) for step in steps if step.tokens]
        if len(rows) < 3:
            raise LabkitError(f"three unknown costs need at least 3 steps, got {len(rows)}; record a longer run")
        matrix = np.array([row[:3] for row in rows], dtype=float)
        seconds = np.array([row[3].end_seconds - row[3].start_seconds for row in rows])
        kept = [0, 1, 2]
        while True:
            found = np.zeros(3)
            found[kept] = np.linalg.lstsq(matrix[:, kept], seconds, rcond=None)[0]
            if (found >= 0).all():
                return cls(*found.tolist())
            kept.remove(int(found.argmin()))


class EngineClock(Protocol):
    """Seconds since an engine began."""

    kind: Literal["real", "virtual"]

    @property
    def now(self) -> float: ...
    def wait_until(self, seconds: float) -> None: ...
    def spend(self, scheduled: Iterable[Scheduled]) -> None:
        """Account for a step with these parts that has ended."""

    def restarted(self) -> EngineClock:
        """Return a clock of the same kind at 0."""


class RealClock:
    """Seconds of the machine's own clock."""

    kind: Literal["real", "virtual"] = "real"

    def __init__(self) -> None:
        self._zero = time.perf_counter()

    @property
    def now(self) -> float:
        return time.perf_counter() - self._zero

    def wait_until(self, seconds: float) -> None:
        time.sleep(max(0.0, seconds - self.now))

    def spend(self, scheduled: Iterable[Scheduled]) -> None:
        """Do nothing: the real clock has advanced during the step."""

    def restarted(self) -> RealClock:
        return RealClock()


class VirtualClock:
    """Seconds that advance only by waiting and by the cost of steps."""

    kind: Literal["real", "virtual"] = "virtual"

    def __init__(self, cost: StepCost) -> None:
        self.cost, self.now = cost, 0.0

    def wait_until(self, seconds: float) -> None:
        self.now = max(self.now, seconds)

    def spend(self, scheduled: Iterable[Scheduled]) -> None:
        self.now += self.cost.seconds(scheduled)

    def restarted(self) -> VirtualClock:
        return VirtualClock(self.cost)
