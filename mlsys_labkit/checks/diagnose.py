"""Explanations of wrong numbers, tried in order of how much they help.

The meaning of each states what was tested on the data, and nothing else; its next step says "may" where the cause is
a guess.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from mlsys_labkit.checks.comparison import PAIR, ArrayComparison, Diagnosis, wrong
from mlsys_labkit.checks.computed import computed
from mlsys_labkit.checks.places import nonfinite, placed
from mlsys_labkit.checks.rearranged import rearranged

# Format of the task -> the coarser format whose rounding shows that the student computed in it by mistake.
_COARSER = {"float64": "float32", "float32": "tf32", "float16": "bfloat16"}
_NARROW = ("float16", "bfloat16")
_ENOUGH = 8  # values that must all fit a coarser format before it is named
_HALF_PRECISION = 0.05  # relative error that a sum kept in 8 or 11 bits may have
_FINER = 1e-4  # of the tolerance of a coarser format: an error below it is not that format's rounding
_MARGIN = 4.0  # an error beyond the tolerance by less than this factor is called rounding in any format
_ONE_SIDE = "look for a factor of 2; in a count, each byte may go in and out, and a multiply-add is two operations"
_OFF_BY_ONE = "off by one: is it < or <=, does the count begin at 0, is the last one rounded up?"
_FEW = 32  # numbers up to this one are lengths and lines rather than bytes and operations
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


def diagnose(c: ArrayComparison, tolerance: Callable[[str], float]) -> Diagnosis:
    """Describe the kind of difference; ``tolerance`` gives the relative tolerance of a format."""
    complex_ = "c" in c.actual.dtype.kind + c.expected.dtype.kind
    found = None if complex_ else nonfinite(c)
    if found is None and c.real:
        found = _slip(c)
        if found is None and (c.integers or c.excess.max() > _MARGIN):
            found = _nothing_written(c) or rearranged(c) or computed(c)
    return found or _rounding(c, tolerance) or placed(c) or _generic(c)


def diagnose_exactly(actual: npt.NDArray[np.generic], expected: npt.NDArray[np.generic]) -> Diagnosis | None:
    """Describe the difference of two arrays of one shape that should be equal. Return None if it has no pattern."""
    off = np.asarray((actual != expected) & ~((actual != actual) & (expected != expected)))
    a, e = (
        each.astype(np.float64) if each.dtype.kind != "c" else each.astype(np.complex128) for each in (actual, expected)
    )
    with np.errstate(invalid="ignore"):
        difference = np.where(off, np.abs(a - e), 0.0)
    zero = np.zeros(off.shape)
    c = ArrayComparison(actual, expected, np.nan_to_num(difference, nan=np.inf), zero, off, 1.0, "")
    found = diagnose(c, lambda _: 0.0)
    return None if found == _generic(c) else found


def _generic(c: ArrayComparison) -> Diagnosis:
    step = "compute the element above by hand and compare"
    if c.off.size > PAIR and c.off.all():
        step = "all are off: begin with a step that all share (a scale, a sum, a mask), by hand on a small input"
    return wrong("the values differ by more than rounding", step)


def _nothing_written(c: ArrayComparison) -> Diagnosis | None:
    if c.a.size >= 3 and not c.a.any():
        return wrong("every element is 0", "was the result ever written to?")
    return None


def _rounding(c: ArrayComparison, tolerance: Callable[[str], float]) -> Diagnosis | None:
    """Explain an error by the digits of a format. Return None if more digits are wrong than any format loses."""
    if c.integers or not np.isfinite(c.difference).all():
        return None
    if c.excess.max() <= _MARGIN:
        return Diagnosis("rounding", "close, and just over the tolerance", "sum in a wider dtype or in another order")
    coarser = _COARSER.get(c.format)
    size = np.abs(np.nan_to_num(c.expected)) + c.scale
    size = np.where(size > 0, size, size.max(initial=0.0))  # nothing is small beside an expected 0 but by its company
    ratios = np.divide(c.difference, size, out=np.where(c.off, np.inf, 0.0), where=size > 0)
    relative_error = float(np.max(ratios, initial=0.0))
    if c.format in _NARROW and relative_error <= 2 * tolerance(c.format):
        return Diagnosis(
            "rounding",
            f"off by no more than a few roundings to {c.format} of numbers of this size",
            f"look for a step before the last that computes in {c.format}: convert the operands first, not their sum",
        )
    cast = _cast(c) if c.actual.size >= _ENOUGH and relative_error < _HALF_PRECISION else ""
    if cast:
        return Diagnosis(
            "rounding",
            f"every value is exactly one of {cast}, but this is {c.format}",
            f"look for a cast to {cast} on the way, or a sum that is kept in it: its error grows with every term",
        )
    if coarser and relative_error <= tolerance(coarser):
        label = "tf32 or float16" if coarser == "tf32" else coarser
        if relative_error < _FINER * tolerance(coarser):
            return Diagnosis(
                "rounding",
                f"more digits are right than {label} has, and fewer than {c.format} has",
                "digits are lost where nearly equal numbers are subtracted, a matrix is squared, or a small constant "
                "is added",
            )
        return Diagnosis(
            "rounding",
            f"as many digits are right as {label} has, but this is {c.format}",
            f"look for a cast to {label} on the way, or a sum kept in it; without one, digits are lost where nearly "
            "equal numbers are subtracted or a matrix is squared, or a small constant is added",
        )
    if c.actual.dtype.kind in "iu" and (c.e != np.round(c.e)).any():
        meaning = "integers came where fractions were expected"
        return wrong(meaning, "divide with / not //, and allocate the result as float")
    return None


def _cast(c: ArrayComparison) -> str:
    """Return the coarsest format that holds every value that came, where the expected ones need a finer one."""
    if not c.real:
        return ""
    for name, bits in (("bfloat16", 8), ("float16", 11), ("tf32", 11), ("float32", 24)):
        finest = {"float32": 24, "float64": 53}.get(c.format, 0)
        if bits < finest and _has_bits(c.a, bits) and not _has_bits(c.e, bits):
            return "tf32 or float16" if bits == 11 else name
    return ""


def _has_bits(values: npt.NDArray[np.float64], bits: int) -> bool:
    """Check that ``bits`` binary digits are enough for the significand of every value."""
    significand = np.frexp(values)[0] * 2.0**bits
    return bool((significand == np.round(significand)).all())


def _slip(c: ArrayComparison) -> Diagnosis | None:
    """Explain a single wrong number, alone or in a pair: a unit, a factor or a sign. Return None if none fits."""
    if c.actual.size > PAIR or int(c.off.sum()) != 1:
        return None
    at = int(np.argmax(c.off))
    a, e = float(c.actual.flat[at]), float(c.expected.flat[at])
    if not e or c.actual.dtype.kind == "b":  # True is no number that is one more than False
        return None
    which = f"element [{', '.join(map(str, np.argwhere(c.off)[0]))}] is " if c.actual.size > 1 else ""
    for factor, (words, next_step) in _SLIPS.items():
        if math.isclose(a, factor * e, rel_tol=1e-9):
            if c.integers and abs(a - e) == 1:
                break  # 1 for 2: more often off by one than off by a factor
            if next_step == _ONE_SIDE and c.integers and max(abs(a), abs(e)) <= _FEW:
                next_step = "does something count twice, or not at all?"
            return wrong(f"{which}{words} the expected value", next_step)
    if c.integers and abs(a - e) == 1:
        return wrong(f"{which}one {'more' if a > e else 'less'} than expected", _OFF_BY_ONE)
    if not c.integers and a == round(a) and abs(a - e) < 1 and e != round(e):
        return wrong(f"{which}the expected value without its fraction", "divide with / not //")
    return None
