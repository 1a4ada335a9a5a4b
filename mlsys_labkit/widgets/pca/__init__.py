"""PCA explorer: turn a direction, see what it keeps and what it loses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mlsys_labkit.errors import LabkitError
from mlsys_labkit.widgets.base import Kind, State, paragraph, table
from mlsys_labkit.widgets.pca import model

MOST_POINTS = 300
MOST_COMPONENTS = 256


def pca(points: ArrayLike, spectrum: Sequence[float] | None = None) -> Any:
    """Turn a direction through a cloud of (n, d) ``points``: variance kept plus reconstruction error is the total.

    Points of more than three dimensions are shown on three principal axes; of more than 300, an even selection is
    drawn. ``spectrum`` (largest first) is the one behind the "components kept" slider, by default that of all points.
    Raises LabkitError for fewer than two points or dimensions, values that are not finite, or an unsorted spectrum.
    Reference: Pearson, "On lines and planes of closest fit to systems of points in space", 1901.

    Example:
        >>> pca([[2.0, 1.0], [-1.0, 0.5], [-1.0, -1.5]])
        <PCA explorer>
    """
    cloud = np.asarray(points, dtype=np.float64)
    if cloud.ndim != 2 or cloud.shape[0] < 2 or cloud.shape[1] < 2:
        raise LabkitError(f"points are an (n, d) array with n and d at least 2, got shape {cloud.shape}")
    if not np.isfinite(cloud).all():
        raise LabkitError(f"points must be finite; {np.count_nonzero(~np.isfinite(cloud))} values are not")
    values, axes = model.principal(model.covariance(cloud.tolist()))
    eigenvalues = values if spectrum is None else [float(value) for value in spectrum]
    eigenvalues = np.maximum(eigenvalues, 0.0).tolist()  # rounding leaves -1e-17 where the rank is short
    if not eigenvalues or sorted(eigenvalues, reverse=True) != eigenvalues or not np.isfinite(eigenvalues).all():
        raise LabkitError("spectrum expects at least one finite eigenvalue, largest first")
    notes = []
    if cloud.shape[1] > 3:
        share = sum(values[:3]) / max(sum(values), np.finfo(float).tiny)
        notes.append(f"Shown: the three leading of {cloud.shape[1]} axes, {100 * share:.3g} % of the variance.")
        cloud = (cloud - cloud.mean(axis=0)) @ np.array(axes[:3]).T
    if len(cloud) > MOST_POINTS:
        notes.append(f"Drawn: {MOST_POINTS} of {len(cloud)} points.")
        cloud = cloud[np.linspace(0, len(cloud) - 1, MOST_POINTS).astype(int)]
    if len(eigenvalues) > MOST_COMPONENTS:
        notes.append(f"The spectrum shows the {MOST_COMPONENTS} largest of {len(eigenvalues)} eigenvalues.")
        eigenvalues = eigenvalues[:MOST_COMPONENTS]
    digits = [[float(f"{value:.5g}") for value in point] for point in cloud.tolist()]
    return KIND.show(
        points=digits,
        spectrum=[float(f"{value:.6g}") for value in eigenvalues],
        angle=100,
        tilt=0,
        k=1,
        axes=False,
        note=" ".join(notes),
    )


def _static(state: State) -> str:
    cov = model.covariance(state["points"])
    values, axes = model.principal(cov)
    spectrum = state["spectrum"]
    whole = model.total(cov)
    unit = model.direction(state["angle"], state["tilt"], len(state["points"][0]))
    held = model.kept(cov, unit)
    rows = [
        ["shown direction", f"{held:.3g}", f"{whole - held:.3g}", f"{whole:.3g}"],
        ["best direction", f"{values[0]:.3g}", f"{whole - values[0]:.3g}", f"{whole:.3g}"],
    ]
    axis = ", ".join(f"{entry:.3g}" for entry in axes[0])
    several = [[k, f"{model.tail(spectrum, k):.3g}"] for k in range(min(len(spectrum), 8) + 1)]
    return (
        paragraph(f"{len(state['points'])} points; the first principal axis is ({axis}). {state['note']}")
        + table("Variance kept + error = total", ["direction", "kept", "error", "total"], rows)
        + table("Error after keeping the first components", ["components", "error"], several)
    )


KIND = Kind("pca", "PCA explorer", _static)
