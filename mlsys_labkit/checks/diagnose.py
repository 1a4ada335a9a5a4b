"""Explanations of wrong numbers, tried in order of how much they help."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

# Format of the task -> the coarser format whose rounding shows that the student computed in it by mistake.
_COARSER = {"float64": "float32", "float32": "tf32", "float16": "bfloat16"}
_MARGIN = 4.0  # an error beyond the tolerance by less than this factor is called rounding in any format
_ONE_SIDE = "did each byte count in and out, and a multiply-add as two operations?"
_PREFIX = "which unit was asked for? k, M, G are powers of 1000, Ki, Mi, Gi powers of 1024"
# One number has no structure to recognise, but these factors are hardly ever an accident.
_SLIPS = {
    0.5: ("half of", _ONE_SIDE),
    2.0: ("twice", _ONE_SIDE),
    -1.0: ("minus", "look for a sign, or a difference the wrong way round"),
    100.0: ("100 times", "a share or a percentage?"),
    0.01: ("a hundredth of", "a share or a percentage?"),
    **{n: (f"{n:.0f} times", "are these bytes, bits or elements?") for n in (4.0, 8.0)},
    **{1 / n: (f"1/{n} of", "are these bytes, bits or elements?") for n in (4, 8)},
    **{1000.0**n: (f"1000{e} times", _PREFIX) for n, e in ((1, ""), (2, "²"), (3, "³"))},
    **{1000.0**-n: (f"1/1000{e} of", _PREFIX) for n, e in ((1, ""), (2, "²"), (3, "³"))},
    **{1024.0**n: (f"1024{e} times", _PREFIX) for n, e in ((1, ""), (2, "²"), (3, "³"))},
    **{1024.0**-n: (f"1/1024{e} of", _PREFIX) for n, e in ((1, ""), (2, "²"), (3, "³"))},
    **{1.024**n: (f"(1024/1000){e} times", _PREFIX) for n, e in ((1, ""), (2, "²"), (3, "³"))},
    **{1.024**-n: (f"(1000/1024){e} times", _PREFIX) for n, e in ((1, ""), (2, "²"), (3, "³"))},
}


@dataclass(frozen=True)
class ArrayComparison:
    """Two arrays of one shape, where they differ, and what was allowed. ``scale`` is the rms of ``expected``."""

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
    def counts(self) -> tuple[int, int]:
        """NaN and Inf that were not expected."""
        a, e = self.actual, self.expected
        return int(np.sum(np.isnan(a) & ~np.isnan(e))), int(np.sum(np.isinf(a) & ~np.isinf(e)))

    @property
    def nonfinite(self) -> str:
        nan, inf = self.counts
        return f"; unexpected: {nan} NaN, {inf} Inf" if nan or inf else ""


@dataclass(frozen=True)
class Diagnosis:
    verdict: str  # "rounding" or "wrong"
    meaning: str
    next_step: str


def diagnose(c: ArrayComparison, tolerance: Callable[[str], float]) -> Diagnosis:
    """Describe the kind of difference; ``tolerance`` gives the relative tolerance of a format."""
    nan, inf = c.counts
    if nan:
        meaning = "NaN: 0/0, inf - inf, log or sqrt of a negative number, or memory never written"
        return Diagnosis("wrong", meaning, "find the first step whose result has a NaN")
    if inf:
        return Diagnosis(
            "wrong", "Inf: an overflow, or a division by 0", "scale before exp or a square; guard the divisor"
        )
    integers = c.expected.dtype.kind in "biu" and c.actual.dtype.kind in "biu"
    structure = _slip(c) or _structure(c)
    if structure:
        return structure
    if not integers:
        if c.excess.max() <= _MARGIN:
            return Diagnosis(
                "rounding", "close, and just over the tolerance", "sum in a wider dtype or in another order"
            )
        coarser = _COARSER.get(c.format)
        relative_error = float(np.max(c.difference / (np.abs(np.nan_to_num(c.expected)) + c.scale), initial=0.0))
        if coarser and relative_error <= tolerance(coarser):
            label = "tf32 or float16" if coarser == "tf32" else coarser
            return Diagnosis(
                "rounding",
                f"as many digits are right as {label} has, but this is {c.format}",
                f"look for a cast to {label} on the way; without one, digits are lost where nearly equal numbers are "
                "subtracted or a matrix is squared",
            )
        if c.actual.dtype.kind in "iu":
            meaning = "integers came where fractions were expected"
            return Diagnosis("wrong", meaning, "divide with / not //, and allocate the result as float")
    where = _where(c.off)
    if where:
        return Diagnosis("wrong", where, "check the bounds and the ragged last row, column or tile")
    return Diagnosis(
        "wrong", "the values differ by more than rounding", "compute the element above by hand and compare"
    )


def _slip(c: ArrayComparison) -> Diagnosis | None:
    """Explain a single wrong number: a unit, a factor or a sign. Return None if none of them fits."""
    if c.actual.size != 1 or "c" in c.actual.dtype.kind + c.expected.dtype.kind:
        return None
    a, e = float(c.actual.flat[0]), float(c.expected.flat[0])
    if not (e and math.isfinite(a) and math.isfinite(e)):
        return None
    for factor, (words, next_step) in _SLIPS.items():
        if math.isclose(a, factor * e, rel_tol=1e-9):
            return Diagnosis("wrong", f"{words} the expected value", next_step)
    return None


def _structure(c: ArrayComparison) -> Diagnosis | None:
    """Explain an error that is the same in every element: zeros, a transpose, a factor or an offset."""
    if c.actual.size < 3 or "c" in c.actual.dtype.kind + c.expected.dtype.kind or not np.isfinite(c.expected).all():
        return None
    a, e = c.actual.astype(np.float64), c.expected.astype(np.float64)

    def explains(candidate: npt.NDArray[np.float64]) -> bool:
        return bool(np.all(np.abs(candidate - e) <= 4 * c.allowed))

    if not a.any():
        return Diagnosis("wrong", "every element is 0", "was the result ever written to?")
    if a.ndim == 2 and a.shape[0] == a.shape[1] and explains(a.T):
        return Diagnosis("wrong", "this is the transpose of what was expected", "swap the two indices")
    if np.all(e == e.flat[0]):
        return None  # for a constant, both a factor and an offset would fit
    largest = int(np.argmax(np.abs(e)))
    factor = float(a.flat[largest] / e.flat[largest])
    if factor and explains(a / factor):
        meaning = f"every element is {factor:.6g} times the expected one"
        return Diagnosis("wrong", meaning, "look for a scale or a sign, missing or applied twice")
    shift = float(np.mean(a - e))
    if explains(a - shift):
        meaning = f"every element is {shift:+.6g} away from the expected one"
        return Diagnosis("wrong", meaning, "look for a constant added or left out")
    return None


def _where(off: npt.NDArray[np.bool_]) -> str:
    """Describe wrong elements that fill the end of one axis; return "" if they do not."""
    for axis in range(off.ndim):
        bad = np.asarray(off.any(axis=tuple(i for i in range(off.ndim) if i != axis)))
        first = int(np.argmax(bad))
        if first and bad[first:].all():
            return f"right up to index {first - 1} of axis {axis}, wrong from {first} on"
    return ""
