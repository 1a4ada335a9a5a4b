"""Block formats: each block of a row holds small codes and one scale that multiplies them.

Reference: Open Compute Project, "OCP Microscaling Formats (MX) Specification v1.0", 2023, sec. 5 and 6.3 (the scale is
2^(floor(log2(largest)) - exponent of the largest number)); NVIDIA, "Pretraining Large Language Models with NVFP4",
arXiv:2509.25149, sec. 2 (a scale in E4M3 for 16 numbers, and one in FP32 for the tensor).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from mlsys_labkit.formats.errors import FormatError
from mlsys_labkit.formats.floats import FloatFormat
from mlsys_labkit.formats.integers import CodebookFormat, IntegerFormat

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class BlockFormat:
    """Blocks of ``size`` neighbours along the last axis, their elements in one format and their scale in another.

    ``scaling`` is "power of two" (MX: the scale is an exponent alone), "two levels" (NVFP4: a scale for each block,
    itself scaled by one number for the tensor) or "largest" (NF4 and the like: the block's largest becomes 1).

    Example:
        >>> from mlsys_labkit.formats import FORMATS
        >>> mxfp4 = FORMATS["mxfp4"]
        >>> mxfp4.bits_per_number
        4.25
        >>> mxfp4.round(np.linspace(0, 1, 32))[:4].tolist()
        [0.0, 0.0, 0.125, 0.125]
    """

    name: str
    element: FloatFormat | CodebookFormat | IntegerFormat
    scale: FloatFormat
    size: int
    scaling: Literal["power of two", "two levels", "largest"]

    @property
    def bits_per_number(self) -> float:
        """Return the bits in memory per number, with its share of the block's scale but not of the tensor's."""
        return self.element.storage_bits + self.scale.storage_bits / self.size

    def quantize(self, values: npt.ArrayLike) -> Blocks:
        """Return codes and scales of real numbers [..., n]. Raises FormatError unless the block size divides n.

        Example:
            >>> from mlsys_labkit.formats import FORMATS
            >>> blocks = FORMATS["nvfp4"].quantize(np.ones((2, 32)))
            >>> blocks.codes.shape, blocks.scales.shape
            ((2, 32), (2, 2))
        """
        value = np.asarray(values, dtype=np.float64)
        if not value.ndim or value.shape[-1] % self.size:
            raise FormatError(
                f"{self.name} takes blocks of {self.size} along the last axis; its length is"
                f" {value.shape[-1] if value.ndim else 'none'}: pad it with zeros to a multiple"
            )
        if not np.isfinite(value).all():
            raise FormatError(
                f"{self.name} scales by the largest number, so all must be finite; take out NaN and infinity"
            )
        blocks = value.reshape(*value.shape[:-1], value.shape[-1] // self.size, self.size)
        largest = np.abs(blocks).max(-1)
        tensor_scale = self._tensor_scale(largest)
        scale_codes = self._scale_codes(largest / tensor_scale)
        scales = self.scale.decode(scale_codes) * tensor_scale
        with np.errstate(divide="ignore", invalid="ignore"):
            small = np.where(scales[..., None] > 0, blocks / scales[..., None], 0.0)
        codes = self.element.encode(small, saturate=True)
        return Blocks(self, codes.reshape(value.shape), scale_codes, tensor_scale)

    def round(self, values: npt.ArrayLike) -> Floats:
        """Return the numbers after a round trip: ``quantize(values).dequantize()``."""
        return self.quantize(values).dequantize()

    def _tensor_scale(self, largest: Floats) -> float:
        if self.scaling != "two levels" or not largest.size or not largest.max():
            return 1.0
        limits = np.finfo(np.float32)  # the scale is stored as one
        return float(np.float32(np.clip(largest.max() / (self.element.max * self.scale.max), limits.tiny, limits.max)))

    def _scale_codes(self, largest: Floats) -> Codes:
        if self.scaling == "power of two":
            _, top = np.frexp(self.element.max)
            _, power = np.frexp(np.where(largest > 0, largest, self.scale.min_positive))
            exponent = np.where(largest > 0, power - top, -self.scale.bias)
            return self.scale.encode(np.ldexp(1.0, np.clip(exponent, -self.scale.bias, self.scale.bias)))
        return self.scale.encode(largest / self.element.max, saturate=True)


@dataclass(frozen=True)
class Blocks:
    """Quantized numbers: ``codes`` [..., n], one per number, and ``scales`` [..., n / size], a code for each block."""

    format: BlockFormat
    codes: Codes
    scales: Codes
    tensor_scale: float = 1.0

    @property
    def bytes(self) -> float:
        """Return the bytes of codes and scales when packed."""
        elements, scale = self.format.element.storage_bits, self.format.scale.storage_bits
        whole = 4 if self.format.scaling == "two levels" else 0
        return (self.codes.size * elements + self.scales.size * scale) / 8 + whole

    def dequantize(self) -> Floats:
        """Return the numbers of the codes and scales, float64 [..., n]."""
        small = self.format.element.decode(self.codes)
        scales = self.format.scale.decode(self.scales) * self.tensor_scale
        return small * np.repeat(scales, self.format.size, axis=-1)
