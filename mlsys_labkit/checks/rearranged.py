"""Explanations of arrays with the right values in the wrong places: swapped axes, wrong strides, turns, tiles."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np
import numpy.typing as npt

from mlsys_labkit.checks.comparison import ArrayComparison, Diagnosis, wrong

_Index = npt.NDArray[np.intp]
_SWAP = "swap the two indices; in a kernel, x usually counts columns and y rows"
_ORDER = "multiply the row by the number of columns, and add the column"
_TILES = (2, 4, 8, 16, 32, 64)
_MOST_PLACES = 64  # turns and strides that are tried
_LARGE = 1 << 17  # elements; in larger arrays only swapped axes are tried, because each try costs a pass


def rearranged(c: ArrayComparison) -> Diagnosis | None:
    """Find the rearrangement of ``expected`` that ``actual`` is. Return None if there is none."""
    if c.a.size < 3 or np.ptp(c.e) == 0:
        return None
    places = np.arange(c.a.size).reshape(c.a.shape)
    if c.a.size > _LARGE:
        return _swapped(c, places)
    for find in (_swapped, _reversed, _turned, _repeated, _strided, _tiled, _shifted, _sampled):
        if found := find(c, places):
            return found
    if int(c.off.sum()) > 2 and _same_values(c):
        return wrong("the right values in another order", "which index decides where a value is stored?")
    return None


def _swapped(c: ArrayComparison, places: _Index) -> Diagnosis | None:
    for one, other in combinations(range(places.ndim), 2):
        if places.shape[one] == places.shape[other] and c.holds(places.swapaxes(one, other)):
            if places.ndim == 2:
                meaning = "this is the transpose of what was expected: element [i, j] is the expected [j, i]"
                return wrong(meaning, _SWAP)
            return wrong(f"axes {one} and {other} are swapped", "swap the two indices, or the two axes")
    if places.ndim == 2:
        rows, columns = places.shape
        if c.holds(places.T.reshape(rows, columns)):
            return wrong("the right values in column order (column by column), expected row by row", _ORDER)
        if c.holds(places.reshape(columns, rows).T):
            return wrong("the expected values are read row by row and stored column by column", _ORDER)
    return None


def _reversed(c: ArrayComparison, places: _Index) -> Diagnosis | None:
    for axis in range(places.ndim):
        if places.shape[axis] > 1 and c.holds(np.flip(places, axis)):
            return wrong(f"axis {axis} is reversed", "a difference or an order may be the wrong way round")
    if places.ndim > 1 and c.holds(np.flip(places)):
        return wrong("all axes are reversed", "a difference or an order may be the wrong way round")
    return None


def _turned(c: ArrayComparison, places: _Index) -> Diagnosis | None:
    for axis, length in enumerate(places.shape):
        for step in _near(length):
            if c.holds(np.roll(places, step, axis)):
                by = f"{abs(step)} place{'' if abs(step) == 1 else 's'}"
                way = "later" if step > 0 else "earlier"
                return wrong(
                    f"axis {axis} is turned: each element stands {by} {way} than expected, and the ends wrap round",
                    "off by one turn: does the count begin at 0, and is it before or after the step?"
                    if abs(step) == 1
                    else "does the count begin at the right place?",
                )
    return None


def _repeated(c: ArrayComparison, places: _Index) -> Diagnosis | None:
    """Find elements that repeat along an axis: index % step, index // step, or one index for all."""
    for axis, length in enumerate(places.shape):
        for index in (0, length - 1):
            if length > 1 and c.holds(_taken(places, np.full(length, index), axis)):
                which = "first" if index == 0 else "last"
                cause = (
                    "the index may not enter the address (a stride of 0)"
                    if index == 0
                    else "one buffer may have been stored many times instead of copies of it"
                )
                return wrong(f"every index of axis {axis} holds what the {which} one should", cause)
        for step in range(2, min(length, _MOST_PLACES * 16 + 1)):
            if step > _MOST_PLACES and step & (step - 1):
                continue
            if c.holds(_taken(places, np.arange(length) % step, axis)):
                return wrong(
                    f"the first {step} of axis {axis} repeat",
                    "the block's number (blockIdx, program_id) or an outer loop may be missing from the index",
                )
            if c.holds(_taken(places, np.arange(length) // step, axis)):
                return wrong(
                    f"along axis {axis} each expected element comes {step} times",
                    f"the index may be divided by {step} once too often",
                )
    return None


def _strided(c: ArrayComparison, places: _Index) -> Diagnosis | None:
    """Find a wrong row stride, in what was read or in where it was written."""
    if places.ndim != 2 or min(places.shape) < 2:
        return None
    rows, columns = places.shape
    row, column = np.indices(places.shape)
    for step in _strides(rows, columns):
        index = row * step + column
        inside = np.asarray(index < places.size)
        if (inside[1:] & c.off[1:]).sum() >= min(4, columns) and c.holds(np.where(inside, index, 0), inside):
            return wrong(
                f"row i holds the expected elements from {step} * i on, and a row has {columns}",
                f"the stride of a row may be wrong: multiply the row by {columns}",
            )
        if step > columns and not _same_values(c):
            came = np.flatnonzero(inside.reshape(-1))
            where = index.reshape(-1)[came]
            source, found = np.zeros(places.size, np.intp), np.zeros(places.size, bool)
            source[where], found[where] = came, True
            if c.off.reshape(-1)[where].sum() >= columns and c.holds(source, found):
                return wrong(
                    f"the expected row i stands at element {step} * i of what came, and a row has {columns}",
                    "the stride of a row may be wrong, where it is read or where it is written; are rows padded?",
                )
    return None


def _tiled(c: ArrayComparison, places: _Index) -> Diagnosis | None:
    """Find square tiles that are transposed inside, swapped with each other, or all the first one."""
    if places.ndim != 2 or min(places.shape) < 2:
        return None
    row, column = np.indices(places.shape)
    for tile in _TILES:
        if tile >= max(places.shape):
            break
        rows, columns = (length // tile * tile for length in places.shape)
        if not rows or not columns:
            break
        whole = (row < rows) & (column < columns)
        i, j, inner, across = row // tile, column // tile, row % tile, column % tile
        width = places.shape[1]
        swapped_inside = (i * tile + across) * width + j * tile + inner
        if c.holds(np.where(whole, swapped_inside, 0), whole):
            return wrong(
                f"inside each tile of {tile} x {tile}, rows and columns are swapped",
                "swap the two thread indices where the tile is read, or where it is written",
            )
        outside = (j * tile + inner) * width + i * tile + across
        if rows == columns and c.holds(np.where(whole, outside, 0), whole):
            return wrong(
                f"tile [i, j] of {tile} x {tile} stands where tile [j, i] belongs",
                "swap the two block indices (blockIdx, program_id)",
            )
        if rows > tile or columns > tile:
            first = inner * width + across
            if c.holds(first):
                return wrong(
                    f"every tile of {tile} x {tile} holds what the first one should",
                    "the block's number (blockIdx, program_id) may be missing from the index",
                )
    return None


def _shifted(c: ArrayComparison, places: _Index) -> Diagnosis | None:
    """Find a shift along an axis whose ends do not wrap round."""
    for axis, length in enumerate(places.shape):
        for step in (1, -1, 2, -2):
            if length < 3 + abs(step):
                continue
            index = np.arange(length) - step
            inside = (index >= 0) & (index < length)
            shape = [length if each == axis else 1 for each in range(places.ndim)]
            at = np.broadcast_to(inside.reshape(shape), places.shape)
            if c.holds(_taken(places, np.where(inside, index, 0), axis), at):
                by = f"{abs(step)} place{'' if abs(step) == 1 else 's'}"
                way = "earlier" if step > 0 else "later"
                return wrong(
                    f"along axis {axis} each element is the expected one {by} {way}",
                    "off by one turn: one term too few or too many, or an index that begins at 1"
                    if abs(step) == 1
                    else "an index may be off by a constant",
                )
    return None


def _sampled(c: ArrayComparison, places: _Index) -> Diagnosis | None:
    """Find elements read with a stride along an axis: element i is the expected step * i."""
    for axis, length in enumerate(places.shape):
        for step in range(2, min(length, _MOST_PLACES)):
            index = np.arange(length) * step
            inside = index < length
            if inside.sum() < 3:
                break
            shape = [length if each == axis else 1 for each in range(places.ndim)]
            at = np.broadcast_to(inside.reshape(shape), places.shape)
            if c.holds(_taken(places, np.where(inside, index, 0), axis), at):
                return wrong(
                    f"along axis {axis} element i is the expected element {step} * i, as far as there are any",
                    "the stride may be wrong: neighbours should be one apart",
                )
    return None


def _same_values(c: ArrayComparison) -> bool:
    return bool(np.all(np.abs(np.sort(c.a, axis=None) - np.sort(c.e, axis=None)) <= 4 * c.allowed.min()))


def _taken(places: _Index, index: _Index, axis: int) -> _Index:
    return np.take(places, index, axis)


def _near(length: int) -> Iterator[int]:
    for step in range(1, min(length // 2, _MOST_PLACES) + 1):
        yield step
        if 2 * step < length or length == 2:
            yield -step


def _strides(rows: int, columns: int) -> Iterator[int]:
    """Return row strides to try: near the right one, the number of rows, and small ones."""
    near = [columns - 1, columns + 1, rows, columns - 2, columns + 2, 2 * columns, columns // 2, 1]
    powers = [1 << bit for bit in range(1, 13) if 1 << bit <= 4 * columns]
    seen = dict.fromkeys([*near, *powers, *range(1, min(2 * columns, _MOST_PLACES) + 1)])
    return (step for step in seen if step > 0 and step != columns)
