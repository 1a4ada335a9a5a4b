"""One real GPU: memory, modules, launches and times. This is the only module that uses cuda-core.

cuda-core owns the context, streams, events and modules. Two things go to the driver beneath it: a launch, since
cuda-core passes no struct by value, and copies between an array and device memory.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlsys_labkit.cuda.errors import CudaError, CudaKernelError, CudaLaunchError
from mlsys_labkit.cuda.shape import LaunchShape
from mlsys_labkit.errors import require

# Errors of a kernel after which the GPU context is unusable: CUDA Driver API, CUresult.
_FATAL = {
    "CUDA_ERROR_ILLEGAL_ADDRESS": "read or wrote outside its arrays",
    "CUDA_ERROR_MISALIGNED_ADDRESS": "read or wrote at an address that is no multiple of the element's size",
    "CUDA_ERROR_INVALID_ADDRESS_SPACE": "used an address of the wrong kind of memory",
    "CUDA_ERROR_INVALID_PC": "jumped to where no code is",
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": "ran into an instruction that is none",
    "CUDA_ERROR_HARDWARE_STACK_ERROR": "overflowed its stack",
    "CUDA_ERROR_ASSERT": "failed an assert",
    "CUDA_ERROR_LAUNCH_TIMEOUT": "ran longer than this machine's display allows",
    "CUDA_ERROR_LAUNCH_FAILED": "failed on the GPU",
}


class Gpu:
    """A GPU and its primary context, the one that torch uses, too.

    Raises CudaError when there is no working GPU or cuda-core is too old, MissingExtraError when it is not installed.
    """

    def __init__(self, ordinal: int | None = None) -> None:
        self._core = require("cuda.core", "gpu")
        self._driver = require("cuda.bindings.driver", "gpu")
        self._lost = ""
        if self._core.__version__.startswith("0."):
            raise CudaError(f"cuda-core {self._core.__version__} is too old; run: pip install -U 'mlsys-labkit[gpu]'")
        try:
            self._device = self._core.Device(_torch_device() if ordinal is None else ordinal)
            self._device.set_current()
            self.name: str = self._device.name
            self.arch = f"sm_{self._device.arch}"
        except Exception as error:  # cuda-core raises errors of many classes: of its loader, its driver and its checks
            raise CudaError(f"no GPU can be used here: {_one_line(error)}") from None

    def allocate(self, nbytes: int) -> GpuMemory:
        """Return device memory, uninitialised. Raises CudaError when the GPU has no room."""
        buffer = self._call(lambda: self._device.allocate(max(nbytes, 1), stream=self._stream()), nbytes=nbytes)
        return GpuMemory(self, buffer, nbytes)

    def load(self, cubin: bytes, symbol: str) -> Any:
        """Return a kernel of a compiled module, ready to be launched."""
        return self._call(lambda: self._core.ObjectCode.from_cubin(cubin).get_kernel(symbol))

    def launch(
        self, kernel: Any, shape: LaunchShape, packed: bytes, offsets: Sequence[int], cooperative: bool = False
    ) -> None:
        """Start a kernel; argument i begins at ``offsets[i]`` of ``packed``. It may still run when this returns."""
        values = ctypes.create_string_buffer(packed, max(len(packed), 1))
        begin = ctypes.addressof(values)
        pointers = (ctypes.c_void_p * max(len(offsets), 1))(*(begin + offset for offset in offsets))
        handle, stream = int(kernel.handle), int(self._stream().handle)
        if shape.shared_bytes:
            self._allow_shared(handle, shape.shared_bytes)
        place = (handle, *shape.grid, *shape.block, shape.shared_bytes, stream, ctypes.addressof(pointers))
        if cooperative:
            self._driven(lambda: self._driver.cuLaunchCooperativeKernel(*place), shape=shape)
        else:
            self._driven(lambda: self._driver.cuLaunchKernel(*place, 0), shape=shape)

    def timed(self, work: Callable[[], None]) -> float:
        """Return seconds between an event before ``work`` and one after it."""
        options = self._core.EventOptions(timing_enabled=True)
        stream = self._stream()
        start = self._call(lambda: stream.record(options=options))
        work()
        end = self._call(lambda: stream.record(options=options))
        self._call(end.sync)
        return float(end - start) * 1e-3

    def synchronize(self) -> None:
        """Wait for all that was started. Raises CudaKernelError when a kernel failed meanwhile."""
        # cuda-core's Device.sync asks CUDA's runtime, which has other names for the same errors.
        self._driven(lambda: self._driver.cuCtxSynchronize())

    def upload(self, address: int, raw: NDArray[np.uint8]) -> None:
        if raw.nbytes:
            self._driven(lambda: self._driver.cuMemcpyHtoD(address, raw.ctypes.data, raw.nbytes))

    def download(self, raw: NDArray[np.uint8], address: int) -> None:
        if raw.nbytes:
            self._driven(lambda: self._driver.cuMemcpyDtoH(raw.ctypes.data, address, raw.nbytes))

    def _allow_shared(self, kernel: int, nbytes: int) -> None:
        """Opt a kernel in to more than 48 KiB of shared memory."""
        attribute = self._driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        self._driven(lambda: self._driver.cuKernelSetAttribute(attribute, nbytes, kernel, int(self._device.device_id)))

    def _stream(self) -> Any:
        """Return torch's current stream, so that kernels run in torch's order; else the default stream."""
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            handle = int(torch.cuda.current_stream().cuda_stream)
            if handle:
                return self._core.Stream.from_handle(handle)
        return self._device.default_stream

    def _driven(self, call: Callable[[], tuple[Any, ...]], shape: LaunchShape | None = None) -> None:
        """Call the driver and raise an error if its status is not 0."""

        def checked() -> None:
            status = call()[0]
            if int(status):
                raise RuntimeError(f"{status.name}: error {int(status)}")

        self._call(checked, shape=shape)

    def _call(self, call: Callable[[], Any], nbytes: int = 0, shape: LaunchShape | None = None) -> Any:
        if self._lost:
            raise CudaKernelError(self._lost)
        try:
            return call()
        except Exception as error:
            raise self._in_words(_one_line(error), nbytes, shape) from None

    def _in_words(self, said: str, nbytes: int, shape: LaunchShape | None) -> CudaError:
        found = re.search(r"CUDA_ERROR_\w+", said)
        name = found[0] if found else ""
        if nbytes and not name:  # cuda-core 1.0 names no error of an allocation: no room, or an earlier kernel failed
            status = self._driver.cuCtxSynchronize()[0]
            name = status.name if int(status) else "CUDA_ERROR_OUT_OF_MEMORY"
            said = f"{name}: {said}"
        if name in _FATAL:
            self._lost = (
                f"a kernel {_FATAL[name]} ({name}), and this process has lost the GPU; restart the notebook's kernel, "
                "then kernel.check[grid, block](...) finds the line in the simulator"
            )
            return CudaKernelError(self._lost)
        if name == "CUDA_ERROR_OUT_OF_MEMORY":
            return CudaError(
                f"out of GPU memory: {nbytes / 2**20:,.1f} MiB do not fit on {self.name}; "
                "free device arrays and tensors (del, torch.cuda.empty_cache()), or use a smaller size"
            )
        if name == "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES" and shape:
            return CudaLaunchError(
                f"too many resources requested for launch: {shape.threads_per_block} threads a block do not fit on an "
                f"SM of {self.name} with this kernel's registers; use fewer (see kernel.resources('{self.arch}'))"
            )
        if shape and name in ("CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE"):
            return CudaLaunchError(f"{self.name} refuses the launch {shape} ({name})")
        return CudaError(f"{self.name}: {said}")


class GpuMemory:
    """A range of a GPU's memory. Freed with its last reference."""

    def __init__(self, gpu: Gpu, buffer: Any, nbytes: int) -> None:
        self._gpu = gpu
        self._buffer = buffer
        self.nbytes = nbytes

    @property
    def address(self) -> int:
        """The address for kernels. Raises CudaError after ``free``."""
        if self._buffer is None:
            raise CudaError("this device memory was freed; allocate it again")
        return int(self._buffer.handle)

    def view(self) -> NDArray[np.uint8]:
        """Return a copy of the bytes, shape (nbytes,); waits for kernels that write them."""
        raw = np.empty(self.nbytes, np.uint8)
        self._gpu.synchronize()
        self._gpu.download(raw, self.address)
        return raw

    def write(self, raw: NDArray[np.uint8]) -> None:
        """Overwrite all bytes."""
        self._gpu.synchronize()
        self._gpu.upload(self.address, np.ascontiguousarray(raw))

    def free(self) -> None:
        """Give the memory back. Freeing twice does nothing."""
        buffer, self._buffer = self._buffer, None
        if buffer is not None:
            buffer.close()


def _torch_device() -> int:
    torch = sys.modules.get("torch")
    return int(torch.cuda.current_device()) if torch is not None and torch.cuda.is_initialized() else 0


def _one_line(error: Exception) -> str:
    return re.sub(r"\s+", " ", f"{error}").strip() or type(error).__name__
