"""Tensors that a kernel reaches by the addresses in one of its arrays, as grouped kernels do."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable
from typing import Any

from mlsys_labkit.triton_trace.source import KernelSource

_LEAST_ADDRESS = 1 << 16
_MOST_NUMBERS = 1 << 16


def pointed_at(source: KernelSource, values: Iterable[Any]) -> list[Any]:
    """Return the tensors of this process that begin at an address in an array of int64 or uint64 among ``values``.

    Only for kernels that make pointers of numbers, and only tensors of torch: Python has no list of numpy's arrays.
    """
    torch = sys.modules.get("torch")
    if torch is None or not any("pointer_type" in one.text for one in source.functions):
        return []
    wide = (torch.int64, torch.uint64)
    tables = [one for one in values if isinstance(one, torch.Tensor) and one.dtype in wide]
    numbers = {number for one in tables if one.numel() <= _MOST_NUMBERS for number in one.flatten().tolist()}
    numbers = {number for number in numbers if number >= _LEAST_ADDRESS}
    if not numbers:
        return []
    found = (one for one in gc.get_objects() if issubclass(type(one), torch.Tensor))
    return [one for one in found if _address(one) in numbers]


def _address(tensor: Any) -> int:
    """Return where a tensor begins in this process; 0 for one on a device, or without elements."""
    try:
        return int(tensor.data_ptr()) if tensor.device.type == "cpu" else 0
    except RuntimeError:  # a sparse tensor, or one of torch's transformations
        return 0
