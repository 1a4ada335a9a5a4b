"""Values that no GPU promises, followed from the load that leaves them to where they matter.

``tl.load`` with a mask and without ``other`` leaves any value in the lanes that it masks off; here it is 0. That is no
error while such a lane is not stored, as in ``tl.store(out + i, tl.load(x + i, mask=inside), mask=inside)``. So a
handle carries the lanes that depend on such a value. A sum of a block depends on all its lanes. ``tl.where`` ends the
trail in the lanes that take the other value, and so do ``&`` with False and ``|`` with True.

Triton promises as little outside a block pointer without ``padding_option``. Public kernels rely on the 0 that NVIDIA's
GPUs have there, so that is not followed.

Reference: Triton, ``triton.language.load``: "If mask[idx] is false, do not load the data; return other[idx]".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import triton.language as tl
from numpy.typing import NDArray

from mlsys_labkit.triton_trace.interpret.private import Handle
from mlsys_labkit.triton_trace.interpret.run import InterpreterRun
from mlsys_labkit.triton_trace.names import name_set
from mlsys_labkit.triton_trace.recorder import Line

_KEY = "labkit undefined"
_MOVED = name_set("reshape trans expand_dims broadcast splat unsplat join cat split")
_UNFOLLOWED = name_set("""
    load store masked_load masked_store atomic_cas atomic_rmw atomic_load atomic_store tensor_pointer_load
    tensor_pointer_store make_block_ptr advance make_tensor_descriptor descriptor_load descriptor_store
    descriptor_gather descriptor_scatter descriptor_reduce print assert
    assume barrier get_program_id get_num_programs make_range
""")
Lanes = NDArray[np.bool_]


@dataclass(frozen=True)
class Undefined:
    """The lanes of a block that depend on a value that no GPU promises.

    Attributes:
        lanes: bool, of the block's shape. line: of the load.
    """

    lanes: Lanes
    line: Line


def undefined_in(handle: Any) -> Undefined | None:
    """Return the undefined lanes of a handle, or None."""
    found: Undefined | None = handle.attr.get(_KEY) if handle is not None and handle.attr else None
    return found


def loaded(run: InterpreterRun, result: Any, pointers: Any, mask: Any, other: Any) -> Any:
    """Note in the result of a load the lanes that it leaves undefined, and return it.

    ``other`` is the value of masked-off lanes, or None.
    """
    shape = result.data.shape
    on = None if mask is None else np.broadcast_to(mask.data, shape)
    sources = [found for found in map(undefined_in, (pointers, mask, other)) if found]
    if not sources and (on is None or other is not None or on.all()):
        return result
    lanes = np.zeros(shape, np.bool_) if on is None or other is not None else ~on
    if not sources:
        sources = [Undefined(lanes, run.line())]
    address, masked, filling = (undefined_in(each) for each in (pointers, mask, other))
    if address:
        lanes = lanes | (address.lanes if on is None else address.lanes & on)
    if masked:
        lanes = lanes | masked.lanes
    if filling and on is not None:
        lanes = lanes | (filling.lanes & ~on)
    return _noted(result, lanes, sources[0])


def require_defined(run: InterpreterRun, what: str, mask: Any, *operands: Any) -> None:
    """Report operands whose undefined lanes decide what an active lane does; ``what`` says what that is."""
    found = [one for one in map(undefined_in, operands) if one]
    masked = undefined_in(mask)
    if not found and not masked:
        return
    shape = np.broadcast_shapes(*(each.data.shape for each in (*operands, mask) if each is not None))
    lanes = np.zeros(shape, np.bool_)
    for one in found:
        lanes = lanes | one.lanes
    if mask is not None:
        lanes = lanes & mask.data
    if masked:
        lanes = lanes | masked.lanes
    if count := int(lanes.sum()):
        first = _main([one for one in (*found, masked) if one])
        total = f"{count:,} elements in all; " if count > 1 else ""
        run.misuse(
            "undefined_value",
            f"{what} a value that depends on a lane which tl.load masks off in line {first.line.number}; a GPU has any "
            f"value there ({total}give the load other=..., or choose with tl.where first)",
            cause=first.line,
            count=count,
        )


def in_groups(results: Sequence[Any], operands: Sequence[Any], size: int) -> Sequence[Any]:
    """Note in results that each of them depends on all of ``size`` elements in a row of each operand; return them."""
    found = [one for one in map(undefined_in, operands) if one]
    for made in results if found else ():
        lanes = np.zeros(made.data.shape, np.bool_)
        for one in found:
            lanes = lanes | one.lanes
        full = np.pad(lanes.reshape(-1), (0, -lanes.size % size))
        groups = np.repeat(full.reshape(-1, size).any(axis=1), size)[: lanes.size]
        _noted(made, groups.reshape(lanes.shape), _main(found))
    return results


def follow(builder: Any) -> None:
    """Make the operations of a builder class pass on undefined lanes."""
    for name in dir(builder):
        short = name.removeprefix("create_")
        if short == name or short in _UNFOLLOWED:
            continue
        rule = _RULES.get(short, _moved if short in _MOVED else _each)
        setattr(builder, name, _passing(getattr(builder, name), rule))


def cut(handle: Any, part: Callable[[NDArray[Any]], NDArray[Any]]) -> Any:
    """Return a part of a handle's data, with its undefined lanes."""
    made = Handle(part(handle.data), handle.dtype.scalar)
    found = undefined_in(handle)
    return _noted(made, part(found.lanes), found) if found else made


