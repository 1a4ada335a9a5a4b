"""Errors of checkpoints and of requests to a model."""

from __future__ import annotations

from mlsys_labkit.errors import LabkitError


class CheckpointError(LabkitError):
    """A folder without a model that this kit can run: the message names the file or setting, and what is expected."""


class ContextError(LabkitError, ValueError):
    """More tokens than the model or its cache has room for, or none at all."""


class TokenError(LabkitError, ValueError):
    """A number that is no token of the model, or a way of drawing tokens that cannot be."""
