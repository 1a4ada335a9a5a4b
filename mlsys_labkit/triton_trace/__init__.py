"""Triton without a GPU: run a kernel, see every access it makes, and what the compiler makes of it.

    trace = lk.triton_trace.trace(kernel)[grid](x, out, n, BLOCK=256)     # numpy arrays or torch tensors
    trace.arrays["x"].loaded_bytes, trace.findings, trace.work
    with lk.triton_trace.tracing() as traces:                             # launches that your own functions make
        softmax(x)

Importing this room is enough for ``kernel[grid](...)`` to run on a machine without a GPU. Every name below is loaded on
first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from mlsys_labkit.triton_trace.launch import install_if_there

_HOME = {
    "Access": "counts",
    "ArgumentError": "errors",
    "ArrayTraffic": "counts",
    "Compiled": "compiled",
    "Finding": "finding",
    "KernelError": "errors",
    "LaunchError": "errors",
    "RefusedSourceError": "errors",
    "Trace": "tracer",
    "TritonTraceError": "errors",
    "WorkerError": "errors",
    "reachable": "launch",
    "compile_for": "compiled",
    "trace": "tracer",
    "tracing": "tracer",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__


if TYPE_CHECKING:
    from mlsys_labkit.triton_trace.compiled import Compiled, compile_for
    from mlsys_labkit.triton_trace.counts import Access, ArrayTraffic
    from mlsys_labkit.triton_trace.errors import (
        ArgumentError,
        KernelError,
        LaunchError,
        RefusedSourceError,
        TritonTraceError,
        WorkerError,
    )
    from mlsys_labkit.triton_trace.finding import Finding
    from mlsys_labkit.triton_trace.launch import reachable
    from mlsys_labkit.triton_trace.tracer import Trace, trace, tracing

install_if_there()
