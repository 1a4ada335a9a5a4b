"""Integer and table formats: codes that are not floating-point and always saturate.

Reference: Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference",
arXiv:1712.05877; Dettmers et al., "QLoRA", arXiv:2305.14314, sec. 3 and appendix E (the sixteen numbers of NF4).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from mlsys_labkit.formats.codes import checked_codes
from mlsys_labkit.formats.errors import FormatError

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class _Saturating:
    """A format without NaN and infinity, in which numbers beyond the range become its ends."""

    name: str
    bits: int

    @property
    def storage_bits(self) -> int:
        return self.bits

    def values(self) -> Floats:
        """Return every number by its code, float64."""
        return self.decode(np.arange(1 << self.bits))

    def decode(self, codes: npt.ArrayLike) -> Floats:
        """Return the numbers of codes, float64 of the same shape. Raises FormatError for a code that does not exist."""
        raise NotImplementedError

    def encode(self, values: npt.ArrayLike, *, saturate: bool = True) -> Codes:
        """Return the codes of the nearest numbers, uint32 of the same shape; numbers beyond the ends always saturate.

        Raises FormatError for NaN.
        """
        value = np.asarray(values, dtype=np.float64)
        if np.isnan(value).any():
            raise FormatError(f"{self.name} has no NaN; take it out first, e.g. with numpy.nan_to_num")
        return self._encode(value)

    def round(self, values: npt.ArrayLike) -> Floats:
        """Return the nearest numbers of the format."""
        return self.decode(self.encode(values))

    def _encode(self, value: Floats) -> Codes:
        raise NotImplementedError


@dataclass(frozen=True)
class CodebookFormat(_Saturating):
    """A format defined by a list of numbers in ascending order; a code is a place in the list.

    Rounding is to nearest, ties to the smaller number, as a comparison with ">" gives.

    Example:
        >>> ternary = CodebookFormat("ternary", 2, (-1.0, 0.0, 1.0))
        >>> ternary.round([0.2, -3.0]).tolist()
        [0.0, -1.0]
    """

    numbers: tuple[float, ...]

    @property
    def max(self) -> float:
        """Return the largest number."""
        return self.numbers[-1]

    @property
    def min_positive(self) -> float:
        """Return the smallest number above zero."""
        return min(number for number in self.numbers if number > 0)

    def values(self) -> Floats:
        return np.array(self.numbers)

    def decode(self, codes: npt.ArrayLike) -> Floats:
        return np.asarray(self.values()[checked_codes(self.name, codes, len(self.numbers))])

    def _encode(self, value: Floats) -> Codes:
        return np.searchsorted(self._middles, value).astype(np.uint32)

    @cached_property
    def _middles(self) -> Floats:
        numbers = self.values()
        return np.asarray((numbers[1:] + numbers[:-1]) / 2)


@dataclass(frozen=True)
class IntegerFormat(_Saturating):
    """Integers in two's complement; ties round to even.

    Example:
        >>> int4 = IntegerFormat("int4", 4)
        >>> int4.round([2.5, 3.5, -9.0]).tolist()
        [2.0, 4.0, -8.0]
        >>> [bin(code) for code in int4.encode([-1, 7])]
        ['0b1111', '0b111']
    """

    @property
    def max(self) -> float:
        """Return the largest number: 2^(bits-1) - 1."""
        return float((1 << self.bits - 1) - 1)

    @property
    def min_positive(self) -> float:
        """Return the smallest number above zero."""
        return 1.0

    def decode(self, codes: npt.ArrayLike) -> Floats:
        code = checked_codes(self.name, codes, 1 << self.bits)
        return np.asarray(np.where(code > self.max, code - (1 << self.bits), code), dtype=np.float64)

    def _encode(self, value: Floats) -> Codes:
        number = np.rint(np.clip(value, -self.max - 1, self.max)).astype(np.int64)
        return (number & (1 << self.bits) - 1).astype(np.uint32)
