"""Errors of this kit that are Triton's own, too, for programs that catch ``triton.CompilationError``."""

from __future__ import annotations

import functools
from typing import Any

from mlsys_labkit.triton_trace import errors as our_errors
from mlsys_labkit.triton_trace.errors import TritonTraceError


def also_tritons(error: TritonTraceError, name: str = "CompilationError", cause: str = "") -> None:
    """Make ``error`` an instance of the class ``name`` of Triton's compiler, too, with ``cause`` as its cause.

    Its text stays.
    """
    if cause:
        error.__cause__ = ValueError(cause)
    error.__class__ = _joint(type(error).__name__, name)
    vars(error).update(src=None, node=None, error_message=str(error), message=str(error))


@functools.cache
def _joint(name: str, theirs: str) -> type[TritonTraceError]:
    """Return a class that is our error ``name`` and Triton's error ``theirs``."""
    from triton.compiler import errors

    ours: type[TritonTraceError] = getattr(our_errors, name)

    def reduced(error: Any) -> Any:
        return ours, error.args

    members = {"__str__": ours.__str__, "__reduce__": reduced, "__module__": ours.__module__, "__doc__": ours.__doc__}
    return type(name, (ours, getattr(errors, theirs)), members)
