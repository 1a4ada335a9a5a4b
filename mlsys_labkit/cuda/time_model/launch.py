"""One launch for the model: profiled on copies of its arguments, and compiled by NVIDIA's compiler if there is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mlsys_labkit.cuda.counters import Counters
from mlsys_labkit.cuda.nvidia import nvrtc, ptxas
from mlsys_labkit.cuda.nvidia.resources import resources
from mlsys_labkit.cuda.time_model.estimate import CountedLaunch, estimate
from mlsys_labkit.cuda.time_model.gpus import ModelledGpu
from mlsys_labkit.cuda.time_model.machine_code import executed, from_counters
from mlsys_labkit.cuda.time_model.time_estimate import TimeEstimate
from mlsys_labkit.errors import MissingExtraError

_L1 = "assumed: L1 keeps what a block reads again; blocks that run together share L2 as tiles of a matrix product do"
_NO_COMPILER = (
    "assumed, because NVIDIA's compiler is not installed (pip install 'mlsys-labkit[cuda]'): registers do not limit "
    "occupancy, no accesses are merged, and every instruction is an access or an FMA; expect a larger error"
)


def estimate_launch(
    profile: Callable[[int], Counters],
    compiled: Callable[[str], nvrtc.CompiledSource],
    arguments: tuple[Any, ...],
    gpu: ModelledGpu,
    static_shared_bytes: int,
) -> TimeEstimate:
    """Profile one block, and the launch, and estimate its time.

    Args:
        profile: runs so many blocks of the launch, 0 for those that the caller asked for, and returns the counters.
        compiled: returns the source compiled for an architecture, with the table of its lines.
        arguments: of the launch.
        static_shared_bytes: of ``__shared__`` arrays of a block.

    Raises what ``profile`` and ``compiled`` raise, but for a missing compiler.
    """
    one = profile(1)
    counters = one if one.blocks_run >= one.blocks_total else profile(0)
    assumptions = [_L1]
    try:
        code = compiled(gpu.arch)
        listing = ptxas.disassemble(code.cubin, code.symbol, lines=True)
        registers = resources(code, counters.kernel).registers
        instructions = executed(listing, counters)
    except MissingExtraError:
        registers, instructions = 0, from_counters(counters)
        assumptions.append(_NO_COMPILER)
    return estimate(
        CountedLaunch(
            counters=counters,
            block_bytes=(one.bytes_read + one.bytes_written) / max(one.blocks_run, 1),
            array_bytes=sum(getattr(each, "nbytes", 0) for each in arguments if np.ndim(each)),
            registers=registers,
            shared_bytes=static_shared_bytes + counters.shared_bytes,
            executed=instructions,
            compiled=registers > 0,
            assumptions=tuple(assumptions),
        ),
        gpu,
    )


def copies(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments with each array copied once, so that a model leaves the caller's arrays as they are."""
    made: dict[int, Any] = {}
    return tuple(made.setdefault(id(each), _copy(each)) for each in arguments)


def _copy(argument: Any) -> Any:
    if hasattr(argument, "clone"):  # a torch tensor
        return argument.clone()
    if hasattr(argument, "numpy"):  # a device array
        return argument.numpy()
    return argument.copy() if isinstance(argument, np.ndarray) else argument
