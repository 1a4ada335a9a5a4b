"""The GPU of this process, used only after a small kernel has run on it."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np

from mlsys_labkit.cuda.errors import CudaError
from mlsys_labkit.cuda.nvidia import nvrtc
from mlsys_labkit.cuda.nvidia.driver import Gpu
from mlsys_labkit.cuda.shape import LaunchShape
from mlsys_labkit.errors import MissingExtraError

_HINTS = ("/dev/nvidia0", "/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-gpu", "/proc/driver/nvidia")
_PROBE = "__global__ void probe(int* x) { x[threadIdx.x] = threadIdx.x * 3 + 1; }"


@functools.cache
def the_gpu() -> Gpu:
    """Return the GPU of this process, after a small kernel has run on it.

    Raises CudaError or MissingExtraError, whose message gives the reason in one line.
    """
    if not any(Path(hint).exists() for hint in _HINTS):
        raise CudaError("this machine has no NVIDIA GPU, or its driver is not installed (nvidia-smi shows it)")
    gpu = Gpu()
    try:
        _probe(gpu)
    except (CudaError, MissingExtraError):
        raise
    except Exception as error:  # such as a cuda-core with other names: kernels then run in the simulator
        raise CudaError(f"{gpu.name} cannot be used: {type(error).__name__}: {error}") from None
    return gpu


@functools.cache
def why_no_gpu() -> str:
    """Return why ``backend="auto"`` selects the simulator; "" when there is a GPU that works."""
    try:
        the_gpu()
    except (CudaError, MissingExtraError) as error:
        return str(error)
    return ""


def _probe(gpu: Gpu) -> None:
    """Run one warp and check its result, because no query shows that a GPU works."""
    compiled = nvrtc.compile(_PROBE, "probe", gpu.arch)
    memory = gpu.allocate(32 * 4)
    packed = memory.address.to_bytes(8, "little")
    gpu.launch(gpu.load(compiled.cubin, compiled.symbol), LaunchShape((1, 1, 1), (32, 1, 1)), packed, (0,))
    found = memory.view().view(np.int32)
    memory.free()
    if not np.array_equal(found, np.arange(32) * 3 + 1):
        raise CudaError(f"{gpu.name} computes wrong numbers: a kernel of one warp gave {found[:4].tolist()} ...")
