"""What can be wrong with a checkpoint or with what is asked of a model."""

from __future__ import annotations

from mlsys_labkit.errors import LabkitError


class CheckpointError(LabkitError):
    """A folder does not hold a model that this kit can run: which file or setting, and what is expected."""


class ContextError(LabkitError, ValueError):
    """More tokens than the model or its cache has room for, or none at all."""
