"""Error of the number formats."""

from __future__ import annotations

from mlsys_labkit.errors import LabkitError


class FormatError(LabkitError, ValueError):
    """A code that a format does not have, a number that it cannot hold, or an axis that its blocks do not fit."""
