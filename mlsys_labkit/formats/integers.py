"""Whole numbers and tables: formats whose codes are not floating-point.

Reference: Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference",
arXiv:1712.05877; Dettmers et al., "QLoRA", arXiv:2305.14314, sec. 3 and appendix E (the sixteen numbers of NF4).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from mlsys_labkit.formats.errors import FormatError

__all__ = ["CodebookFormat", "IntegerFormat"]

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class CodebookFormat:
    """A format that is nothing but a list of numbers, in ascending order; the code is the place in the list.

    Rounding is to nearest; half-way goes to the smaller number, as a comparison with ">" has it.

    Example:
        >>> ternary = CodebookFormat("ternary", 2, (-1.0, 0.0, 1.0))
        >>> ternary.round([0.2, -3.0]).tolist()
        [0.0, -1.0]
    """

    name: str
    bits: int
    numbers: tuple[float, ...]

    @property
    def storage_bits(self) -> int:
        return self.bits

    @property
    def max(self) -> float:
        """The largest number."""
        return self.numbers[-1]

    @property
    def min_positive(self) -> float:
        """The smallest number above zero."""
        return min(number for number in self.numbers if number > 0)

    def values(self) -> Floats:
        """Every number by its code, float64."""
        return np.array(self.numbers)

    def decode(self, codes: npt.ArrayLike) -> Floats:
        """The numbers of some codes, float64 of the same shape. Raises FormatError for a code that is not there."""
        code = np.asarray(codes)
        if code.size and (code.min() < 0 or code.max() >= len(self.numbers)):
            raise FormatError(
                f"{self.name} has the codes 0 to {len(self.numbers) - 1}; got {code.reshape(-1)[:4].tolist()}"
            )
        return np.asarray(self.values()[code])

    def encode(self, values: npt.ArrayLike, *, saturate: bool = True) -> Codes:
        """The codes of the nearest numbers, uint32 of the same shape; beyond the ends there is nothing but saturation.

        Raises FormatError for NaN.
        """
        value = np.asarray(values, dtype=np.float64)
        if np.isnan(value).any():
            raise FormatError(f"{self.name} has no NaN; take it out first, e.g. with numpy.nan_to_num")
        return np.searchsorted(self._middles, value).astype(np.uint32)

    def round(self, values: npt.ArrayLike) -> Floats:
        """The nearest numbers that the format has."""
        return self.decode(self.encode(values))

    @cached_property
    def _middles(self) -> Floats:
        numbers = self.values()
        return np.asarray((numbers[1:] + numbers[:-1]) / 2)


@dataclass(frozen=True)
class IntegerFormat:
    """Whole numbers in two's complement; what is beyond the range becomes its end, and halves go to even.

    Example:
        >>> int4 = IntegerFormat("int4", 4)
        >>> int4.round([2.5, 3.5, -9.0]).tolist()
        [2.0, 4.0, -8.0]
        >>> [bin(code) for code in int4.encode([-1, 7])]
        ['0b1111', '0b111']
    """

    name: str
    bits: int

    @property
    def storage_bits(self) -> int:
        return self.bits

    @property
    def max(self) -> float:
        """The largest number: 2^(bits-1) - 1."""
        return float((1 << self.bits - 1) - 1)

    @property
    def min_positive(self) -> float:
        """The smallest number above zero."""
        return 1.0

    def values(self) -> Floats:
        """Every number by its code, float64."""
        return self.decode(np.arange(1 << self.bits))

    def decode(self, codes: npt.ArrayLike) -> Floats:
        """The numbers of some codes, float64 of the same shape. Raises FormatError for a code that is not there."""
        code = np.asarray(codes)
        if code.size and (code.min() < 0 or code.max() >= 1 << self.bits):
            raise FormatError(
                f"{self.name} has the codes 0 to {(1 << self.bits) - 1}; got {code.reshape(-1)[:4].tolist()}"
            )
        code = code.astype(np.int64)
        return np.asarray(np.where(code > self.max, code - (1 << self.bits), code), dtype=np.float64)

    def encode(self, values: npt.ArrayLike, *, saturate: bool = True) -> Codes:
        """The codes of the nearest numbers, uint32 of the same shape; beyond the ends there is nothing but saturation.

        Raises FormatError for NaN.
        """
        value = np.asarray(values, dtype=np.float64)
        if np.isnan(value).any():
            raise FormatError(f"{self.name} has no NaN; take it out first, e.g. with numpy.nan_to_num")
        number = np.rint(np.clip(value, -self.max - 1, self.max)).astype(np.int64)
        return (number & (1 << self.bits) - 1).astype(np.uint32)

    def round(self, values: npt.ArrayLike) -> Floats:
        """The nearest numbers that the format has."""
        return self.decode(self.encode(values))
