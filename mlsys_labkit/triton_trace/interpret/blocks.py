"""``tl.reduce`` and ``tl.associative_scan``, and with them ``tl.sum``, ``tl.max``, ``tl.argmax``, ``tl.cumsum``, ...

Triton's own combining function runs on whole blocks, so NaN, ties and rounding behave as Triton defines them. The order
is one of those that a GPU may choose.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import triton.language as tl
from numpy.typing import NDArray

from mlsys_labkit.triton_trace.interpret.private import Handle
from mlsys_labkit.triton_trace.interpret.run import Refused


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
    arrays = [one.handle.data.reshape(-1) if flat else np.moveaxis(one.handle.data, axis, 0) for one in blocks]
    while len(arrays[0]) > 1:
        arrays = _combined(combine_fn, blocks, [one[0::2] for one in arrays], [one[1::2] for one in arrays])
    results = [np.asarray(array[0]) for array in arrays]
    if plain(keep_dims):
        results = [one.reshape([1] * rank) if flat else np.expand_dims(one, axis) for one in results]
    return _like(input, [_block(block, result) for block, result in zip(blocks, results, strict=True)])


def scan(input: Any, axis: Any, combine_fn: Any, reverse: Any = False, **options: Any) -> Any:
    """Scan in steps of doubling distance d: each element then combines the 2 d up to itself (Hillis and Steele)."""
    blocks, axis = _blocks(input), plain(axis)
    _checked(blocks[0], axis)
    step = -1 if plain(reverse) else 1
    arrays = [np.moveaxis(block.handle.data, axis, 0)[::step] for block in blocks]
    distance = 1
    while distance < len(arrays[0]):
        before = [np.roll(one, distance, 0) for one in arrays]  # a block's size is a power of 2: none is cut off
        combined = _combined(combine_fn, blocks, before, arrays)
        arrays = [np.concatenate([one[:distance], new[distance:]]) for one, new in zip(arrays, combined, strict=True)]
        distance *= 2
    results = [np.ascontiguousarray(np.moveaxis(array[::step], 0, axis)) for array in arrays]
    return _like(input, [_block(block, result) for block, result in zip(blocks, results, strict=True)])


def _blocks(input: Any) -> list[Any]:
    return list(input) if isinstance(input, (tuple, tl.tuple)) else [input]


def _like(input: Any, results: list[Any]) -> Any:
    return tuple(results) if isinstance(input, (tuple, tl.tuple)) else results[0]


def _checked(block: Any, axis: int | None) -> list[int]:
    shape = shape_of(block)
    if axis is not None and not -len(shape) <= axis < len(shape):
        raise Refused(f"axis {axis} is out of bounds for a block of shape {shape}")
    return shape


def _combined(
    function: Any, blocks: Sequence[Any], left: list[NDArray[Any]], right: list[NDArray[Any]]
) -> list[NDArray[Any]]:
    operands = [_block(block, part) for parts in (left, right) for block, part in zip(blocks, parts, strict=True)]
    results = _blocks(function(*operands))
    for block, result in zip(blocks, results, strict=True):
        if result.type.scalar != block.type.scalar:
            raise Refused(f"the combining function makes {result.type.scalar} of {block.type.scalar}")
    return [np.broadcast_to(result.handle.data, part.shape) for result, part in zip(results, left, strict=True)]


def _block(like: Any, data: NDArray[Any]) -> Any:
    dtype = like.type.scalar
    if data.ndim:
        return tl.tensor(Handle(data, dtype), tl.block_type(dtype, list(data.shape)))
    return tl.tensor(Handle(data.reshape(1), dtype), dtype)