def stitched(one: Any, two: Any, join: Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]]) -> Any:
    """Return parts of two handles joined, with their undefined lanes."""
    made = Handle(join(one.data, two.data), one.dtype.scalar)
    found = undefined_in(one) or undefined_in(two)
    return _noted(made, join(_lanes(one), _lanes(two)), found) if found else made


def _passing(operation: Callable[..., Any], rule: Callable[..., Lanes]) -> Callable[..., Any]:
    def create(self: Any, *args: Any) -> Any:
        result = operation(self, *args)
        found = [one.attr[_KEY] for one in args if type(one) is Handle and one.attr and _KEY in one.attr]
        if found:
            lanes = rule(operation, self, args, result)
            for made, part in zip(result, lanes, strict=True) if isinstance(result, tuple) else ((result, lanes),):
                _noted(made, part, _main(found))
        return result

    create.__name__ = getattr(operation, "__name__", "create")
    return create


def _main(found: list[Undefined]) -> Undefined:
    """Return the one of several causes that concerns most lanes."""
    return max(found, key=lambda one: float(one.lanes.mean()))


def _noted(handle: Any, lanes: Lanes, found: Undefined) -> Any:
    if lanes.any():
        handle.attr[_KEY] = replace(found, lanes=np.broadcast_to(lanes, handle.data.shape))
    return handle


def _lanes(handle: Any) -> Lanes:
    found = undefined_in(handle)
    return found.lanes if found else np.zeros(handle.data.shape, np.bool_)


def _each(operation: Any, builder: Any, args: tuple[Any, ...], result: Any) -> Lanes:
    """Return the undefined lanes of an operation on each lane by itself."""
    lanes: Lanes = np.zeros(result.data.shape, np.bool_)
    for one in args:
        if type(one) is Handle and (found := undefined_in(one)):
            lanes = lanes | found.lanes
    return lanes


def _moved(operation: Any, builder: Any, args: tuple[Any, ...], result: Any) -> Any:
    """Move the lanes as the operation moved the numbers."""
    moved = operation(builder, *(Handle(_lanes(one), tl.int1) if type(one) is Handle else one for one in args))
    return (
        tuple(one.data.astype(np.bool_) for one in moved) if isinstance(moved, tuple) else moved.data.astype(np.bool_)
    )


def _unless(neutral: Callable[[NDArray[Any]], Lanes]) -> Callable[..., Lanes]:
    """Return the rule of an operation whose result one operand decides alone where ``neutral`` is False for it."""

    def rule(operation: Any, builder: Any, args: tuple[Any, ...], result: Any) -> Lanes:
        one, two = args[:2]
        first, second = _lanes(one), _lanes(two)
        return (first & (second | neutral(two.data))) | (second & (first | neutral(one.data)))

    return rule


def _selected(operation: Any, builder: Any, args: tuple[Any, ...], result: Any) -> Lanes:
    condition, one, two = args[:3]
    first, second = _lanes(one), _lanes(two)
    differ = first | second | (one.data != two.data.view(one.data.dtype))
    return np.asarray(np.where(condition.data, first, second) | (_lanes(condition) & differ))


def _dot(operation: Any, builder: Any, args: tuple[Any, ...], result: Any) -> Lanes:
    a, b, total = args[:3]
    first, second = _lanes(a), _lanes(b)
    if a.data.dtype.kind in "iu" and a.dtype.scalar.is_int():  # 0 times any number is 0; any float may be NaN
        left = (first.astype(np.float32) @ (second | (b.data != 0)).astype(np.float32)) > 0
        right = ((first | (a.data != 0)).astype(np.float32) @ second.astype(np.float32)) > 0
        return np.asarray(left | right | _lanes(total))
    rows, columns = np.any(first, -1, keepdims=True), np.any(second, -2, keepdims=True)
    return np.asarray(rows | columns | _lanes(total))


def _gathered(operation: Any, builder: Any, args: tuple[Any, ...], result: Any) -> Lanes:
    source, indices, axis = args[:3]
    return np.asarray(np.take_along_axis(_lanes(source), indices.data, axis=axis) | _lanes(indices))


def _histogram(operation: Any, builder: Any, args: tuple[Any, ...], result: Any) -> Lanes:
    data, _, mask = args[:3]
    lanes = _lanes(data) if mask is None else _lanes(data) & mask.data | _lanes(mask)
    return np.broadcast_to(lanes.any(), result.data.shape)


_RULES: dict[str, Callable[..., Any]] = {
    "and": _unless(lambda data: data != 0),
    "or": _unless(lambda data: ~data != 0),
    "mul": _unless(lambda data: data != 0),
    "select": _selected,
    "dot": _dot,
    "gather": _gathered,
    "dot_scaled": lambda operation, builder, args, result: np.ones(result.data.shape, np.bool_),
    "histogram": _histogram,
}
