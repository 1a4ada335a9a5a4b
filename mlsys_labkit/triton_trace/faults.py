"""Arrays that traced launches with errors stored to: a check of their values names the error first."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from mlsys_labkit.triton_trace.count.finding import AccessFinding
    from mlsys_labkit.triton_trace.report import LaunchTrace

_latest: deque[tuple[weakref.ref[Any], str, AccessFinding | None]] = deque(maxlen=64)


def note_faults(trace: LaunchTrace, arguments: Mapping[str, Any]) -> None:
    """Keep the first error of a launch with the arrays that it stored to, or that it had none."""
    first = next((one for one in trace.findings if one.severity == "error"), None)
    for name, traffic in trace.arrays.items():
        if traffic.stored_bytes and name in arguments:
            _latest.append((weakref.ref(arguments[name]), trace.kernel, first))


def fault_behind(values: Any) -> tuple[str, AccessFinding] | None:
    """Return the kernel that last stored to the memory of ``values``, and its error; None if it had none."""
    for reference, kernel, finding in reversed(_latest):
        stored = reference()
        if stored is not None and _overlap(stored, values):
            return (kernel, finding) if finding else None
    return None


def _overlap(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and np.may_share_memory(a, b)
    if not hasattr(b, "untyped_storage"):
        return False
    return bool(a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr())
