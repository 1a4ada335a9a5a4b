"""Between the handles of Triton's interpreter, which hold bits, and numbers that numpy can calculate in."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl
from numpy.typing import NDArray

from mlsys_labkit.triton_trace.narrow import NARROW, Narrow
from mlsys_labkit.triton_trace.private import Handle, storage_dtype
from mlsys_labkit.triton_trace.run import Refused

__all__ = ["dtype_of", "handle_of", "narrow_of", "numbers_of", "operand_of"]

Array = NDArray[Any]
_FOREIGN = {"fp8e4b15": "NVIDIA gave it up", "fp8e4b8": "only AMD has it", "fp8e5b16": "only AMD has it"}


def narrow_of(handle: Any) -> Narrow | None:
    return NARROW.get(handle.dtype.scalar.name)


def numbers_of(handle: Any) -> Array:
    """What a handle holds, in a type that numpy can calculate in."""
    form = narrow_of(handle)
    return form.decode(handle.data) if form else handle.data


def operand_of(handle: Any) -> Array:
    """Numbers to calculate with: a GPU cannot with fp8."""
    name = handle.dtype.scalar.name
    if name.startswith("fp8"):
        raise Refused(f"no GPU calculates or compares in {name}; convert first: x.to(tl.float32)")
    return numbers_of(handle)


def handle_of(numbers: Array, dtype: Any) -> Any:
    """Numbers as ``dtype``, rounded once."""
    form = NARROW.get(dtype.scalar.name)
    if form:
        return Handle(form.encode(numbers), dtype.scalar)
    return Handle(np.asarray(numbers).astype(storage_dtype(dtype.scalar), copy=False), dtype.scalar)


def dtype_of(name: str) -> Any:
    """The type that Triton's short name ("fp32", "i32", ...) stands for. Raises Refused for a format of others."""
    if name in _FOREIGN:
        raise Refused(f"{name} is not interpreted ({_FOREIGN[name]}); use tl.float8e4nv or tl.float8e5")
    return tl.str_to_ty(name, None)
