"""Special functions of one number that Python's ``math`` lacks, to about 1e-13 for arguments up to 1e4.

Reference: F. Olver et al., "NIST Handbook of Mathematical Functions", 7.17, 10.9, 10.32.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

_TOO_LARGE = 1e6  # beyond it a Bessel function needs more points than a kernel's block is worth
_SQRT_PI = math.sqrt(math.pi)


def gamma(x: float) -> float:
    return math.copysign(math.inf, x) if x == 0 else math.gamma(x)


def log_gamma(x: float) -> float:
    """Return log |gamma(x)|, infinite at the poles."""
    return math.inf if x <= 0 and x == math.floor(x) else math.lgamma(x)


def erfcx(x: float) -> float:
    """Return exp(x**2) erfc(x), by a continued fraction where erfc is too small."""
    if x < 10:
        return math.exp(x * x) * math.erfc(x) if x > -26.7 else math.inf
    tail = 0.0
    for k in range(60, 0, -1):
        tail = k / 2 / (x + tail)
    return 1 / (x + tail) / _SQRT_PI


def erfcinv(y: float) -> float:
    """Return x with erfc(x) = y, by Halley's method."""
    if not 0 < y < 2:
        return {0.0: math.inf, 2.0: -math.inf}.get(y, math.nan)
    if y > 1:
        return -erfcinv(2 - y) if y > 1.5 else -erfinv(y - 1)
    if y > 0.5:
        return erfinv(1 - y)
    x = math.sqrt(-math.log(y))
    for _ in range(40):
        wrong = (math.erfc(x) - y) / (-2 / _SQRT_PI * math.exp(-x * x))
        step = wrong / (1 + x * wrong)
        x -= step
        if abs(step) <= 1e-16 * abs(x):
            break
    return x


def erfinv(x: float) -> float:
    """Return z with erf(z) = x, by Halley's method."""
    if not abs(x) < 1:
        return math.copysign(math.inf, x) if abs(x) == 1 else math.nan
    if abs(x) > 0.5:
        return math.copysign(erfcinv(1 - abs(x)), x)
    z = x * _SQRT_PI / 2
    for _ in range(20):
        wrong = (math.erf(z) - x) / (2 / _SQRT_PI * math.exp(-z * z))
        step = wrong / (1 + z * wrong)
        z -= step
        if abs(step) <= 1e-16 * abs(z):
            break
    return z


def bessel_j(order: int, x: float) -> float:
    """Return J_n(x): the mean of cos(n t - x sin t), whose trapezoidal sum converges exponentially."""
    if not math.isfinite(x) or abs(x) > _TOO_LARGE:
        return 0.0 if math.isinf(x) else math.nan
    if 0 < abs(x) < 1e-2 * (1 + abs(order)):
        return _series(abs(order), x, -1.0) * (-1.0 if order < 0 and order % 2 else 1.0)
    angles = _angles(int(abs(x) + abs(order)) + 60)
    return float(np.mean(np.cos(order * angles - x * np.sin(angles))))


def bessel_i(order: int, x: float) -> float:
    """Return I_n(x): the mean of exp(x cos t) cos(n t)."""
    if not abs(x) < 800:
        return math.nan if math.isnan(x) else math.copysign(math.inf, x) if order % 2 else math.inf
    if abs(x) < 1e-2:
        return _series(order, x, 1.0)
    angles = _angles(int(abs(x)) + 60)
    with np.errstate(over="ignore"):
        return float(np.mean(np.exp(x * np.cos(angles)) * np.cos(order * angles)))


def bessel_y(order: int, x: float) -> float:
    """Return Y_n(x) from Y_0 and Y_1, which are integrals, by the recurrence in n."""
    if x <= 0 or math.isnan(x) or x > _TOO_LARGE:
        return -math.inf if x == 0 else 0.0 if x == math.inf else math.nan
    if order < 0:
        return bessel_y(-order, x) * (-1.0 if order % 2 else 1.0)
    if order > 1:
        before, now = bessel_y(0, x), bessel_y(1, x)
        for n in range(1, order):
            before, now = now, 2 * n / x * now - before
        return now
    end = math.asinh(750 / x) + 1
    turns = _integral(lambda t: np.sin(x * np.sin(t) - order * t), 0.0, math.pi, int(x / 4) + 4)
    sign = (-1) ** order
    decay = _integral(lambda t: (np.exp(order * t) + sign * np.exp(-order * t)) * np.exp(-x * np.sinh(t)), 0.0, end, 60)
    return (turns - decay) / math.pi


def _series(order: int, x: float, sign: float) -> float:
    """Return the power series of J_n (``sign`` -1) or I_n (1) near 0, where the mean cancels."""
    term = (x / 2) ** order / math.factorial(order)
    total = 0.0
    for k in range(1, 12):
        total += term
        term *= sign * x * x / 4 / (k * (k + order))
    return total


def _angles(count: int) -> NDArray[np.float64]:
    return np.asarray(np.arange(count) * (2 * math.pi / count), np.float64)


def _integral(function: Any, low: float, high: float, panels: int) -> float:
    """Return an integral by Gauss and Legendre's rule on equal panels."""
    nodes, weights = _rule()
    edges = np.linspace(low, high, panels + 1)
    half = (edges[1:] - edges[:-1])[:, None] / 2
    points = (edges[:-1, None] + half) + half * nodes
    with np.errstate(over="ignore", under="ignore"):
        return float(np.sum(function(points) * weights * half))


@cache
def _rule() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    nodes, weights = np.polynomial.legendre.leggauss(32)
    return np.asarray(nodes, np.float64), np.asarray(weights, np.float64)
