"""Offsets that overflowed their integers, followed from the operation to the access that uses them.

``tl.arange(0, 256).to(tl.int16) * 200`` wraps around beyond 32,767, and an address made of it is a wrong one. A handle
whose numbers are made of such a result carries the lanes concerned. Other results, such as hashes taken modulo a size,
are no errors: remainders, ``&`` and conversions to floats end the trail. Only the numbers of this launch are checked:
an int16 offset that would overflow with more rows passes while it does not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import triton.language as tl
from numpy.typing import NDArray

from mlsys_labkit.triton_trace.interpret.private import Handle

_KEY = "labkit overflow"
_EXACT = {"create_add": np.add, "create_sub": np.subtract, "create_mul": np.multiply}
_KEPT = ("reshape", "trans", "expand_dims", "broadcast", "splat", "unsplat", "join", "cat", "int_cast", "addptr")


@dataclass(frozen=True)
class Overflow:
    """The lanes of a block that an overflow reached; ``exact`` is a number that did not fit into ``dtype``."""

    lanes: NDArray[np.bool_]
    dtype: str
    exact: int


def overflow_of(handle: Any) -> Overflow | None:
    """Return the overflow behind a handle's numbers, or None."""
    found: Overflow | None = handle.attr.get(_KEY)
    return found


def follow(builder: Any) -> None:
    """Make the operations of a builder class on integers note and pass on overflows."""
    for name, exact in _EXACT.items():
        setattr(builder, name, _noting(getattr(builder, name), exact, name == "create_mul"))
    for name in (f"create_{short}" for short in _KEPT):
        setattr(builder, name, _passing(getattr(builder, name)))


def _noting(operation: Callable[..., Any], exact: Callable[..., Any], product: bool) -> Callable[..., Any]:
    def create(self: Any, lhs: Any, rhs: Any) -> Any:
        result = operation(self, lhs, rhs)
        if result.data.dtype.kind == "i":
            found = [one for one in (overflow_of(lhs), overflow_of(rhs)) if one]
            if result.data.itemsize <= 4 and _may_overflow(lhs.data, rhs.data, product):
                wide = exact(lhs.data.astype(np.int64), rhs.data.astype(np.int64))
                wrong = wide != result.data
                if wrong.any():
                    found.append(Overflow(wrong, result.dtype.scalar.name, int(wide[wrong].flat[0])))
            _note(result, found)
        return result

    return create


def _may_overflow(one: NDArray[Any], two: NDArray[Any], product: bool) -> bool:
    """Return False where the largest numbers show that no result can overflow."""
    if not one.size or not two.size:
        return False
    first, second = (max(int(data.max()), -int(data.min())) for data in (one, two))
    return (first * second if product else first + second) > np.iinfo(one.dtype).max


def _passing(operation: Callable[..., Any]) -> Callable[..., Any]:
    def create(self: Any, *args: Any) -> Any:
        result = operation(self, *args)
        found = [one for one in (overflow_of(each) for each in args if isinstance(each, Handle)) if one]
        if found:
            _note(result, [_moved(operation, self, args, one) for one in found])
        return result

    return create


def _moved(operation: Callable[..., Any], builder: Any, args: tuple[Any, ...], found: Overflow) -> Overflow:
    """Move the lanes as the operation moved the numbers."""
    if operation.__name__ in ("create_int_cast", "create_addptr"):
        return found
    lanes = [Handle(found.lanes if overflow_of(each) else np.zeros_like(each.data, np.bool_), tl.int1)
             if isinstance(each, Handle) else each for each in args]  # fmt: skip
    return replace(found, lanes=operation(builder, *lanes).data.astype(np.bool_))


def _note(result: Any, found: list[Overflow]) -> None:
    if found:
        lanes = np.zeros(result.data.shape, np.bool_)
        for one in found:
            lanes = lanes | one.lanes
        result.attr[_KEY] = replace(found[0], lanes=lanes)
