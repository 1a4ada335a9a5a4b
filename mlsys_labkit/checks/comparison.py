"""Two arrays of one shape that differ, and an explanation of the difference."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

PAIR = 3  # results of at most this many numbers, such as (FLOPs, bytes): each number has a meaning of its own


@dataclass(frozen=True)
class Diagnosis:
    """An explanation. ``meaning`` states what is true of the data; ``next_step`` says "may" where it is a guess."""

    verdict: str  # "rounding" or "wrong"
    meaning: str
    next_step: str


def wrong(meaning: str, next_step: str) -> Diagnosis:
    """Return the diagnosis of an error that is no rounding."""
    return Diagnosis("wrong", meaning, next_step)


@dataclass(frozen=True)
class ArrayComparison:
    """Two arrays of one shape, where they differ, and what was allowed.

    ``scale`` is the rms of ``expected``, or 0 where an element may be off by no more than its own digits allow.
    """

    actual: npt.NDArray[Any]
    expected: npt.NDArray[Any]
    difference: npt.NDArray[np.float64]
    allowed: npt.NDArray[np.float64]
    off: npt.NDArray[np.bool_]
    scale: float
    format: str

    @cached_property
    def excess(self) -> npt.NDArray[np.float64]:
        """Error over allowance; -1 where it is fine."""
        with np.errstate(divide="ignore", over="ignore"):
            ratio = np.asarray(np.maximum(self.difference, 5e-324) / self.allowed)
        return np.where(self.off, ratio, -1.0)

    @cached_property
    def worst(self) -> tuple[int, ...]:
        ties = np.where(self.excess == self.excess.max(), self.difference, -1.0)  # allowance 0: all are infinitely off
        return tuple(int(i) for i in np.unravel_index(int(np.argmax(ties)), ties.shape))

    @cached_property
    def nan(self) -> npt.NDArray[np.bool_]:
        """Places of a NaN that was not expected."""
        return np.asarray(np.isnan(self.actual) & ~np.isnan(self.expected))

    @cached_property
    def inf(self) -> npt.NDArray[np.bool_]:
        """Places of an infinity that was not expected."""
        return np.asarray(np.isinf(self.actual) & ~np.isinf(self.expected))

    @property
    def nonfinite(self) -> str:
        nan, inf = int(self.nan.sum()), int(self.inf.sum())
        return f"; unexpected: {nan} NaN, {inf} Inf" if nan or inf else ""

    @property
    def integers(self) -> bool:
        return self.expected.dtype.kind in "biu" and self.actual.dtype.kind in "biu"

    @property
    def real(self) -> bool:
        """True if both are finite and not complex, which comparisons of patterns need."""
        kinds = self.actual.dtype.kind + self.expected.dtype.kind
        return "c" not in kinds and bool(np.isfinite(self.actual).all() and np.isfinite(self.expected).all())

    @cached_property
    def a(self) -> npt.NDArray[np.float64]:
        return self.actual.astype(np.float64)

    @cached_property
    def e(self) -> npt.NDArray[np.float64]:
        return self.expected.astype(np.float64)

    def explained(self, values: npt.NDArray[np.float64], slack: float = 4.0) -> bool:
        """Check that ``values``, computed from ``actual``, are the expected ones."""
        with np.errstate(invalid="ignore", over="ignore"):
            return bool(np.all(np.abs(values - self.e) <= slack * self.allowed))

    def holds(self, index: npt.NDArray[np.intp], at: npt.NDArray[np.bool_] | None = None) -> bool:
        """Check that ``actual`` holds the expected elements of flat ``index``; ``at`` restricts the places compared.

        Matches that could be chance do not count: the wrong places compared must hold two different values at least.
        """
        e, allowed = self.e.reshape(-1), self.allowed.reshape(-1)
        few = slice(None, None, max(1, self.a.size // 61))  # most candidates fail at once
        a, places = self.a.reshape(-1), index.reshape(-1)
        keep = np.ones(a.size, bool) if at is None else at.reshape(-1)
        for part in (few, slice(None)):
            where = places[part]
            fits = np.abs(a[part] - e[where]) <= 4 * allowed[where]
            if not np.all(fits | ~keep[part]):
                return False
        seen = a[keep & self.off.reshape(-1)]
        return bool(seen.size > 1 and np.ptp(seen) > 0)
