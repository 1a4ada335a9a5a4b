"""Numbers and codes of one format, as the explorer asks for them; the twin of ``model.js``.

A format is a dict of plain values, so that both languages read the same: see ``plain``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mlsys_labkit.formats import CodebookFormat, FloatFormat, IntegerFormat

Format = Mapping[str, Any]


def plain(format_: FloatFormat | IntegerFormat | CodebookFormat) -> dict[str, Any]:
    """Return a format as the view reads it: the widths of its fields, or its numbers in ascending order.

    Example:
        >>> from mlsys_labkit.formats import FORMATS
        >>> plain(FORMATS["int4"])["numbers"][:3]
        [-8.0, -7.0, -6.0]
    """
    if isinstance(format_, FloatFormat):
        return {
            "name": format_.name,
            "bits": format_.bits,
            "exponent": format_.exponent_bits,
            "mantissa": format_.mantissa_bits,
            "specials": format_.specials,
            "signed": format_.signed,
            "subnormals": format_.subnormals,
        }
    return {"name": format_.name, "bits": format_.bits, "numbers": sorted(format_.values().tolist())}


def _floats(format_: Format) -> FloatFormat:
    fields = (format_["name"], format_["exponent"], format_["mantissa"], format_["specials"])
    return FloatFormat(*fields, signed=format_["signed"], subnormals=format_["subnormals"])


def decode(format_: Format, code: int) -> float:
    """Return the number of a code; in a format that is a list of numbers, the code is the place in the list."""
    if "numbers" in format_:
        return float(format_["numbers"][code])
    return _floats(format_).decode(code).item()


def largest(format_: Format) -> int:
    """Return the code of the largest number."""
    if "numbers" in format_:
        return len(format_["numbers"]) - 1
    made = _floats(format_)
    return int(made.encode(made.max))


def nearest(format_: Format, value: float) -> int:
    """Return the code of the nearest number; beyond the largest, the largest."""
    if "numbers" in format_:
        numbers = np.array(format_["numbers"])
        return int(np.abs(numbers - np.clip(value, numbers[0], numbers[-1])).argmin())
    made = _floats(format_)
    if not made.signed:
        value = max(value, made.min_positive)
    return int(made.encode(value, saturate=True))


def neighbours(format_: Format, value: float) -> tuple[float, float]:
    """Return the next smaller and the next larger number, each the nearest one itself at the end of the range."""
    here = decode(format_, nearest(format_, value))
    numbers = format_["numbers"] if "numbers" in format_ else _around(format_, here)
    below = [number for number in numbers if number < value and number <= here]
    above = [number for number in numbers if number > value and number >= here]
    return max(below, default=here), min(above, default=here)


def _around(format_: Format, here: float) -> list[float]:
    """Return the numbers whose codes stand next to the one of ``here``, on both sides of zero where it is zero."""
    made = _floats(format_)
    code = int(made.encode(abs(here)))
    sizes = [float(made.decode(each)) for each in range(max(0, code - 1), min(largest(format_), code + 1) + 1)]
    if not made.signed:
        return sizes
    return [*sizes, *(-size for size in sizes)] if here == 0 else [float(np.copysign(size, here)) for size in sizes]
