"""``tl.reduce`` and ``tl.associative_scan``, and with them ``tl.sum``, ``tl.max``, ``tl.argmax``, ``tl.cumsum``, ...

Triton's own combining function runs on whole blocks, so NaN, ties and rounding behave as Triton defines them. The order
is one of those that a GPU may choose.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import triton.language as tl
from numpy.typing import NDArray

from mlsys_labkit.triton_trace.interpret.run import Refused
from mlsys_labkit.triton_trace.interpret.undefined import cut, stitched


def plain(value: Any) -> Any:
    """Return the value of a tl.constexpr, and any other value as it is."""
    return value.value if isinstance(value, tl.constexpr) else value


def shape_of(block: Any) -> list[int]:
    return [int(n) for n in block.handle.data.shape] if block.type.is_block() else []


def reduce(input: Any, axis: Any, combine_fn: Any, keep_dims: Any = False, **options: Any) -> Any:
    """Combine neighbours, then the results, until one is left."""
    blocks, axis = _blocks(input), plain(axis)
    rank = len(_checked(blocks[0], axis))
    flat = axis is None
    parts = [cut(one.handle, lambda data: data.reshape(-1) if flat else np.moveaxis(data, axis, 0)) for one in blocks]
    while len(parts[0].data) > 1:
        left, right = [cut(one, _even) for one in parts], [cut(one, _odd) for one in parts]
        parts = _combined(combine_fn, blocks, left, right)
    results = [cut(one, lambda data: np.asarray(data[0])) for one in parts]
    if plain(keep_dims):
        results = [
            cut(one, lambda data: data.reshape([1] * rank) if flat else np.expand_dims(data, axis)) for one in results
        ]
    return _like(input, [_block(block, result) for block, result in zip(blocks, results, strict=True)])


def scan(input: Any, axis: Any, combine_fn: Any, reverse: Any = False, **options: Any) -> Any:
    """Scan in steps of doubling distance d: each element then combines the 2 d up to itself (Hillis and Steele)."""
    blocks, axis = _blocks(input), plain(axis)
    _checked(blocks[0], axis)
    step = -1 if plain(reverse) else 1
    parts = [cut(block.handle, lambda data: np.moveaxis(data, axis, 0)[::step]) for block in blocks]
    distance = 1
    while distance < len(parts[0].data):
        shifted = partial(np.roll, shift=distance, axis=0)
        before = [cut(one, shifted) for one in parts]  # a block's size is a power of 2: none is cut off
        combined = _combined(combine_fn, blocks, before, parts)
        join = partial(_joined, distance)
        parts = [stitched(one, new, join) for one, new in zip(parts, combined, strict=True)]
        distance *= 2
    results = [cut(one, lambda data: np.ascontiguousarray(np.moveaxis(data[::step], 0, axis))) for one in parts]
    return _like(input, [_block(block, result) for block, result in zip(blocks, results, strict=True)])


def _even(data: NDArray[Any]) -> NDArray[Any]:
    return data[0::2]


def _odd(data: NDArray[Any]) -> NDArray[Any]:
    return data[1::2]


def _joined(length: int, first: NDArray[Any], last: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([first[:length], last[length:]])


def _blocks(input: Any) -> list[Any]:
    return list(input) if isinstance(input, (tuple, tl.tuple)) else [input]


def _like(input: Any, results: list[Any]) -> Any:
    return tuple(results) if isinstance(input, (tuple, tl.tuple)) else results[0]


def _checked(block: Any, axis: int | None) -> list[int]:
    shape = shape_of(block)
    if axis is not None and not -len(shape) <= axis < len(shape):
        raise Refused(f"axis {axis} is out of bounds for a block of shape {shape}")
    return shape


def _combined(function: Any, blocks: Sequence[Any], left: list[Any], right: list[Any]) -> list[Any]:
    operands = [_block(block, part) for parts in (left, right) for block, part in zip(blocks, parts, strict=True)]
    results = _blocks(function(*operands))
    for block, result in zip(blocks, results, strict=True):
        if result.type.scalar != block.type.scalar:
            raise Refused(f"the combining function makes {result.type.scalar} of {block.type.scalar}")
    shape = left[0].data.shape
    return [
        one.handle if one.handle.data.shape == shape else cut(one.handle, lambda data: np.broadcast_to(data, shape))
        for one in results
    ]


def _block(like: Any, handle: Any) -> Any:
    dtype = like.type.scalar
    if handle.data.ndim:
        return tl.tensor(handle, tl.block_type(dtype, list(handle.data.shape)))
    return tl.tensor(cut(handle, lambda data: data.reshape(1)), dtype)
