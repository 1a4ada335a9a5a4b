"""Line fit: a line through points, fitted by hand or by gradient descent."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mlsys_labkit.errors import LabkitError
from mlsys_labkit.widgets.base import Kind, State, paragraph, table
from mlsys_labkit.widgets.line_fit import model

MOST_POINTS = 200


def line_fit(x: ArrayLike, y: ArrayLike, slope: float | None = None, intercept: float | None = None) -> Any:
    """Fit a line to the points (``x``, ``y``), two equally long lists, by moving it, or step by step downhill.

    Beside the points stands the error over all slopes and intercepts, with the path that was taken. ``slope`` and
    ``intercept`` are where it starts, by default a flat line through the lowest point.
    Raises LabkitError for fewer than two points, more than 200, values that are not finite, or x all alike.
    Reference: Gauss, "Theoria motus corporum coelestium", 1809, on least squares.

    Example:
        >>> line_fit([0, 1, 2, 3], [1.1, 2.8, 5.2, 7.1])
        <Line fit>
    """
    xs, ys = np.asarray(x, np.float64), np.asarray(y, np.float64)
    if xs.ndim != 1 or xs.shape != ys.shape or not 2 <= xs.size <= MOST_POINTS:
        raise LabkitError(
            f"x and y are two lists of 2 to {MOST_POINTS} numbers each, got shapes {xs.shape} and {ys.shape}"
        )
    if not (np.isfinite(xs).all() and np.isfinite(ys).all()):
        raise LabkitError("x and y must be finite; look for NaN or infinity in them")
    if np.ptp(xs) == 0:
        raise LabkitError(f"all x are {xs[0]:g}: a line needs points at two places at least")
    starts = (0.0 if slope is None else float(slope), float(ys.min()) if intercept is None else float(intercept))
    return KIND.show(
        x=[float(f"{value:.5g}") for value in xs],
        y=[float(f"{value:.5g}") for value in ys],
        slope=starts[0],
        intercept=starts[1],
    )


def _static(state: State) -> str:
    x, y = state["x"], state["y"]
    lines = [("shown", [state["slope"], state["intercept"]]), ("best", model.best(x, y))]
    rows = [(name, *(f"{v:.3g}" for v in line), f"{model.error(x, y, line[0], line[1]):.3g}") for name, line in lines]
    return paragraph(f"{len(x)} points and a line through them.") + table(
        "Mean squared error of a line", ["line", "slope", "intercept", "error"], rows
    )


KIND = Kind("line_fit", "Line fit", _static)
