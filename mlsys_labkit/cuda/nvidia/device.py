"""The GPU, used only after a small kernel has run on it.

A worker process launches, so that the notebook survives kernels that fail. Tensors that torch has on the GPU belong to
the notebook's process, which has to launch on them itself.
"""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np

from mlsys_labkit.cuda.errors import CudaError
from mlsys_labkit.cuda.nvidia import nvrtc
from mlsys_labkit.cuda.nvidia.driver import Gpu
from mlsys_labkit.cuda.nvidia.gpu_launch import GpuLaunch
from mlsys_labkit.cuda.nvidia.gpu_worker import WorkerGpu
from mlsys_labkit.cuda.shape import LaunchShape
from mlsys_labkit.errors import MissingExtraError

_HINTS = ("/dev/nvidia0", "/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-gpu", "/proc/driver/nvidia")
_PROBE = "__global__ void probe(int* x) { x[threadIdx.x] = threadIdx.x * 3 + 1; }"


@functools.cache
def the_gpu() -> WorkerGpu | Gpu:
    """Return the GPU, after a small kernel has run on it.

    Raises CudaError or MissingExtraError, whose message gives the reason in one line.
    """
    if not any(Path(hint).exists() for hint in _HINTS):
        raise CudaError("this machine has no NVIDIA GPU, or its driver is not installed (nvidia-smi shows it)")
    gpu = WorkerGpu()
    _probe(gpu)
    return gpu


@functools.cache
def gpu_of_torch() -> WorkerGpu | Gpu:
    """Return the GPU in this process, for tensors that torch keeps on it. Raises as ``the_gpu``."""
    return Gpu()


@functools.cache
def why_no_gpu() -> str:
    """Return why ``backend="auto"`` selects the simulator; "" when there is a GPU that works."""
    try:
        the_gpu()
    except (CudaError, MissingExtraError) as error:
        return str(error)
    return ""


def _probe(gpu: WorkerGpu | Gpu) -> None:
    """Run one warp and check its result, because no query shows that a GPU works."""
    compiled = nvrtc.compile(_PROBE, "probe", gpu.arch)
    memory = gpu.allocate(32 * 4)
    packed, shape = memory.address.to_bytes(8, "little"), LaunchShape((1, 1, 1), (32, 1, 1))
    gpu.run(GpuLaunch("probe", compiled.cubin, compiled.symbol, shape, packed, (0,)))
    found = memory.view().view(np.int32)
    memory.free()
    if not np.array_equal(found, np.arange(32) * 3 + 1):
        raise CudaError(f"{gpu.name} computes wrong numbers: a kernel of one warp gave {found[:4].tolist()} ...")
