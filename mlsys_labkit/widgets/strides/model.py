"""Strided views of linear memory, counted in elements; the twin of ``model.js``.

A view never moves data: its element ``index`` is at ``offset + sum(i * stride)``. Reference: NumPy reference guide,
"The N-dimensional array: internal memory layout of an ndarray".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from math import prod


@dataclass(frozen=True)
class StridedView:
    """``shape``, ``strides`` and ``offset`` in elements, over a memory that the view does not own."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Return row-major strides: the last axis is next to itself.

    Example:
        >>> contiguous((2, 3, 4))
        (12, 4, 1)
    """
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


def place(index: Sequence[int], view: StridedView) -> int:
    """Return the position in memory of element ``index``, in elements."""
    return view.offset + sum(i * stride for i, stride in zip(index, view.strides, strict=True))


def places(view: StridedView) -> list[int]:
    """Return the place of each element in reading order (last axis fastest)."""
    return [place(index, view) for index in product(*map(range, view.shape))]


def is_contiguous(view: StridedView) -> bool:
    """Check that the elements are adjacent in reading order; the stride of an axis of length 1 does not matter."""
    pairs = zip(view.shape, view.strides, contiguous(view.shape), strict=True)
    return all(stride == dense for length, stride, dense in pairs if length > 1)


def aliases(view: StridedView) -> int:
    """Count the elements that share their position with an earlier one."""
    return prod(view.shape) - len(set(places(view)))


def outside(view: StridedView, size: int) -> int:
    """Count the elements that lie outside a memory of ``size`` elements."""
    return sum(not 0 <= spot < size for spot in places(view))


def lines(view: StridedView, itemsize: int, line_bytes: int = 64) -> tuple[int, int]:
    """Return distinct cache lines that the elements start in, and how often reading in order moves to another line."""
    walk = [spot * itemsize // line_bytes for spot in places(view)]
    return len(set(walk)), sum(a != b for a, b in pairwise(walk))


def transpose(view: StridedView) -> StridedView:
    """Return the axes in reverse order."""
    return replace(view, shape=view.shape[::-1], strides=view.strides[::-1])


def cut(view: StridedView, axis: int, start: int, step: int) -> StridedView:
    """Return ``x[start::step]`` along one axis. ``start`` lies inside it; ``step`` is not 0 and may be negative."""
    length, stride = view.shape[axis], view.strides[axis]
    kept = -(-(length - start) // step) if step > 0 else start // -step + 1
    return StridedView(
        (*view.shape[:axis], kept, *view.shape[axis + 1 :]),
        (*view.strides[:axis], stride * step, *view.strides[axis + 1 :]),
        view.offset + start * stride,
    )


def flip(view: StridedView, axis: int) -> StridedView:
    """Return ``x[::-1]`` along one axis: the stride turns negative and the offset moves to the far end."""
    return cut(view, axis, view.shape[axis] - 1, -1)


def broadcast(view: StridedView, length: int) -> StridedView:
    """Return a new first axis of ``length`` that costs no memory: its stride is 0."""
    return replace(view, shape=(length, *view.shape), strides=(0, *view.strides))
