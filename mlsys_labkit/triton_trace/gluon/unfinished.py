"""Results that tensor cores are still computing: registers that nothing may use before a wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlsys_labkit.triton_trace.gluon.operations import Operation
from mlsys_labkit.triton_trace.interpret.private import Handle
from mlsys_labkit.triton_trace.interpret.run import InterpreterRun

_KEY = "labkit unfinished"


def unfinished(handle: Any, operation: Operation) -> Any:
    """Note in a handle the operation that computes it, and return it."""
    handle.attr[_KEY] = operation
    return handle


def finished(handle: Any, under_way: Sequence[Operation]) -> Any:
    """Return a handle that may be used, unless its operation is still under way."""
    operation = handle.attr.get(_KEY)
    made = Handle(handle.data, handle.dtype.scalar)
    return unfinished(made, operation) if operation in under_way else made


def require_finished(run: InterpreterRun, handle: Any) -> None:
    """Report a use of a result that is still being computed."""
    operation = handle.attr.get(_KEY) if handle.attr else None
    if operation is not None and not run.dry:
        run.misuse(
            "missing_wait", f"uses the result of the WGMMA of {operation.line}, which is under way: {operation.advice}"
        )
