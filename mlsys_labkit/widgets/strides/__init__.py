"""Stride viewer: shape, strides and offset over linear memory, element by element."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from mlsys_labkit.errors import LabkitError
from mlsys_labkit.widgets.base import Kind, State, paragraph, table
from mlsys_labkit.widgets.strides import model

MOST_ELEMENTS = 256
LINE_BYTES = 64


def strides(
    shape: Sequence[int] = (3, 4),
    strides: Sequence[int] | None = None,
    offset: int = 0,
    *,
    itemsize: int = 4,
    size: int | None = None,
) -> Any:
    """Explore how ``shape``, ``strides`` and ``offset`` (all in elements) lay a tensor over linear memory.

    ``itemsize`` is the bytes of one element (1, 2, 4 or 8); ``size`` the elements of memory, by default as many as a
    contiguous tensor of this shape needs, behind ``offset``. One to three axes, at most 256 elements.
    Raises LabkitError when an argument is outside these bounds.
    Reference: NumPy reference guide, "Internal memory layout of an ndarray".

    Example:
        >>> strides((4, 3), strides=(1, 4))  # a transposed (3, 4), without a copy
        <Stride viewer>
    """
    try:
        lengths = tuple(int(length) for length in shape)
    except TypeError:
        raise LabkitError(
            f"shape is a list of lengths such as (3, 4), got {type(shape).__name__}; pass x.shape"
        ) from None
    if not 1 <= len(lengths) <= 3 or min(lengths) < 1 or prod(lengths) > MOST_ELEMENTS:
        raise LabkitError(f"shape needs 1 to 3 axes of at least 1 and at most {MOST_ELEMENTS} elements, got {lengths}")
    steps = model.contiguous(lengths) if strides is None else tuple(int(step) for step in strides)
    if len(steps) != len(lengths):
        raise LabkitError(f"expected {len(lengths)} strides, one an axis, got {len(steps)}")
    if itemsize not in (1, 2, 4, 8):
        raise LabkitError(f"itemsize is 1, 2, 4 or 8 bytes, got {itemsize}")
    memory = max(offset, 0) + prod(lengths) if size is None else int(size)
    if not 1 <= memory <= 2 * MOST_ELEMENTS:
        raise LabkitError(f"memory holds 1 to {2 * MOST_ELEMENTS} elements here, got {memory}")
    return KIND.show(shape=list(lengths), strides=list(steps), offset=int(offset), itemsize=itemsize, size=memory)


def _static(state: State) -> str:
    view = model.StridedView(tuple(state["shape"]), tuple(state["strides"]), state["offset"])
    spots, width = model.places(view), view.shape[-1]
    distinct, moves = model.lines(view, state["itemsize"], LINE_BYTES)
    rows = [[f"row {row}", *spots[row * width : (row + 1) * width]] for row in range(len(spots) // width)]
    facts = (
        f"Shape {view.shape}, strides {view.strides}, offset {view.offset}: "
        f"{'contiguous' if model.is_contiguous(view) else 'not contiguous'}, {distinct} cache lines touched, "
        f"{moves} moves between lines, {model.aliases(view)} aliases, "
        f"{model.outside(view, state['size'])} elements outside memory."
    )
    head = ["view", *(f"column {column}" for column in range(width))]
    return paragraph(facts) + table("Where each element lives in memory (in elements)", head, rows)


KIND = Kind("strides", "Stride viewer", _static)
