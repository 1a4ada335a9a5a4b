"""Small floating-point formats, bit by bit: sign, exponent, mantissa, and the number of each code.

Reference: IEEE 754-2019; Micikevicius et al., "FP8 Formats for Deep Learning", arXiv:2209.05433; Open Compute Project,
"OCP Microscaling Formats (MX) Specification v1.0", 2023, sec. 5.3 (FP6, FP4, E8M0).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from mlsys_labkit.formats.codes import checked_codes
from mlsys_labkit.formats.errors import FormatError

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class FloatFormat:
    """A binary floating-point format of at most 32 bits.

    ``specials`` names the content of the largest codes: "ieee" infinities and NaNs, "nan" one NaN (E4M3, E8M0), "none"
    numbers only (FP6, FP4). Rounding is to nearest, ties to the even code. A number beyond the largest becomes
    infinity, else NaN, else the largest, whichever the format has; with ``saturate`` always the largest number.

    Example:
        >>> e2m1 = FloatFormat("fp4_e2m1", exponent_bits=2, mantissa_bits=1, specials="none")
        >>> e2m1.values()[:8].tolist()
        [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
        >>> e2m1.round([2.5, -100.0]).tolist()
        [2.0, -6.0]
    """

    name: str
    exponent_bits: int
    mantissa_bits: int
    specials: Literal["ieee", "nan", "none"] = "ieee"
    signed: bool = True
    subnormals: bool = True
    storage_bits: int = 0  # bits of one number in memory; 0: as many as the format has

    def __post_init__(self) -> None:
        if not self.storage_bits:
            object.__setattr__(self, "storage_bits", self.bits)

    @property
    def bits(self) -> int:
        """Count the bits of sign, exponent and mantissa."""
        return int(self.signed) + self.exponent_bits + self.mantissa_bits

    @property
    def bias(self) -> int:
        """Return the number that is subtracted from the stored exponent: 2^(e-1) - 1."""
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def max(self) -> float:
        """Return the largest number."""
        return float(self.decode(self._last))

    @property
    def min_normal(self) -> float:
        """Return the smallest positive number with a full mantissa."""
        return float(np.ldexp(1.0, int(self.subnormals) - self.bias))

    @property
    def min_positive(self) -> float:
        """Return the smallest number above zero."""
        return float(self.decode(int(self.subnormals)))

    @property
    def epsilon(self) -> float:
        """Return the distance from 1 to the next number: 2^-m."""
        return float(np.ldexp(1.0, -self.mantissa_bits))

    def values(self) -> Floats:
        """Return every number by its code, float64 [2^bits]. Raises FormatError for formats of more than 20 bits."""
        if self.bits > 20:
            raise FormatError(f"{self.name} has 2^{self.bits} codes; decode the ones you want to see")
        return self.decode(np.arange(1 << self.bits))

    def decode(self, codes: npt.ArrayLike) -> Floats:
        """Return the numbers of codes: integers below 2^bits of any shape -> float64 of that shape.

        Raises FormatError for a code that the format does not have.

        Example:
            >>> bf16 = FloatFormat("bf16", exponent_bits=8, mantissa_bits=7)
            >>> bf16.decode(0b0_01111111_1000000).item()
            1.5
        """
        code = checked_codes(self.name, codes, 1 << self.bits)
        exponent = code >> self.mantissa_bits & (1 << self.exponent_bits) - 1
        mantissa = code & (1 << self.mantissa_bits) - 1
        normal = (exponent > 0) | (not self.subnormals)
        significand = mantissa + (normal.astype(np.int64) << self.mantissa_bits)
        value = np.ldexp(significand.astype(np.float64), np.where(normal, exponent, 1) - self.bias - self.mantissa_bits)
        last = exponent == (1 << self.exponent_bits) - 1
        if self.specials == "ieee":
            value = np.where(last, np.where(mantissa == 0, np.inf, np.nan), value)
        elif self.specials == "nan":
            value = np.where(last & (mantissa == (1 << self.mantissa_bits) - 1), np.nan, value)
        negative = (code >> self.bits - 1 == 1) & self.signed
        return np.asarray(np.where(negative, -value, value))

    def encode(self, values: npt.ArrayLike, *, saturate: bool = False) -> Codes:
        """Return the codes of the nearest numbers: real numbers of any shape, as float64 -> uint32 of that shape.

        Raises FormatError where the format has no such number: NaN in a format without NaN, and zero or a negative
        number in an unsigned format.

        Example:
            >>> fp16 = FloatFormat("fp16", exponent_bits=5, mantissa_bits=10)
            >>> [hex(code) for code in fp16.encode([1.0, 65519.0, 65520.0])]
            ['0x3c00', '0x7bff', '0x7c00']
        """
        value = np.asarray(values, dtype=np.float64)
        nan = np.isnan(value)
        if self.specials == "none" and nan.any():
            raise FormatError(f"{self.name} has no NaN; take it out first, e.g. with numpy.nan_to_num")
        if not self.signed and (value <= 0).any():
            raise FormatError(f"{self.name} has positive numbers only, not even zero; got {float(value.min())}")
        if self.bits == 32:
            value = np.clip(value, -self.max, self.max) if saturate else value
            with np.errstate(over="ignore"):
                return np.asarray(value.astype(np.float32)).view(np.uint32)
        size = np.where(nan, 0.0, np.abs(value))
        above = np.searchsorted(self._positive, size)  # the first number that is not smaller
        lower = np.maximum(above - 1, 0)
        middle = self._middles[lower]
        up = (size > middle) | ((size == middle) & (lower % 2 == 1))
        code = np.where(up, lower + 1, lower).astype(np.int64)
        beyond = self._last if saturate or self.specials == "none" else self._last + 1
        code = np.where(nan, self._nan, np.minimum(code, beyond))
        return (code | ((np.signbit(value) & self.signed).astype(np.int64) << self.bits - 1)).astype(np.uint32)

    def round(self, values: npt.ArrayLike, *, saturate: bool = False) -> Floats:
        """Return the nearest numbers of the format, float64 of the same shape: ``decode(encode(values))``."""
        return self.decode(self.encode(values, saturate=saturate))

    @property
    def _last(self) -> int:
        """Return the code of the largest number."""
        above = {"ieee": 1 << self.mantissa_bits, "nan": 1, "none": 0}[self.specials]
        return (1 << self.exponent_bits + self.mantissa_bits) - 1 - above

    @property
    def _nan(self) -> int:
        """Return the code of NaN; of several, the quiet one that hardware makes."""
        return self._last + 1 + (1 << self.mantissa_bits - 1 if self.specials == "ieee" else 0)

    @cached_property
    def _positive(self) -> Floats:
        """Return the non-negative numbers by code, which is ascending order."""
        return self.decode(np.arange(self._last + 1))

    @cached_property
    def _middles(self) -> Floats:
        """Return the middle between each number and the next, exact in float64; the largest has a next one, too."""
        *_, before, largest = self._positive
        following = 2 * largest - before if self.mantissa_bits else 2 * largest
        return np.asarray((self._positive + np.append(self._positive[1:], following)) / 2)
