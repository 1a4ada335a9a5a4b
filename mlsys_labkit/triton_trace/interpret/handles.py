"""Conversions between the handles of Triton's interpreter, which hold bits, and numbers for numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl
from numpy.typing import NDArray

from mlsys_labkit.triton_trace.interpret.narrow_floats import NARROW, Narrow
from mlsys_labkit.triton_trace.interpret.private import Handle, storage_dtype
from mlsys_labkit.triton_trace.interpret.run import Refused

Array = NDArray[Any]
_FOREIGN = {"fp8e4b8": "only AMD has it", "fp8e5b16": "only AMD has it"}


def narrow_of(handle: Any) -> Narrow | None:
    return NARROW.get(handle.dtype.scalar.name)


def numbers_of(handle: Any) -> Array:
    """Return the numbers of a handle, in a type that numpy can calculate in."""
    form = narrow_of(handle)
    return form.decode(handle.data) if form else handle.data


def operand_of(handle: Any) -> Array:
    """Return the numbers of an operand. Raises Refused for fp8, which no GPU calculates in."""
    name = handle.dtype.scalar.name
    if name.startswith("fp8"):
        raise Refused(f"no GPU calculates or compares in {name}; convert first: x.to(tl.float32)")
    return numbers_of(handle)


def handle_of(numbers: Array, dtype: Any) -> Any:
    """Return a handle of numbers as ``dtype``, rounded once."""
    form = NARROW.get(dtype.scalar.name)
    if form:
        return Handle(form.encode(numbers), dtype.scalar)
    return Handle(np.asarray(numbers).astype(storage_dtype(dtype.scalar), copy=False), dtype.scalar)


def dtype_of(name: str) -> Any:
    """Return the type of Triton's short name ("fp32", "i32", ...). Raises Refused for other vendors' formats."""
    if name in _FOREIGN:
        raise Refused(
            f"type {name} not supported in this architecture ({_FOREIGN[name]}); use tl.float8e4nv or tl.float8e5"
        )
    return tl.str_to_ty(name, None)
