"""One rank's part of a run, on any backend: bind its recorder, call the function, return its record."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from mlsys_labkit.memory import MemoryTrace
from mlsys_labkit.ranks.recording import torch_private
from mlsys_labkit.ranks.recording.recorder import RankRecorder, bind
from mlsys_labkit.ranks.result import RankResult


def run_rank(recorder: RankRecorder, fn: Callable[..., Any], args: Sequence[Any], memory: bool) -> RankResult:
    """Run ``fn(*args)`` as the rank of ``recorder``, on this thread; with ``memory`` trace its tensors."""
    bind(recorder)
    os.environ.update(_variables(recorder))
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


def _variables(recorder: RankRecorder) -> dict[str, str]:
    """Return the environment variables that torchrun sets, for one node."""
    rank, size = str(recorder.rank), str(recorder.world_size)
    everywhere = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": size}
    elastic = {"GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1", "ROLE_RANK": rank, "ROLE_WORLD_SIZE": size}
    named = {"TORCHELASTIC_RUN_ID": "labkit", "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "0"}
    return everywhere | elastic | named | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
