"""A GPU made of host memory: the few names of cuda-core and the driver that the kit uses, and nothing more.

Its kernels are Python functions by symbol. It is as strict as the real thing where tests need it: addresses outside any
allocation, modules that are no cubin, and shared memory nobody opted in to are errors with CUDA's own names.
``test_fake_cuda.py`` holds its surface against the installed packages'.
"""

from __future__ import annotations

import ctypes
import enum
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

Launched = SimpleNamespace
KernelBody = Callable[[Launched], None]


class CUresult(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_ILLEGAL_ADDRESS = 700
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701
    CUDA_ERROR_ASSERT = 710


class CUDAError(Exception):
    """An error as cuda-core raises it: the name, a colon, a sentence."""


class FakeGpu:
    """State shared by the fake packages. ``kernels`` are bodies by symbol; ``launches`` are the launches requested."""

    def __init__(self, kernels: dict[str, KernelBody] | None = None, memory_bytes: int = 1 << 30) -> None:
        self.kernels = kernels or {}
        self.launches: list[Launched] = []
        self.live: dict[int, Any] = {}
        self.memory_bytes = memory_bytes
        self.failing = CUresult.CUDA_SUCCESS  # what every call answers from now on: an error that sticks
        self.next_launch = CUresult.CUDA_SUCCESS
        self.clock_ms = 0.0
        self.handles: dict[int, str] = {}
        self.shared_allowed: dict[int, int] = {}
        self.core = _core(self)
        self.driver = _driver(self)

    def check(self) -> None:
        if self.failing:
            raise CUDAError(f"{self.failing.name}: as the driver explains it")

    def array(self, address: int, dtype: Any, count: int) -> np.ndarray:
        """Return a range of device memory, or raise LookupError where nothing is allocated."""
        nbytes = np.dtype(dtype).itemsize * count
        if not any(start <= address and address + nbytes <= start + len(raw) for start, raw in self.live.items()):
            raise LookupError("outside every allocation")
        return np.frombuffer((ctypes.c_char * nbytes).from_address(address), dtype)


def value(pointers: int, index: int, ctype: Any) -> Any:
    """Return argument ``index`` of a launch, as the driver reads it."""
    table = ctypes.cast(pointers, ctypes.POINTER(ctypes.c_void_p))
    return ctypes.cast(table[index], ctypes.POINTER(ctype)).contents


def _core(gpu: FakeGpu) -> SimpleNamespace:
    class Buffer:
        def __init__(self, size: int) -> None:
            self._raw = (ctypes.c_char * size)()
            self.handle = ctypes.addressof(self._raw)
            gpu.live[self.handle] = self._raw

        def close(self, stream: Any = None) -> None:
            gpu.live.pop(self.handle, None)

        __del__ = close

    class Event:
        def __init__(self) -> None:
            self._at = gpu.clock_ms

        def __sub__(self, other: Event) -> float:
            return self._at - other._at

        def sync(self) -> None:
            gpu.check()

    class EventOptions:
        def __init__(self, timing_enabled: bool | None = False) -> None:
            assert timing_enabled, "an event without timing has no time"

    class Stream:
        def __init__(self, handle: int = 0) -> None:
            self.handle = handle

        @staticmethod
        def from_handle(handle: int) -> Stream:
            return Stream(handle)

        def record(self, event: Any = None, options: EventOptions | None = None) -> Event:
            gpu.check()
            assert options is not None
            return Event()

    class Device:
        name, arch, device_id = "NVIDIA Fake", "90", 0

        def __init__(self, device_id: int | None = None) -> None:
            assert device_id == 0
            self.default_stream = Stream()

        def set_current(self, ctx: Any = None) -> None:
            gpu.check()

        def allocate(self, size: int, *, stream: Stream) -> Buffer:
            gpu.check()
            if sum(map(len, gpu.live.values())) + size > gpu.memory_bytes:
                raise CUDAError("CUDA_ERROR_OUT_OF_MEMORY: unable to allocate enough memory")
            return Buffer(size)

        def sync(self) -> None:
            gpu.check()

    class Kernel:
        def __init__(self, handle: int) -> None:
            self.handle = handle

    class ObjectCode:
        def __init__(self, module: bytes) -> None:
            self._module = module

        @staticmethod
        def from_cubin(module: bytes, *, name: str = "", symbol_mapping: Any = None) -> ObjectCode:
            gpu.check()
            if not module.startswith(b"\x7fELF"):
                raise CUDAError("CUDA_ERROR_INVALID_IMAGE: the device kernel image is invalid")
            return ObjectCode(module)

        def get_kernel(self, name: str) -> Kernel:
            if name.encode() not in self._module:
                raise CUDAError("CUDA_ERROR_NOT_FOUND: named symbol not found")
            handle = 0x1000 + len(gpu.handles)
            gpu.handles[handle] = name
            return Kernel(handle)

    return SimpleNamespace(
        Buffer=Buffer,
        Device=Device,
        Event=Event,
        EventOptions=EventOptions,
        Kernel=Kernel,
        ObjectCode=ObjectCode,
        Stream=Stream,
    )


def _driver(gpu: FakeGpu) -> SimpleNamespace:
    attribute = SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8)

    def copy(to: int, source: int, device: int, count: int) -> tuple[CUresult]:
        if gpu.failing:
            return (gpu.failing,)
        try:
            gpu.array(device, np.uint8, count)
        except LookupError:
            return (CUresult.CUDA_ERROR_INVALID_VALUE,)
        ctypes.memmove(to, source, count)
        return (CUresult.CUDA_SUCCESS,)

    def cuMemcpyHtoD(dstDevice: int, srcHost: int, ByteCount: int) -> tuple[CUresult]:
        return copy(dstDevice, srcHost, dstDevice, ByteCount)

    def cuMemcpyDtoH(dstHost: int, srcDevice: int, ByteCount: int) -> tuple[CUresult]:
        return copy(dstHost, srcDevice, srcDevice, ByteCount)

    def cuKernelSetAttribute(attrib: int, val: int, kernel: int, dev: int) -> tuple[CUresult]:
        assert attrib == 8
        gpu.shared_allowed[kernel] = val
        return (CUresult.CUDA_SUCCESS,)

    def launch(kernel: int, grid: Any, block: Any, shared: int, stream: int, pointers: int, cooperative: bool) -> Any:
        if gpu.failing:
            return (gpu.failing,)
        if gpu.next_launch:
            status, gpu.next_launch = gpu.next_launch, CUresult.CUDA_SUCCESS
            return (status,)
        if shared > gpu.shared_allowed.get(kernel, 48 << 10):
            return (CUresult.CUDA_ERROR_INVALID_VALUE,)
        launched = SimpleNamespace(
            symbol=gpu.handles[kernel],
            grid=grid,
            block=block,
            shared=shared,
            stream=stream,
            cooperative=cooperative,
            argument=lambda index, ctype: value(pointers, index, ctype),
            gpu=gpu,
        )
        gpu.launches.append(launched)
        gpu.clock_ms += 1.5
        try:
            gpu.kernels[launched.symbol](launched)
        except LookupError:
            gpu.failing = CUresult.CUDA_ERROR_ILLEGAL_ADDRESS  # asynchronous: the next call returns it
        return (CUresult.CUDA_SUCCESS,)

    def cuLaunchKernel(
        f: int, gridDimX: int, gridDimY: int, gridDimZ: int, blockDimX: int, blockDimY: int, blockDimZ: int,
        sharedMemBytes: int, hStream: int, kernelParams: int, extra: int,
    ) -> tuple[CUresult]:  # fmt: skip
        grid, block = (gridDimX, gridDimY, gridDimZ), (blockDimX, blockDimY, blockDimZ)
        return launch(f, grid, block, sharedMemBytes, hStream, kernelParams, False)

    def cuLaunchCooperativeKernel(
        f: int, gridDimX: int, gridDimY: int, gridDimZ: int, blockDimX: int, blockDimY: int, blockDimZ: int,
        sharedMemBytes: int, hStream: int, kernelParams: int,
    ) -> tuple[CUresult]:  # fmt: skip
        grid, block = (gridDimX, gridDimY, gridDimZ), (blockDimX, blockDimY, blockDimZ)
        return launch(f, grid, block, sharedMemBytes, hStream, kernelParams, True)

    return SimpleNamespace(
        CUfunction_attribute=attribute,
        cuMemcpyHtoD=cuMemcpyHtoD,
        cuMemcpyDtoH=cuMemcpyDtoH,
        cuLaunchKernel=cuLaunchKernel,
        cuLaunchCooperativeKernel=cuLaunchCooperativeKernel,
        cuKernelSetAttribute=cuKernelSetAttribute,
    )
