"""Explanations by the places of wrong elements: a prefix, a border, a diagonal, every p-th index."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mlsys_labkit.checks.comparison import PAIR, ArrayComparison, Diagnosis, wrong

_BLOCK = 4  # a boundary at a multiple of a smaller power of two is too common to mean a block or tile
_SEAM = 16  # the least block whose two edges are recognised: pairs at multiples of less are too often chance
_INPUT = "how does its input differ from that of the right ones: in size, in order?"
_TERM = "if these are counts, look for a term that is missing, or counted twice; else, what differs about its input?"
_STRIDE = "compute the element at index 1 by hand: the step from one index to the next (the stride) may be wrong"
_SECOND = "compute the element at index 1 by hand: what is different from index 0 there?"
_SHORT = 8  # along a shorter axis, one right index at its start is no evidence of a wrong stride
_NO_BLOCK = (
    "the block's number (blockIdx, program_id) may be missing from the index, the grid may be too small, or a loop "
    "over the grid may lack gridDim (num_programs) in its step"
)
_NO_TAIL = "the last, ragged part may be cut off: round the number of blocks up, and mask or guard the rest"


def nonfinite(c: ArrayComparison) -> Diagnosis | None:
    """Explain NaN and infinities that were not expected, and expected ones that are missing."""
    if c.nan.all():
        return wrong(
            "every element is NaN",
            "was the result ever written to? was it added to (+=) what the memory held before, which may be NaN? if "
            "neither, look for 0/0, inf - inf, or log or sqrt of a negative number",
        )
    if c.nan.any():
        rest_right = not (c.off & ~c.nan).any()
        rows = c.nan.reshape(-1, c.nan.shape[-1]) if c.nan.ndim > 1 and c.nan.shape[-1] > 1 else None
        whole_rows = rows is not None and np.array_equal(rows.any(axis=1), rows.all(axis=1))
        prefix = _prefix(c, c.nan) if rest_right else None
        if prefix and not (whole_rows and prefix.next_step in (_STRIDE, _SECOND)):
            return prefix
        border = np.ones(c.nan.shape, bool)
        border[(slice(1, -1),) * c.nan.ndim] = False
        if rest_right and c.nan.ndim > 1 and np.array_equal(c.nan, border):
            return wrong("the border is NaN, and the rest is right", "was the border ever written to?")
        if rows is not None and whole_rows:
            return wrong(
                f"NaN fills {_count(int(rows.any(axis=1).sum()), 'whole row')} of {len(rows)}",
                "0/0, if a mask hides all of a row, or another row's maximum was subtracted from it; Inf/Inf, if exp "
                "overflowed: subtract the row's own maximum; or the row was never written",
            )
        return wrong(
            "NaN: 0/0, inf - inf, log or sqrt of a negative number, or memory never written",
            "find the first step whose result has a NaN; an output that is filled with NaN before the call shows "
            "which elements were not written",
        )
    if c.inf.any():
        return wrong(
            "Inf: an overflow, or a division by 0",
            "subtract the maximum before exp, or scale before a square; guard the divisor",
        )
    missing = ~np.isfinite(c.expected) & c.off & np.isfinite(c.actual)
    if missing.any():
        return wrong(
            f"{_count(int(missing.sum()), 'element')} finite where {_spelt(c, missing)} was expected",
            "a mask, or the value for an empty case, may be missing",
        )
    return None


def placed(c: ArrayComparison) -> Diagnosis | None:
    """Explain wrong elements by where they are. Return None if their places have no pattern."""
    off = c.off
    if off.size < 2 or off.all():
        return _same_everywhere(c)
    if found := _triangle(off) or _prefix(c, off) or _same_everywhere(c):
        return found
    if int(off.sum()) == 1:
        index = ", ".join(str(int(i)) for i in np.argwhere(off)[0])
        place = "what is different about it: a border, the edge of a block or tile, a tie, a zero?"
        if off.size <= PAIR:
            place = _TERM if c.integers and c.a.min() >= 0 <= c.e.min() else _INPUT
        return wrong(f"only element [{index}] is wrong", place)
    return _border(off) or _one_index(off) or _seams(off) or _periodic(off)


def _same_everywhere(c: ArrayComparison) -> Diagnosis | None:
    if c.off.size > 2 and c.real and np.ptp(c.a) == 0 and np.ptp(c.e) > 0:
        return wrong(
            f"every element is {c.a.flat[0]:.6g}", "the result may not depend on the index: which line uses it?"
        )
    return None


def _prefix(c: ArrayComparison, off: npt.NDArray[np.bool_]) -> Diagnosis | None:
    """Explain wrong elements that fill the end of one axis."""
    for axis in range(off.ndim):
        bad = _along(off, axis)
        first, length = int(np.argmax(bad)), len(bad)
        if not first or not bad[first:].all() or length - first == 1 == int(off.sum()):
            continue
        if np.moveaxis(off, axis, 0)[first:].mean() < 0.5:  # they are among right ones, and end elsewhere
            continue
        tail = np.moveaxis(c.actual, axis, 0)[first:]
        unwritten = bool((tail == tail.flat[0]).all() or (tail != tail).all()) and tail.size > 1
        kept = f"; from there all are {tail.flat[0]:.6g}" if unwritten else ""
        right = f"right up to index {first - 1} of axis {axis}, wrong from {first} on"
        meaning = (f"only index 0 of axis {axis} is right" if first == 1 else right) + kept
        return wrong(meaning, _boundary(first, length, unwritten))
    return None


def _boundary(first: int, length: int, unwritten: bool) -> str:
    """Return what to do where an axis of ``length`` is right up to index ``first``."""
    tail, block = length - first, first & -first  # the largest power of two that divides it
    if first == 1:
        return _STRIDE if length >= _SHORT else _SECOND
    if tail == 1:
        return "only the last index is wrong: a loop may end one turn too early, or a bound may be off by one"
    if block < _BLOCK:
        return f"compute the element at index {first} by hand: what is different from there on?"
    if tail >= block or (block == first and not unwritten):
        return _NO_BLOCK if block == first else f"what changes after {first} indices: a block, a tile, a loop turn?"
    if block == first:
        return f"{_NO_BLOCK}; or {_NO_TAIL[4:]}"
    return _NO_TAIL


def _triangle(off: npt.NDArray[np.bool_]) -> Diagnosis | None:
    if off.ndim < 2 or off.shape[-1] != off.shape[-2] or off.shape[-1] < 3:
        return None
    flat = off.reshape(-1, *off.shape[-2:]).any(axis=0)
    row, column = np.indices(flat.shape)
    for name, place, next_step in (
        ("on the diagonal", row == column, "a comparison of row and column may need < in place of <=, or the reverse"),
        ("above the diagonal", row < column, "a mask may be missing, or hide the wrong side"),
        ("below the diagonal", row > column, "a mask may hide the wrong side, or only one half may be filled"),
    ):
        if not (flat & ~place).any() and flat.sum() * 2 > place.sum():
            return wrong(f"wrong elements are only {name}", next_step)
    return None


def _border(off: npt.NDArray[np.bool_]) -> Diagnosis | None:
    for axis in range(off.ndim):
        bad = _along(off, axis)
        if len(bad) > 4 and bad[0] and bad[-1] and not bad[1:-1].any():
            return wrong(
                f"only the first and the last index of axis {axis} are wrong",
                "the border may need its own case: what do neighbours outside the array count as?",
            )
    inner = (slice(1, -1),) * off.ndim
    if off.ndim > 1 and min(off.shape) > 4 and not off[inner].any() and off.sum() > 2:
        return wrong("only the border is wrong", "what do neighbours outside the array count as?")
    return None


def _one_index(off: npt.NDArray[np.bool_]) -> Diagnosis | None:
    for axis in range(off.ndim):
        bad = _along(off, axis)
        if len(bad) > 2 and int(bad.sum()) == 1:
            index = int(np.argmax(bad))
            reason = "what is different there" + ("; does a loop begin one turn too late?" if index == 0 else "?")
            return wrong(f"only index {index} of axis {axis} is wrong", reason)
        first = int(np.argmin(bad))
        if len(bad) > 2 and first and not bad[first:].any():
            return wrong(
                f"wrong up to index {first - 1} of axis {axis}, right from {first} on",
                f"what is different before index {first}: the input, a start value, a loop that begins too late?",
            )
    return None


def _seams(off: npt.NDArray[np.bool_]) -> Diagnosis | None:
    """Explain wrong elements on both sides of multiples of a power of two, and nowhere else."""
    for axis in range(off.ndim):
        at = np.flatnonzero(_along(off, axis))
        left, right = at[::2], at[1::2]
        if not len(at) or len(left) != len(right) or (right - left != 1).any():
            continue
        block = min(int(each) & -int(each) for each in right)
        if block >= _SEAM:
            return wrong(
                f"only indices {left[0]} and {right[0]} of axis {axis} are wrong"
                + (f", and other pairs at multiples of {block}" if len(right) > 1 else ""),
                f"a block or tile may end there (a multiple of {block}): what do its first and last elements need of "
                "its neighbour?",
            )
    return None


def _periodic(off: npt.NDArray[np.bool_]) -> Diagnosis | None:
    for axis in range(off.ndim):
        at = np.flatnonzero(_along(off, axis))
        if len(at) < 3 or off.shape[axis] < 6:
            continue
        step = int(at[1] - at[0])
        complete = at[0] < step and at[-1] + step >= off.shape[axis]
        if step > 1 and complete and (np.diff(at) == step).all():
            return wrong(
                f"every index {at[0]} + {step}k of axis {axis} is wrong, the others are right",
                f"what happens once every {step} elements: one thread or lane, one turn of a loop, the end of a tile?",
            )
    return None


def _along(off: npt.NDArray[np.bool_], axis: int) -> npt.NDArray[np.bool_]:
    """Return for each index of ``axis`` whether an element there is wrong."""
    return np.asarray(off.any(axis=tuple(i for i in range(off.ndim) if i != axis)))


def _spelt(c: ArrayComparison, where: npt.NDArray[np.bool_]) -> str:
    return " or ".join(sorted({f"{value:g}" for value in np.abs(c.expected[where]).tolist()}))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
