"""The error of the planner."""

from __future__ import annotations

from mlsys_labkit.errors import RanksError


class PlanError(RanksError, ValueError):
    """A model, cluster or layout that is not possible, or that does not fit."""
