"""Explanations of arrays whose every element is a function of the expected one: a factor, a sign, a square."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from mlsys_labkit.checks.comparison import ArrayComparison, Diagnosis, wrong

_Values = npt.NDArray[np.float64]
_SCALE = "look for a scale or a sign, missing or applied twice"
_LANES = (
    "masked lanes may add to the sum that divides: their score (tl.load's other, or tl.where) is -inf before exp, and "
    "their term of a sum is 0"
)
_NEAR_ONE = 1e-6  # a factor this close to 1 is lost digits; printed with six digits, it would read "1 times"
# The expected value as a function of the one that came, in words, and what to do.
_FUNCTIONS: tuple[tuple[Callable[[_Values], _Values], str, str], ...] = (
    (np.sqrt, "the square of", "a square root may be missing, or a variance came for a deviation"),
    (np.square, "the square root of", "a square may be missing, or a root be taken once too often"),
    (lambda a: 1 / a, "1 over", "a quotient may be upside down, or a reciprocal missing"),
    (np.exp, "the logarithm of", "exp may be missing"),
    (np.log, "exp of", "the logarithm may be missing"),
    (lambda a: 1 - a, "1 minus", "the complement came: a share that is kept, and one that is dropped?"),
)


def computed(c: ArrayComparison) -> Diagnosis | None:
    """Find the function of ``expected`` that ``actual`` is. Return None if there is none."""
    if c.a.size < 3 or np.ptp(c.e) == 0:
        return None  # for a constant, both a factor and an offset would fit
    return _whole(c) or (_wrapped(c) if c.integers else _cut(c)) or _signs(c) or _function(c) or _running(c) or _rows(c)


def _whole(c: ArrayComparison) -> Diagnosis | None:
    largest = int(np.argmax(np.abs(c.e)))
    factor = float(c.a.flat[largest] / c.e.flat[largest])
    if factor and abs(factor - 1) > _NEAR_ONE and c.explained(c.a / factor):
        words, next_step = _factor(factor, c.a.shape)
        return wrong(f"every element is {factor:.6g} times the expected one{words}", next_step)
    shift = float(np.mean(c.a - c.e))
    if c.explained(c.a - shift):
        return wrong(
            f"every element is {shift:+.6g} away from the expected one", "look for a constant added or left out"
        )
    return None


def _factor(factor: float, shape: tuple[int, ...]) -> tuple[str, str]:
    """Describe a factor by the lengths of the axes: summed for averaged, a missing 1/sqrt(d)."""
    if factor == -1:
        return "", "look for a sign, or a difference the wrong way round"
    named = [(length, f"the length of axis {axis}") for axis, length in enumerate(shape) if length > 2]
    for length, name in [*named, (math.prod(shape), "the number of elements")]:
        if math.isclose(factor, length, rel_tol=1e-4):
            return f": {name}", "a sum may stand where a mean was asked for, or a division may be missing"
        if math.isclose(factor, 1 / length, rel_tol=1e-4):
            return f": 1 over {name}", "a mean may stand where a sum was asked for, or a division be done twice"
    square = round(max(factor, 1 / factor) ** 2) if factor > 0 else 0
    if square > 1 and math.isclose(max(factor, 1 / factor), math.sqrt(square), rel_tol=1e-4) and square < 1 << 16:
        if math.isqrt(square) ** 2 != square:
            return f": {'' if factor > 1 else '1 over '}the square root of {square}", (
                "a scale by a square root may be missing, or applied twice"
            )
        root = f", which is also {'' if factor > 1 else '1 over '}sqrt({square})" if square >= 16 else ""
        return root, _SCALE
    return "", _SCALE


def _wrapped(c: ArrayComparison) -> Diagnosis | None:
    """Recognise integers that overflowed: the expected ones modulo 2^8, 2^16 or 2^32."""
    for bits in (8, 16, 32):
        fits = bool((c.a >= -(1 << (bits - 1))).all() and (c.a < 1 << bits).all())
        if fits and not ((c.actual.astype(np.int64) - c.expected.astype(np.int64)) % (1 << bits)).any():
            return wrong(
                f"these are the expected values modulo 2^{bits}",
                f"an integer of {bits} bits overflowed: count in a wider type",
            )
    return None


def _cut(c: ArrayComparison) -> Diagnosis | None:
    """Recognise fractions that were cut off or rounded away."""
    if (c.a == np.round(c.a)).all() and (np.abs(c.a - c.e) < 1).all() and (c.e != np.round(c.e)).any():
        kind = "integers" if c.actual.dtype.kind in "iu" else "whole numbers"
        return wrong(
            f"{kind} came where fractions were expected: each is the expected value without its fraction",
            "divide with / not //, and allocate the result as float",
        )
    return None


def _signs(c: ArrayComparison) -> Diagnosis | None:
    if np.all(np.abs(np.abs(c.a) - np.abs(c.e)) <= 4 * c.allowed):
        number = int(c.off.sum())
        positive = bool((c.a >= 0).all())
        lost = "no sign is negative: " if positive else ""
        return wrong(
            f"{lost}right but for the sign of {number} element{'' if number == 1 else 's'}",
            "an absolute value may be taken, or a sign be lost"
            if positive
            else "a sign may be lost or chosen the wrong way round; or is there a tie between values of the same size?",
        )
    return None


def _function(c: ArrayComparison) -> Diagnosis | None:
    for inverse, words, next_step in _FUNCTIONS:
        with np.errstate(all="ignore"):
            values = inverse(c.a)
        if np.isfinite(values).all() and c.explained(values):
            return wrong(f"every element is {words} the expected one", next_step)
    return None


def _running(c: ArrayComparison) -> Diagnosis | None:
    for axis in range(c.a.ndim):
        if c.a.shape[axis] < 3:
            continue
        if np.all(np.abs(np.cumsum(c.e, axis) - c.a) <= 4 * np.cumsum(c.allowed, axis)):
            return wrong(
                f"along axis {axis} these are running sums of the expected values",
                "an accumulator may not be set to 0 for each element",
            )
        if c.explained(np.cumsum(c.a, axis)):
            return wrong(
                f"the expected values are the running sums of these along axis {axis}",
                "the sum of the elements before may be missing",
            )
    return None


def _rows(c: ArrayComparison) -> Diagnosis | None:
    """Explain an error that is the same along one axis: a wrong norm, scale or offset per row or column."""
    for axis in range(c.a.ndim):
        if c.a.ndim < 2 or c.a.shape[axis] < 3 or not np.ptp(c.e, axis=axis).any():
            continue  # for constant lines, both a factor and an offset would fit
        if _sums_to_one(c.e, axis):
            other = next((each for each in range(c.a.ndim) if each != axis and _sums_to_one(c.a, each)), None)
            if other is not None:
                return wrong(
                    f"the values sum to 1 along axis {other}, the expected ones along axis {axis}",
                    f"take the maximum and the sum along axis {axis}",
                )
        reference = np.argmax(np.abs(c.e), axis=axis, keepdims=True)
        at_reference = np.take_along_axis(c.a, reference, axis), np.take_along_axis(c.e, reference, axis)
        with np.errstate(all="ignore"):
            factor = at_reference[0] / at_reference[1]
            scaled = c.a / factor
        every = f"each line along axis {axis}"
        if np.isfinite(scaled).all() and np.abs(factor - 1).max() > _NEAR_ONE and c.explained(scaled):
            one = "; the expected lines sum to 1" if _sums_to_one(c.e, axis) else ""
            if not c.integers and factor.min() > 0 and factor.max() <= 1 + _NEAR_ONE:
                smaller = f", {factor.min():.3g} to {factor.max():.3g}{one}"
                step = f"{_LANES}; or a division may be done twice, or by another line's sum"
                return wrong(f"{every} is off by a factor of its own{smaller}", step)
            return wrong(
                f"{every} is off by a factor of its own{one}",
                "a division may be missing, or a scale may be taken from the wrong axis or index",
            )
        if c.explained(c.a - (at_reference[0] - at_reference[1])):
            return wrong(
                f"{every} is off by a constant of its own",
                "an offset (a mean, a maximum, a bias) may be missing, or be taken from the wrong axis or index",
            )
    return None


def _sums_to_one(values: _Values, axis: int) -> bool:
    return bool((values >= 0).all() and np.allclose(values.sum(axis=axis), 1, atol=1e-2))
