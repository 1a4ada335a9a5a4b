"""``expect_shares_memory`` and ``expect_copy``: checks whether a result is a view or new memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mlsys_labkit.checks.message import failure
from mlsys_labkit.checks.passed import note_pass
from mlsys_labkit.checks.plain import base_array, is_tensor, type_name


class _Span:
    """Addresses without data, of any device: numpy compares them for overlap and never reads them."""

    def __init__(self, pointer: int, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> None:
        self.__array_interface__ = {
            "version": 3, "data": (pointer, True), "shape": shape, "strides": strides, "typestr": f"|V{itemsize}",
        }  # fmt: skip


def _span(value: Any, name: str) -> tuple[npt.NDArray[Any], str]:
    if isinstance(value, np.ndarray):
        array = base_array(value)
        return np.asarray(_Span(array.ctypes.data, array.shape, array.strides, array.itemsize)), "cpu"
    if is_tensor(value):
        size = value.element_size()
        strides = tuple(step * size for step in value.stride())
        return np.asarray(_Span(value.data_ptr(), tuple(value.shape), strides, size)), str(value.device)
    raise failure(f"{name}: not an array", expected="a numpy array or a torch tensor", actual=type_name(value))


def shares_memory(a: object, b: object) -> bool:
    """Return whether two arrays or tensors have a byte in common.

    This is decided from addresses alone; numpy and torch may be mixed.
    """
    (one, device), (other, other_device) = _span(a, "first"), _span(b, "second")
    if device != other_device:
        return False
    try:
        return bool(np.shares_memory(one, other, max_work=1_000_000))  # type: ignore[arg-type]  # numpy stubs know 0 and -1 only
    except np.exceptions.TooHardError:
        return bool(np.may_share_memory(one, other))


def expect_shares_memory(a: object, b: object, *, name: str = "result") -> None:
    """Check that ``a`` is a view: that it has memory in common with ``b`` (ndarrays, tensors, or one of each).

    Empty arrays have no memory to share and pass. Raises CheckError.

    Example:
        >>> x = np.arange(6.0)
        >>> expect_shares_memory(x[::2], x)

    Reference: numpy.shares_memory, https://numpy.org/doc/stable/reference/generated/numpy.shares_memory.html
    """
    if _span(a, name)[0].size and _span(b, name)[0].size and not shares_memory(a, b):
        raise failure(
            f"{name}: a copy came",
            expected="a view on the same memory",
            actual="other memory with the same or other values",
            meaning="every element was read and written once for nothing",
            next_step="slice, transpose, reshape or as_strided; avoid copy, concatenate, fancy indices, contiguous",
        )
    note_pass(f"{name} is a view")


def expect_copy(a: object, b: object, *, name: str = "result") -> None:
    """Check that ``a`` and ``b`` have no byte in common. Raises CheckError.

    Example:
        >>> x = np.arange(6.0)
        >>> expect_copy(x.copy(), x)
    """
    if shares_memory(a, b):
        raise failure(
            f"{name}: a view came",
            expected="memory of its own",
            actual="memory shared with the other array",
            meaning="writing to one changes the other",
            next_step="copy (.copy() in numpy, .clone() in torch) before changing or returning it",
        )
    note_pass(f"{name} is a copy")
