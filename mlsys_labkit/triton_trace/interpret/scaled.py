"""Operands of ``tl.dot_scaled``: narrow floats with one scale per 16 or 32 elements along k.

Reference: Open Compute Project, "OCP Microscaling Formats (MX) Specification", 1.0, 2023.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlsys_labkit.formats import FORMATS, FloatFormat
from mlsys_labkit.triton_trace.interpret.handles import numbers_of
from mlsys_labkit.triton_trace.interpret.run import Refused

Numbers = NDArray[np.float32]


def scaled_numbers(operand: Any, scale: Any, form: str, packed_along_k: bool, along: int) -> Numbers:
    """Return the elements of an operand times their scales.

    Args:
        form: "E2M1" (two elements per byte, the first one in the low half), "E4M3", "E5M2", "BF16" or "FP16".
        along: axis of k: -1 for the left operand, -2 for the right one. Its scales are [rows or columns, groups].
    """
    if form.upper() == "E2M1":
        numbers = _unpacked(operand.data, along if packed_along_k else -3 - along)
    else:
        numbers = numbers_of(operand).astype(np.float32)
    if scale is None:
        return numbers
    factors = _factors(scale)
    if along == -2:
        factors = np.swapaxes(factors, -1, -2)
    if numbers.shape[along] % factors.shape[along]:
        raise Refused(f"{factors.shape[along]} scales do not divide {numbers.shape[along]} elements along k")
    return np.asarray(numbers * np.repeat(factors, numbers.shape[along] // factors.shape[along], along), np.float32)


def _unpacked(codes: NDArray[Any], axis: int) -> Numbers:
    codes = codes.view(np.uint8)
    halves = np.stack([codes & 0xF, codes >> 4], axis)  # [..., k, 2] along k, and [..., k, 2, n] along the other axis
    shape = list(codes.shape)
    shape[axis] *= 2
    return _fp4()[halves.reshape(shape)]


def _factors(scale: Any) -> Numbers:
    """Return scales as numbers: codes of E8M0 are powers of 2 with bias 127, and 255 is NaN."""
    if not scale.dtype.scalar.is_int():
        return numbers_of(scale).astype(np.float32)
    exponents = scale.data.view(np.uint8).astype(np.float64)
    return np.where(exponents == 255, np.nan, np.exp2(exponents - 127)).astype(np.float32)


@cache
def _fp4() -> Numbers:
    form = FORMATS["fp4_e2m1"]
    assert isinstance(form, FloatFormat)
    return form.values().astype(np.float32)
