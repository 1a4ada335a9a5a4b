"""Numbers as text: SI prefixes and three significant digits."""

from __future__ import annotations

import math
from decimal import ROUND_HALF_UP, Context

_PREFIXES = {-12: "p", -9: "n", -6: "µ", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_DIVISIBLE = ("s", "J", "W")
_DIGITS = Context(prec=3, rounding=ROUND_HALF_UP)  # JavaScript rounds halves up as well


def si(value: float, unit: str = "") -> str:
    """Return ``value`` with three significant digits, an SI prefix and ``unit``.

    Only times, energies and powers take prefixes below one: a ratio or a count reads better as 0.25 than as 250 m.
    ``si`` in widgets/shared/numbers.js returns the same text.

    Example:
        >>> si(989.4e12, "FLOP/s"), si(0.25, "FLOP/B"), si(2e-6, "s"), si(0, "B/s")
        ('989 TFLOP/s', '0.25 FLOP/B', '2 µs', '0 B/s')
    """
    if not math.isfinite(value):
        return f"{value:g} {unit}".rstrip()
    mantissa, _, exponent = f"{_DIGITS.create_decimal_from_float(float(value) + 0.0):.2e}".partition("e")
    least = min(_PREFIXES) if unit in _DIVISIBLE and value else 0
    power = min(max(3 * (int(exponent) // 3), least), max(_PREFIXES))
    shift = int(exponent) - power
    text = f"{float(mantissa):g}e{shift}" if shift < -3 and value else f"{float(f'{mantissa}e{shift}'):.10g}"
    return f"{text} {_PREFIXES[power]}{unit}".rstrip()


def plain(value: float) -> str:
    """Return three significant digits of ``value``, without an exponent between 0.001 and a million.

    Example:
        >>> plain(295.3), plain(0.25), plain(1234.5)
        ('295', '0.25', '1230')
    """
    if not math.isfinite(value):
        return "∞" if value > 0 else f"{value:g}"
    rounded = float(f"{value:.3g}")
    return f"{rounded:g}" if not 1e3 <= abs(rounded) < 1e6 else f"{rounded:.0f}"
