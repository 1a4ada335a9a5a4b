"""A straight line's mean squared error over its two parameters; the twin of ``model.js``.

The error is a quadratic bowl in slope and intercept, so that its minimum and its level sets have closed forms.
Reference: Gauss, "Theoria motus corporum coelestium", 1809, on least squares.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import cos, pi, sin, sqrt


def error(x: Sequence[float], y: Sequence[float], slope: float, intercept: float) -> float:
    """Return the mean squared error of ``slope * x + intercept``.

    Example:
        >>> error([0.0, 1.0], [1.0, 5.0], 2.0, 1.0)
        2.0
    """
    return sum((slope * a + intercept - b) ** 2 for a, b in zip(x, y, strict=True)) / len(x)


def gradient(x: Sequence[float], y: Sequence[float], slope: float, intercept: float) -> list[float]:
    """Return the error's derivatives with respect to slope and intercept."""
    misses = [slope * a + intercept - b for a, b in zip(x, y, strict=True)]
    return [2 * sum(m * a for m, a in zip(misses, x, strict=True)) / len(x), 2 * sum(misses) / len(x)]


def best(x: Sequence[float], y: Sequence[float]) -> list[float]:
    """Return the slope and intercept of the least error.

    Example:
        >>> best([0.0, 1.0, 2.0], [1.0, 3.0, 5.0])
        [2.0, 1.0]
    """
    n, mean_x, mean_y = len(x), sum(x) / len(x), sum(y) / len(y)
    spread = sum((a - mean_x) ** 2 for a in x) / n
    slope = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / n / spread
    return [slope, mean_y - slope * mean_x]


def level(x: Sequence[float], y: Sequence[float], above: float, points: int = 48) -> list[list[float]]:
    """Return ``points`` (slope, intercept) whose error is ``above`` more than the least one: an ellipse."""
    mean_x = sum(x) / len(x)
    spread = sqrt(sum((a - mean_x) ** 2 for a in x) / len(x))
    slope, intercept = best(x, y)
    ring = []
    for i in range(points):
        # With u = spread * (slope - best) and v = the line's offset at the mean of x, the excess is u² + v².
        u, v = sqrt(above) * cos(2 * pi * i / points), sqrt(above) * sin(2 * pi * i / points)
        ring.append([slope + u / spread, intercept + v - mean_x * u / spread])
    return ring


def largest_rate(x: Sequence[float]) -> float:
    """Return the learning rate above which gradient descent diverges: 2 over the largest curvature."""
    a, b = sum(v * v for v in x) / len(x), sum(x) / len(x)
    return 2 / (a + 1 + sqrt((a - 1) ** 2 + 4 * b * b))
