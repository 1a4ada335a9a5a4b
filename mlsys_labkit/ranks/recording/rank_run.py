"""One rank's part of a run, on any backend: bind its recorder, call the function, return its record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mlsys_labkit.memory import MemoryTrace
from mlsys_labkit.ranks.recording import torch_private
from mlsys_labkit.ranks.recording.recorder import RankRecorder, bind
from mlsys_labkit.ranks.result import RankResult


def run_rank(recorder: RankRecorder, fn: Callable[..., Any], args: Sequence[Any], memory: bool) -> RankResult:
    """Run ``fn(*args)`` as the rank of ``recorder``, on this thread; with ``memory`` trace its tensors."""
    bind(recorder)
    trace = None
    try:
        if memory:
            from mlsys_labkit.memory.torch_tracer import TorchTracer  # takes seconds: it imports torch's compiler

            trace = MemoryTrace()
            with TorchTracer(trace):
                value = fn(*args)
        else:
            value = fn(*args)
        value = torch_private.arrived(value)
    finally:
        bind(None)
    return RankResult(value, recorder.events(), dict(recorder.snapshots), trace)
