"""One real GPU: memory, modules, launches and times. This is the only module that uses cuda-core.

cuda-core owns the context, streams, events and modules. Three things go to the driver beneath it: a launch, since
cuda-core passes no struct by value, copies between an array and device memory, and waits, which have to end.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlsys_labkit.cuda.errors import CudaError, CudaKernelError, CudaLaunchError
from mlsys_labkit.cuda.nvidia import nvrtc
from mlsys_labkit.cuda.nvidia.gpu_launch import GpuLaunch
from mlsys_labkit.cuda.nvidia.printed import printed_to_sys_stdout
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


_SPIN = "__global__ void spin(long long cycles) { long long start = clock64(); while (clock64() - start < cycles); }"
_SPIN_CYCLES = 20_000_000  # 10 ms at 2 GHz, hundreds of times what Python takes to launch
_FIND_IT = ".check[grid, block](...) names thread and line in the simulator"
_LOST_HERE = (
    "this process has lost the GPU with all tensors on it: restart the notebook's kernel to use them again, although "
    "launches on numpy arrays go on"
)
_LOST_WORKER = "its process was ended with all device arrays, and the next launch starts another"


class Gpu:
    """A GPU and its primary context, the one that torch uses, too.

    Args:
        ordinal: of the GPU; by default torch's, or the first.
        abandoned: None in the notebook's process. In a worker, a function that returns True when the notebook is gone.

    Attributes:
        lost: the reason why this process cannot use the GPU any more; "" while it can.

    Raises CudaError when there is no working GPU or cuda-core is too old, MissingExtraError when it is not installed.
    """

    def __init__(self, ordinal: int | None = None, abandoned: Callable[[], bool] | None = None) -> None:
        self._core = require("cuda.core", "gpu")
        self._driver = require("cuda.bindings.driver", "gpu")
        self._abandoned = abandoned
        self._kernels: dict[tuple[bytes, str], Any] = {}
        self._last = "a kernel"  # the last one that was launched, for messages
        self._unfinished = False  # the wait for it was given up
        self.lost = ""
        if self._core.__version__.startswith("0."):
            raise CudaError(f"cuda-core {self._core.__version__} is too old; run: pip install -U 'mlsys-labkit[gpu]'")
        try:
            self._device = self._core.Device(torch_device() if ordinal is None else ordinal)
            self._device.set_current()
            self.name: str = self._device.name
            self.arch = f"sm_{self._device.arch}"
        except Exception as error:  # cuda-core raises errors of many classes: of its loader, its driver and its checks
            raise CudaError(f"no GPU can be used here: {_one_line(error)}") from None

    def allocate(self, nbytes: int) -> GpuMemory:
        """Return device memory, uninitialised. Raises CudaError when the GPU has no room."""
        buffer = self._call(lambda: self._device.allocate(max(nbytes, 1), stream=self._stream()), nbytes=nbytes)
        return GpuMemory(self, buffer, nbytes)

    def run(self, launch: GpuLaunch, prints: bool = False) -> float:
        """Launch, and wait if the launch says so. Return its seconds, between two events, or NaN if it is not timed.

        Text that the kernel ``prints`` goes to sys.stdout. Raises CudaLaunchError when the launch is refused,
        CudaKernelError when the kernel fails or takes too long.
        """
        with printed_to_sys_stdout() if prints else contextlib.nullcontext():
            return self._run(launch)

    def _run(self, launch: GpuLaunch) -> float:
        if self._unfinished and self._is_busy():
            raise CudaKernelError(self._still_runs("still runs"))
        self._unfinished = False
        kernel, stream = self._loaded(launch.cubin, launch.symbol), self._stream()
        if launch.shape.shared_bytes:
            self._allow_shared(int(kernel.handle), launch.shape.shared_bytes)
        self._last = f"kernel {launch.name}"
        if not launch.timed:
            self._start(kernel, launch)
            if launch.waits:
                self._wait(launch.seconds)
            return float("nan")
        # While it spins, the host queues the rest. Otherwise the first event would be reached before the launch began.
        spin = nvrtc.compile(_SPIN, "spin", self.arch)
        cycles = _SPIN_CYCLES.to_bytes(8, "little")
        spinning = GpuLaunch("spin", spin.cubin, spin.symbol, LaunchShape((1, 1, 1), (1, 1, 1)), cycles, (0,))
        self._start(self._loaded(spin.cubin, spin.symbol), spinning)
        options = self._core.EventOptions(timing_enabled=True)
        start = self._call(lambda: stream.record(options=options))
        self._start(kernel, launch)
        end = self._call(lambda: stream.record(options=options))
        self._wait(launch.seconds)
        return float(end - start) * 1e-3

    def synchronize(self) -> None:
        """Wait for all that was started. Raises CudaKernelError when a kernel failed meanwhile."""
        # cuda-core's Device.sync asks CUDA's runtime, which has other names for the same errors.
        self._driven(lambda: self._driver.cuCtxSynchronize())

    def _loaded(self, cubin: bytes, symbol: str) -> Any:
        """Return a kernel that the next launch need not load first, which could wait for kernels that run."""
        if (cubin, symbol) not in self._kernels:
            kernel = self._call(lambda: self._core.ObjectCode.from_cubin(cubin).get_kernel(symbol))
            status, function = self._driver.cuKernelGetFunction(int(kernel.handle))
            if not int(status) and hasattr(self._driver, "cuFuncLoad"):
                self._driver.cuFuncLoad(function)
            self._kernels[cubin, symbol] = kernel
        return self._kernels[cubin, symbol]

    def _start(self, kernel: Any, launch: GpuLaunch) -> None:
        values = ctypes.create_string_buffer(launch.packed, max(len(launch.packed), 1))
        begin, shape = ctypes.addressof(values), launch.shape
        pointers = (ctypes.c_void_p * max(len(launch.offsets), 1))(*(begin + offset for offset in launch.offsets))
        stream = int(self._stream().handle)
        place = (int(kernel.handle), *shape.grid, *shape.block, shape.shared_bytes, stream, ctypes.addressof(pointers))
        if launch.cooperative:
            self._driven(lambda: self._driver.cuLaunchCooperativeKernel(*place), shape=shape)
        else:
            self._driven(lambda: self._driver.cuLaunchKernel(*place, 0), shape=shape)

    def _wait(self, seconds: float) -> None:
        """Wait by asking, because no signal and no deadline ends the driver's own wait."""
        begin = time.monotonic()
        self._unfinished = True  # also if Ctrl-C ends this
        while self._is_busy():
            waited = time.monotonic() - begin
            if waited > seconds or (self._abandoned and self._abandoned()):
                raise CudaKernelError(self._still_runs(f"still runs after {seconds:g} s"))
            if waited > 1e-3:
                time.sleep(min(waited / 20, 0.02))
        self._unfinished = False
        stream = int(self._stream().handle)
        self._driven(lambda: self._driver.cuStreamSynchronize(stream))  # which also prints what the kernel printed

    def _is_busy(self) -> bool:
        stream, busy = int(self._stream().handle), False

        def ask() -> tuple[Any]:
            nonlocal busy
            status = self._driver.cuStreamQuery(stream)[0]
            busy = status.name == "CUDA_ERROR_NOT_READY"
            return (0 if busy else status,)

        self._driven(ask)
        return busy

    def _still_runs(self, what: str) -> str:
        end = "and only a restart of the notebook's kernel ends it"
        if self._abandoned:  # a worker ends with its kernel
            end = self.lost = _LOST_WORKER
        return f"{self._last} {what}; {end}; .within(seconds) gives a launch more time, and {_FIND_IT}"

    def upload(self, address: int, raw: NDArray[np.uint8]) -> None:
        if raw.nbytes:
            stream = int(self._stream().handle)  # the kernel's: torch's streams do not wait for the default one
            self._driven(lambda: self._driver.cuMemcpyHtoDAsync(address, raw.ctypes.data, raw.nbytes, stream))

    def download(self, raw: NDArray[np.uint8], address: int) -> None:
        if raw.nbytes:
            stream = int(self._stream().handle)
            self._driven(lambda: self._driver.cuMemcpyDtoHAsync(raw.ctypes.data, address, raw.nbytes, stream))
            self._driven(lambda: self._driver.cuStreamSynchronize(stream))

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
        if self.lost:
            raise CudaKernelError(self.lost)
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
            end = _LOST_WORKER if self._abandoned else _LOST_HERE
            self.lost = f"{self._last} {_FATAL[name]} ({name}); {end}; {_FIND_IT}"
            return CudaKernelError(self.lost)
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
        self.gpu = gpu
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
        self.gpu.synchronize()
        self.gpu.download(raw, self.address)
        return raw

    def write(self, raw: NDArray[np.uint8]) -> None:
        """Overwrite all bytes."""
        self.gpu.synchronize()
        self.gpu.upload(self.address, np.ascontiguousarray(raw))

    def free(self) -> None:
        """Give the memory back. Freeing twice does nothing."""
        buffer, self._buffer = self._buffer, None
        if buffer is not None:
            buffer.close()


def torch_device() -> int:
    """Return the number of torch's current GPU, or 0."""
    torch = sys.modules.get("torch")
    return int(torch.cuda.current_device()) if torch is not None and torch.cuda.is_initialized() else 0


def _one_line(error: Exception) -> str:
    return re.sub(r"\s+", " ", f"{error}").strip() or type(error).__name__
