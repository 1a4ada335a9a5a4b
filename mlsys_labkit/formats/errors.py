"""What can be wrong with a code, a number or a shape that is to be stored in few bits."""

from __future__ import annotations

from mlsys_labkit.errors import LabkitError


class FormatError(LabkitError, ValueError):
    """A code that a format does not have, a number that it cannot hold, or an axis that its blocks do not fit."""
