"""Numbers for people: SI prefixes, three significant digits."""

from __future__ import annotations

import math

_PREFIXES = {-9: "n", -6: "µ", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}


def si(value: float, unit: str) -> str:
    """``value`` with an SI prefix.

    Example:
        >>> si(989.4e12, "FLOP/s"), si(0.25, "FLOP/B"), si(0, "B/s")
        ('989 TFLOP/s', '250 mFLOP/B', '0 B/s')
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:g} {unit}"
    exponent = 3 * math.floor(math.log10(abs(float(f"{value:.3g}"))) / 3)
    exponent = min(max(exponent, min(_PREFIXES)), max(_PREFIXES))
    return f"{plain(value / 10**exponent)} {_PREFIXES[exponent]}{unit}"


def plain(value: float) -> str:
    """Three significant digits, never in exponent notation between 0.001 and a million.

    Example:
        >>> plain(295.3), plain(0.25), plain(1234.5)
        ('295', '0.25', '1230')
    """
    if not math.isfinite(value):
        return "∞" if value > 0 else f"{value:g}"
    rounded = float(f"{value:.3g}")
    return f"{rounded:g}" if not 1e3 <= abs(rounded) < 1e6 else f"{rounded:.0f}"
