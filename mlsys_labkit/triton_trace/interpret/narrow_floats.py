"""Conversions between float32 and codes of bf16, fp8e4nv and fp8e5, rounded once as on a GPU.

Reference: NVIDIA, "PTX ISA", cvt; Micikevicius et al., "FP8 Formats for Deep Learning", 2022.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mlsys_labkit.formats import FloatFormat

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Narrow:
    """A float format without arithmetic in numpy.

    Attributes:
        code: numpy's type that holds the bits.
        largest: code of the largest finite number; a conversion that saturates never goes above it.
        infinity: its code, or None for a format without one.
        nan: the code that conversions give.
    """

    name: str
    code: type[np.unsignedinteger[Any]]
    mantissa_bits: int
    exponent_bias: int
    largest: int
    infinity: int | None
    nan: int
    saturates: bool

    @property
    def sign(self) -> int:
        return 1 << (8 * np.dtype(self.code).itemsize - 1)

    def decode(self, codes: NDArray[Any]) -> NDArray[np.float32]:
        """Return the numbers of codes, exactly."""
        if self.code is np.uint16:
            return np.asarray((codes.astype(np.uint32) << np.uint32(16)).view(np.float32))
        return np.asarray(_fp8_values(self.name)[codes])

    def encode(self, values: NDArray[Any], toward_zero: bool = False) -> NDArray[Any]:
        """Return the nearest codes, ties to even; with ``toward_zero`` the nearest of no larger magnitude."""
        single = values if values.dtype == np.float32 else round_to_odd(values)
        bits = np.ascontiguousarray(single).view(np.uint32)
        magnitude = bits & np.uint32(0x7FFFFFFF)
        dropped = 23 - self.mantissa_bits
        # A number below the smallest normal is counted in units of the smallest subnormal: adding a float whose last
        # place is that unit rounds to nearest even in the addition itself.
        unit_exponent = 1 - self.exponent_bias - self.mantissa_bits
        if self.code is np.uint16:
            rounded = _shifted(magnitude, dropped, toward_zero)
        else:
            smallest_normal = np.float32(2.0 ** (1 - self.exponent_bias)).view(np.uint32)
            rebias = np.uint32((127 - self.exponent_bias) << 23)
            normal = _shifted(np.maximum(magnitude, smallest_normal) - rebias, dropped, toward_zero)
            in_units = np.minimum(magnitude.view(np.float32), np.float32(1)) * np.float32(2.0**-unit_exponent)
            whole = np.trunc(in_units) if toward_zero else np.rint(in_units)
            rounded = np.where(magnitude < smallest_normal, whole.astype(np.uint32), normal)
        limit = np.uint32(self.largest)
        if self.saturates or toward_zero:
            rounded = np.minimum(rounded, limit)
            if self.infinity is not None and not self.saturates:
                rounded = np.where(magnitude == np.uint32(0x7F800000), np.uint32(self.infinity), rounded)
        elif self.infinity is not None:
            rounded = np.minimum(rounded, np.uint32(self.infinity))
        signed = rounded | (bits >> np.uint32(31)) * np.uint32(self.sign)
        codes = np.where(magnitude > np.uint32(0x7F800000), np.uint32(self.nan), signed)
        return np.asarray(codes.astype(self.code).reshape(values.shape))


def _shifted(bits: NDArray[np.uint32], dropped: int, toward_zero: bool) -> NDArray[np.uint32]:
    if not toward_zero:
        odd = (bits >> np.uint32(dropped)) & np.uint32(1)
        bits = bits + np.uint32((1 << (dropped - 1)) - 1) + odd
    return bits >> np.uint32(dropped)


def round_to_odd(values: NDArray[Any]) -> NDArray[np.float32]:
    """Round float64 to float32 so that rounding again, to at most 22 bits, equals one rounding.

    Reference: Boldo and Melquiond, "When double rounding is odd", 2005.
    """
    exact = _sticky(values).astype(np.float64)
    nearest = exact.astype(np.float32)
    inexact = (nearest.astype(np.float64) != exact) & ~np.isnan(exact)
    even = (nearest.view(np.uint32) & np.uint32(1)) == 0
    toward = np.where(nearest.astype(np.float64) < exact, np.float32(np.inf), np.float32(-np.inf))
    return np.where(inexact & even, np.nextafter(nearest, toward), nearest).astype(np.float32)


def _sticky(values: NDArray[Any]) -> NDArray[Any]:
    """Reduce integers to what float64 holds: of large ones the last 12 bits become one sticky bit."""
    if values.dtype.kind not in "iu" or values.itemsize < 8:
        return values
    low = values & values.dtype.type(0xFFF)
    large = np.abs(values.astype(np.float64)) >= 2.0**53
    return np.where(large & (low != 0), values - low + values.dtype.type(0x800), values)


def fused_multiply_add(x: Floats, y: Floats, z: Floats) -> NDArray[np.float64]:
    """Return x * y + z of numbers of at most 24 bits in float64, rounded to odd, for one rounding to 24 bits."""
    product = x.astype(np.float64) * y.astype(np.float64)  # exact: 48 bits
    addend = z.astype(np.float64)
    total = product + addend
    part = total - product
    error = (product - (total - part)) + (addend - part)
    inexact = (error != 0) & np.isfinite(total)
    even = (total.view(np.uint64) & np.uint64(1)) == 0
    return np.where(inexact & even, np.nextafter(total, np.copysign(np.inf, error)), total)


@cache
def _fp8_values(name: str) -> NDArray[np.float32]:
    """Return the number of each code."""
    form = NARROW[name]
    specials: Literal["ieee", "nan"] = "nan" if form.infinity is None else "ieee"
    return FloatFormat(name, 7 - form.mantissa_bits, form.mantissa_bits, specials).values().astype(np.float32)


# NVIDIA's conversions to fp8 saturate (cvt.rn.satfinite), those to bf16 do not.
NARROW = {
    form.name: form
    for form in (
        Narrow("bf16", np.uint16, 7, 127, 0x7F7F, 0x7F80, 0x7FFF, False),
        Narrow("fp8e4nv", np.uint8, 3, 7, 0x7E, None, 0x7F, True),
        Narrow("fp8e5", np.uint8, 2, 15, 0x7B, 0x7C, 0x7F, True),
    )
}
