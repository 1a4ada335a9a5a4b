"""Conversion of a student's value to plain data, without running the student's code.

A class whose ``__eq__`` always returns True, whose ``__array__`` returns the expected value, or that is a tensor
subclass with methods of its own would each pass a naive comparison. So a value counts only if its *exact* type is one
whose behaviour Python, numpy or torch defines; subclasses of ndarray are viewed as their base class.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlsys_labkit.checks.message import failure

MAX_DEPTH = 32
ATOMS = (type(None), bool, int, float, complex, str, bytes)
_DTYPE_OF_NUMBER = {bool: "bool", int: "int64", float: "float64", complex: "complex128"}


@dataclass(frozen=True)
class PlainArray:
    """Values as bool, integer, float64 or complex128 ndarray, and the name of the dtype that they came in."""

    values: npt.NDArray[Any]
    dtype: str


def plain_array(value: object, name: str, depth: int = 0) -> PlainArray:
    """Convert a number, a nested list, an ndarray or a tensor to a ``PlainArray``.

    Raises CheckError for anything else.
    """
    kind = type(value)
    if kind in _DTYPE_OF_NUMBER:
        return PlainArray(_numbers([value], name)[0], _DTYPE_OF_NUMBER[kind])
    if isinstance(value, np.generic) and np.dtype(kind).type is kind:
        return _from_ndarray(np.asarray(value), name)
    if issubclass(kind, np.ndarray):
        return _from_ndarray(base_array(value), name)
    if is_tensor(value):
        return _from_tensor(value, name)
    if issubclass(kind, (list, tuple)) and depth < MAX_DEPTH:
        base = list if issubclass(kind, list) else tuple
        items: list[Any] = list(base.__iter__(value))  # type: ignore[arg-type]  # the base cannot be overridden
        kinds = {type(item) for item in items}
        if kinds <= _DTYPE_OF_NUMBER.keys():
            ranks = list(_DTYPE_OF_NUMBER)
            widest = max(kinds, key=ranks.index, default=float)
            return PlainArray(_numbers(items, name), _DTYPE_OF_NUMBER[widest])
        parts = [plain_array(item, name, depth + 1) for item in items]
        if len({part.values.shape for part in parts}) > 1:
            shapes = ", ".join(sorted({str(part.values.shape) for part in parts}))
            raise failure(
                f"{name}: ragged list",
                expected="rows of equal shape",
                actual=f"shapes {shapes}",
                next_step="make every row the same length",
            )
        return PlainArray(np.stack([part.values for part in parts]), str(np.result_type(*(p.values for p in parts))))
    raise failure(
        f"{name}: not a number, list, array or tensor",
        expected="a plain number, list, numpy array or torch tensor",
        actual=type_name(value),
        next_step="did the function forget its return?"
        if value is None
        else "return the values themselves, not an object that wraps them",
    )


def is_tensor(value: object) -> bool:
    """Return True if the exact type is torch.Tensor or nn.Parameter.

    Torch is not imported: where it is not loaded, no tensor can exist.
    """
    torch = sys.modules.get("torch")
    return torch is not None and type(value) in (torch.Tensor, torch.nn.Parameter)


def base_array(value: Any) -> npt.NDArray[Any]:
    """Return an array of any ndarray subclass as a plain ndarray."""
    return np.ndarray.view(value, np.ndarray)


def type_name(value: object) -> str:
    return type(value).__qualname__


def _numbers(items: list[Any], name: str) -> npt.NDArray[Any]:
    array = np.array(items) if items else np.array(items, dtype=np.float64)
    if array.dtype == object or (array.dtype.kind == "f" and all(isinstance(one, int) for one in items) and items):
        low, high = min(items), max(items)
        raise failure(
            f"{name}: integers beyond 64 bits",
            expected="integers from -2^63 to 2^63 - 1, or from 0 to 2^64 - 1",
            actual=f"from {_brief(low)} to {_brief(high)}" if low < high else _brief(high),
            next_step="look for a product or power that grew out of hand",
        )
    return array


def _brief(value: int) -> str:
    return str(value) if value.bit_length() <= 65 else f"an integer of {value.bit_length()} bits"


def _from_ndarray(array: npt.NDArray[Any], name: str) -> PlainArray:
    dtype = array.dtype.name
    if array.dtype.kind in "biu":
        return PlainArray(array, dtype)
    if array.dtype.kind == "c":
        return PlainArray(array.astype(np.complex128), dtype)
    if array.dtype.kind == "f" or dtype.startswith(("bfloat", "float", "int", "uint")):  # ml_dtypes have kind V
        return PlainArray(array.astype(np.float64), dtype)
    raise failure(
        f"{name}: array of {dtype}",
        expected="an array of numbers",
        actual=f"dtype {dtype}",
        next_step="rows of unequal length, None or objects inside? build it with np.array(..., dtype=float)",
    )


def _from_tensor(tensor: Any, name: str) -> PlainArray:
    import torch

    if tensor.layout is not torch.strided or tensor.device.type == "meta":
        raise failure(
            f"{name}: tensor without plain values",
            expected="a dense tensor with data",
            actual=f"layout {tensor.layout}, device {tensor.device}",
            next_step="call .to_dense(), or create it on a real device",
        )
    dtype = str(tensor.dtype).removeprefix("torch.")
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    if tensor.is_floating_point():
        tensor = tensor.to(torch.float64)
    elif tensor.is_complex():
        tensor = tensor.to(torch.complex128)
    return PlainArray(tensor.numpy(), dtype)
