"""Numbers as the verdicts of the widgets write them, and the type of their oracles."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

from mlsys_labkit._base.units import si

State = Mapping[str, Any]


@dataclass(frozen=True)
class Expected:
    """The words and numbers of a view in one state; rows of its table and handles are found by their names."""

    verdict: str
    rows: Mapping[str, Sequence[str]] = field(default_factory=dict)
    notes: Sequence[str] = ()
    labels: Sequence[str] = ()
    others: Sequence[str] = ()
    handles: Mapping[str, str] = field(default_factory=dict)


Oracle = Callable[[State, Mapping[str, Any]], Expected]


def rounded(value: float, digits: int) -> float:
    """Return ``value`` with so many significant digits, halves up, as JavaScript's toPrecision."""
    return float(Context(prec=digits, rounding=ROUND_HALF_UP).create_decimal(Decimal(float(value))))


def plain(value: float) -> str:
    """Return three significant digits; from ten thousand on with an SI prefix."""
    return si(value) if abs(value) >= 1e4 else javascript(rounded(value, 3))


def javascript(value: float) -> str:
    """Return the shortest text of a number as JavaScript writes it."""
    if math.isfinite(value) and value == int(value) and abs(value) < 1e21:
        return str(int(value))
    text = repr(float(value))
    if "e" not in text:
        return text
    mantissa, _, exponent = text.partition("e")
    if -7 < int(exponent) < 0:
        return f"{Decimal(text):f}"
    return f"{mantissa}e{int(exponent):+d}"


def whole(value: float) -> str:
    return f"{int(value):,}".replace(",", "\u202f")


def nearest(value: float) -> int:
    """Return the nearest whole number, halves up, as JavaScript's Math.round."""
    return math.floor(value + 0.5)


def fixed(value: float, digits: int) -> str:
    """Return a number with so many decimals, halves away from zero, as JavaScript's toFixed."""
    return str(Decimal(float(value)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))


def some(count: int, name: str) -> str:
    return f"{count} {name}" if count == 1 else f"{count} {name}s"
