"""A whole GPU in host memory: NVIDIA's own cuda-core over ``stand_in_driver``, whose kernels run in the simulator.

For ``python -m benchmarks.gpu --stand-in``, which tries a campaign where there is no GPU.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from mlsys_labkit.cuda.kernel.arguments.parameters import Parameter
from mlsys_labkit.cuda.kernel.backends.gpu import GpuBackend
from mlsys_labkit.cuda.kernel.kernel import LaunchOptions
from mlsys_labkit.cuda.nvidia import device
from mlsys_labkit.cuda.nvidia.driver import Gpu
from mlsys_labkit.cuda.nvidia.nvrtc import CompiledSource
from mlsys_labkit.cuda.shape import LaunchShape
from tests.cuda.stand_in_driver import REASON, CUresult, DriverInMemory, Launched

_LETTERS = {"float": "f", "half": "f", "bfloat16": "u", "integer": "i", "unsigned": "u", "bool": "?", "pointer": "u"}


def install() -> DriverInMemory:
    """Make the kit of this process find a GPU. Raises SystemExit where NVIDIA's driver is installed."""
    if REASON:
        raise SystemExit(REASON)
    driver = DriverInMemory({"_Z5probePi": _probe})
    device._HINTS = ("/",)
    device.WorkerGpu = lambda: _Worker(driver)  # type: ignore[assignment, misc]
    compile_kernel = GpuBackend._kernel

    def known(self: GpuBackend, index: int) -> CompiledSource:
        """Compile as ever, and let the driver simulate the next launch of that symbol."""
        compiled = compile_kernel(self, index)
        driver.kernels[compiled.symbol] = lambda launched: _simulate(self, index, launched)
        return compiled

    GpuBackend._kernel = known  # type: ignore[method-assign]
    return driver


class _Worker:
    """A GPU with the interface of ``WorkerGpu`` in this process, which has the device's memory; new after a fault."""

    def __init__(self, driver: DriverInMemory) -> None:
        self._driver, self._gpu = driver, Gpu(abandoned=lambda: False)

    def __getattr__(self, name: str) -> Any:
        if self._gpu.lost:
            self._driver.failing = CUresult.CUDA_SUCCESS
            self._gpu = Gpu(abandoned=lambda: False)
        return getattr(self._gpu, name)


def _probe(launched: Launched) -> None:
    address = launched.argument(0, ctypes.c_uint64).value
    launched.gpu.array(address, np.int32, 32)[:] = np.arange(32) * 3 + 1


def _simulate(backend: GpuBackend, index: int, launched: Launched) -> None:
    """Run a launch in the simulator on the arrays in device memory. Raises LookupError for what faults on a GPU."""
    parameters = backend.parameters(index)
    arguments = tuple(_argument(launched, *pair) for pair in enumerate(parameters))
    shape = LaunchShape(launched.grid, launched.block, launched.shared)
    try:
        backend._simulator.run(index, shape, arguments, LaunchOptions())
    except Exception as error:
        raise LookupError(f"the simulator: {error}") from error


def _argument(launched: Launched, place: int, parameter: Parameter) -> Any:
    if parameter.kind != "pointer":
        raw = bytes(launched.argument(place, ctypes.c_char * parameter.nbytes))
        return np.frombuffer(raw, _dtype(parameter.kind, parameter.nbytes))[0]
    address = launched.argument(place, ctypes.c_uint64).value
    for start, memory in launched.gpu.live.items():
        if start <= address < start + len(memory):
            elements = (start + len(memory) - address) // parameter.element_bytes
            return launched.gpu.array(address, _dtype(parameter.element_kind, parameter.element_bytes), elements)
    return address  # a null pointer, or one to memory of the host


def _dtype(kind: str, size: int) -> np.dtype[Any]:
    if kind == "void":
        return np.dtype(np.uint8)
    if kind == "bool":
        return np.dtype(np.bool_)
    return np.dtype(f"{_LETTERS[kind]}{size}") if kind in _LETTERS else np.dtype([("raw", "u1", (size,))])
