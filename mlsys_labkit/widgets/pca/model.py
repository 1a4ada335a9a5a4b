"""Variance along a direction, and what the rest of the spectrum costs; the twin of ``model.js``.

For centred points and a unit vector u: variance kept u'Cu, reconstruction error tr C - u'Cu. They add up to the total.
Reference: Pearson, "On lines and planes of closest fit to systems of points in space", 1901.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import cos, radians, sin

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def covariance(points: Sequence[Sequence[float]]) -> Array:
    """Return (d, d) covariance of (n, d) points around their mean, divided by n."""
    centred = np.asarray(points, np.float64) - np.mean(points, axis=0)
    return np.asarray(centred.T @ centred / len(centred))


def direction(angle: float, tilt: float, dims: int) -> list[float]:
    """Return the unit vector of an angle in the plane and, in 3-D, a tilt out of it, both in degrees."""
    a, t = radians(angle), radians(tilt)
    return [cos(a), sin(a)] if dims == 2 else [cos(t) * cos(a), cos(t) * sin(a), sin(t)]


def kept(cov: Array, unit: Sequence[float]) -> float:
    """Return the variance along ``unit``.

    Example:
        >>> kept(np.diag([3.0, 1.0]), [1.0, 0.0])
        3.0
    """
    vector = np.asarray(unit)
    return float(vector @ cov @ vector)


def total(cov: Array) -> float:
    return float(np.trace(cov))


def principal(cov: Array) -> tuple[list[float], list[list[float]]]:
    """Return the eigenvalues, largest first, and unit axes, each with its largest entry positive."""
    values, vectors = np.linalg.eigh(cov)
    axes = [axis * np.sign(axis[np.argmax(np.abs(axis))]) for axis in vectors.T[::-1]]
    return [float(value) for value in values[::-1]], [axis.tolist() for axis in axes]


def tail(spectrum: Sequence[float], k: int) -> float:
    """Return the reconstruction error of the best k axes: the eigenvalues that are left out."""
    return float(sum(spectrum[k:]))
