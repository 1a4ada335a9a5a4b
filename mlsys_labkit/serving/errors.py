"""Errors of the serving engine: requests, blocks and recordings."""

from __future__ import annotations

from mlsys_labkit.errors import LabkitError


class RequestError(LabkitError, ValueError):
    """A request that can never be served: empty, too long for the model or the cache, or its id is taken."""


class BlockError(LabkitError):
    """A wrong use of a block pool or a block table: a block freed twice, more blocks than there are."""


class RecordError(LabkitError, ValueError):
    """A file that is no complete recording of this kit."""
