"""The points of a test cell that ends in a number."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

_NUMBER = re.compile(r"(?:np\.\w+|tensor)\(([^(),]+)(?:, dtype=[\w.]+)?\)")


def credit_of(outputs: list[dict[str, Any]]) -> float | None:
    """Return the number that a cell ended in, which counts as its points; None for another value, as in nbgrader.

    Other than there, numbers of numpy and torch are numbers too.
    """
    shown = [each["data"]["text/plain"] for each in outputs if each["output_type"] == "execute_result"]
    if not shown:
        return None
    number = _NUMBER.fullmatch(shown[0])
    try:
        return float(number[1] if number else shown[0])
    except ValueError:
        return None


def least_credit(credits: Iterable[float | None]) -> float | None:
    """Return the least number; NaN counts as the smallest, and None is no number."""
    numbers = [each for each in credits if each is not None]
    return min(numbers, key=lambda each: -math.inf if math.isnan(each) else each, default=None)
