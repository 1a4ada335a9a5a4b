"""Arithmetic that differs between a GPU and numpy: integers, conversions, fused multiply-adds.

Reference: NVIDIA, "PTX ISA": div, shl, shr, mul.hi, fma, cvt.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlsys_labkit.triton_trace.interpret.narrow_floats import fused_multiply_add

Array = NDArray[Any]


def divided(a: Array, b: Array) -> Array:
    """Divide integers toward zero. Division by zero gives 0; on a GPU the result is undefined."""
    return np.asarray((a - np.fmod(a, b)) // b)


def signed(bits: Array) -> Array:
    return np.asarray(bits.view(np.dtype(f"i{bits.itemsize}")))


def unsigned(bits: Array) -> Array:
    return np.asarray(bits.view(np.dtype(f"u{bits.itemsize}")))


def high_half(a: Array, b: Array) -> Array:
    """Return the upper half of the product of unsigned numbers."""
    if a.itemsize < 8:
        wide = np.dtype(f"u{2 * a.itemsize}")
        return np.asarray(((a.astype(wide) * b.astype(wide)) >> wide.type(8 * a.itemsize)).astype(a.dtype))
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    a_high, a_low, b_high, b_low = a >> half, a & low, b >> half, b & low
    middle = a_high * b_low + ((a_low * b_low) >> half)
    other = a_low * b_high + (middle & low)
    return np.asarray(a_high * b_high + (middle >> half) + (other >> half))


def fused(x: Array, y: Array, z: Array) -> Array:
    """Return x * y + z in float64, so that rounding it to the operands' format rounds the exact result."""
    if z.dtype != np.float64:
        return fused_multiply_add(x, y, z)
    return np.asarray(np.vectorize(_fused_double, otypes=[np.float64])(x, y, z))


def _fused_double(x: float, y: float, z: float) -> float:
    if not (math.isfinite(x) and math.isfinite(y) and math.isfinite(z)):
        return x * y + z
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    try:
        return float(exact) if exact else x * y + z
    except OverflowError:
        return math.copysign(math.inf, exact)


def negated(bits: Array) -> Array:
    """Flip the sign of floats given as bits, of NaN too."""
    return np.asarray((unsigned(bits) ^ unsigned(bits).dtype.type(1 << (8 * bits.itemsize - 1))).view(bits.dtype))


def whole(numbers: Array, dtype: np.dtype[Any]) -> Array:
    """Convert floats to integers as cvt.rzi: toward zero, and to the nearest limit beyond the range.

    NaN becomes 0, in 64 bits the highest bit only. Eight bits are the lower half of a conversion to sixteen.
    """
    if dtype.itemsize == 1:
        return whole(numbers, np.dtype(f"{dtype.kind}2")).astype(dtype)
    limits = np.iinfo(dtype)
    wide = np.trunc(np.nan_to_num(numbers.astype(np.float64), posinf=np.inf, neginf=-np.inf))
    low, high = wide < limits.min, wide >= 2.0 ** (limits.bits - (limits.min < 0))
    result = np.where(low | high, 0, wide).astype(dtype)
    result = np.where(low, dtype.type(limits.min), np.where(high, dtype.type(limits.max), result))
    if limits.bits == 64:
        result = np.where(np.isnan(numbers), np.array(1 << 63, np.uint64).astype(dtype), result)
    return result


def toward_zero(numbers: Array, dtype: np.dtype[Any]) -> Array:
    """Convert floats to a shorter numpy type by dropping bits instead of rounding."""
    nearest = numbers.astype(dtype)
    beyond = np.abs(nearest.astype(np.float64)) > np.abs(numbers.astype(np.float64))
    return np.where(beyond, np.nextafter(nearest, np.zeros_like(nearest)), nearest)


def erf(numbers: Array) -> Array:
    return np.asarray(np.vectorize(math.erf, otypes=[np.float64])(numbers))
