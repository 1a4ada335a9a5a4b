"""Memory over time: every tensor and array that a piece of code holds, by category.

with lk.trace_memory() as trace:
    loss = model(x).sum()
    loss.backward()
print(trace)                     # peak, categories, the tensors alive at the peak and the lines that made them
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, overload

from mlsys_labkit._base.probes import probe, witnessed
from mlsys_labkit.memory.numpy_tracer import tracing_numpy, unseen
from mlsys_labkit.memory.process import (
    LEAST_MAPPED_BYTES,
    MOST_MAPPED_BYTES,
    cuda_figures,
    map_from,
    reset_cuda_peak,
    resident_bytes,
)
from mlsys_labkit.memory.trace import CATEGORIES, MemoryEvent, MemoryTrace, TracedTensor

__all__ = ["CATEGORIES", "MemoryEvent", "MemoryTrace", "TracedTensor", "call_traced", "trace_memory"]


@overload
def trace_memory() -> AbstractContextManager[MemoryTrace]: ...
@overload
def trace_memory(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> MemoryTrace: ...
def trace_memory(
    fn: Callable[..., Any] | None = None, /, *args: Any, **kwargs: Any
) -> MemoryTrace | AbstractContextManager[MemoryTrace]:
    """Record what torch tensors (any device, fake ones too) and numpy arrays hold, over time.

    ``trace_memory(fn, *args)`` runs the call, drops its result and returns the trace; without arguments it is a context
    manager that gives the trace, complete after the block. Sizes are the bytes asked for: not what an allocator rounds
    up, nor scratch memory inside a kernel. Tensors made before count from the start if the code uses them; numpy arrays
    count only if they are made inside. torch is seen at each operation (not inside torch.compile), numpy at each line
    of your own code: what came and went within one line is shown as one temporary.

    Example:
        >>> import numpy as np
        >>> trace_memory(np.zeros, 1000).peak_bytes
        8000

    Reference: torch.utils._python_dispatch.TorchDispatchMode; numpy.lib.tracemalloc_domain,
    https://numpy.org/doc/stable/reference/generated/numpy.lib.tracemalloc_domain.html
    """
    __tracebackhide__ = True  # an error of fn shows the student's frames, not this one
    return _tracing() if fn is None else call_traced(fn, *args, **kwargs)[1]


@witnessed("the system's kernel, by the resident set of a process made for the call")
@probe
def call_traced(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> tuple[Any, MemoryTrace]:
    """Call ``fn(*args, **kwargs)`` and return its result and the trace of the call.

    Example:
        >>> import numpy as np
        >>> result, trace = call_traced(np.zeros, 1000)
        >>> result.nbytes, trace.peak_bytes
        (8000, 8000)
    """
    __tracebackhide__ = True  # an error of fn shows the student's frames, not this one
    with _tracing() as trace:
        result = fn(*args, **kwargs)
    return result, trace


@contextmanager
def _tracing() -> Iterator[MemoryTrace]:
    trace = MemoryTrace()
    gc.collect()  # cycles left by earlier code would be freed inside, at a moment of the collector's choice
    tracer = None
    with ExitStack() as stack:
        if "torch" in sys.modules:  # without torch there are no tensors, and importing it takes seconds
            from mlsys_labkit.memory.torch_tracer import TorchTracer

            with unseen():  # listing the live tensors takes megabytes, which an outer trace must not count
                tracer = stack.enter_context(TorchTracer(trace))
            reset_cuda_peak()
        map_from(LEAST_MAPPED_BYTES)
        stack.callback(map_from, MOST_MAPPED_BYTES)
        trace.resident_before_bytes = resident_bytes()
        stack.callback(_measure_at_the_end, trace)
        stack.enter_context(tracing_numpy(trace, lambda: tracer.operations if tracer else 0))
        yield trace


def _measure_at_the_end(trace: MemoryTrace) -> None:
    trace.resident_after_bytes = resident_bytes()
    trace.cuda = cuda_figures()
