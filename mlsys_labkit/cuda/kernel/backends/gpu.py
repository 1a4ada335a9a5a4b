"""A real GPU as a kernel's backend: the same source through NVRTC, launched, timed, its errors in plain words.

The simulator provides what a GPU cannot (sectors, bank conflicts, races), for a part of the grid. A worker process
launches (``nvidia.gpu_worker``), and the notebook's process where torch's tensors on the GPU are arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlsys_labkit.cuda.errors import CudaArgumentError, CudaLaunchError
from mlsys_labkit.cuda.finding import KernelFinding
from mlsys_labkit.cuda.kernel.arguments.binding import bind
from mlsys_labkit.cuda.kernel.arguments.device_array import DeviceArray
from mlsys_labkit.cuda.kernel.arguments.elements import check_elements
from mlsys_labkit.cuda.kernel.arguments.parameters import Parameter
from mlsys_labkit.cuda.kernel.kernel import Backend, LaunchOptions
from mlsys_labkit.cuda.nvidia import nvrtc
from mlsys_labkit.cuda.nvidia.device import gpu_of_torch, the_gpu
from mlsys_labkit.cuda.nvidia.driver import Gpu, GpuMemory
from mlsys_labkit.cuda.nvidia.gpu_launch import GpuLaunch
from mlsys_labkit.cuda.nvidia.gpu_worker import WorkerGpu, WorkerMemory
from mlsys_labkit.cuda.nvidia.occupancy import LIMITS, limits_of
from mlsys_labkit.cuda.profile import Profile
from mlsys_labkit.cuda.shape import LaunchShape
from mlsys_labkit.cuda.source.source import Source
from mlsys_labkit.cuda.time_limits import launch_seconds
from mlsys_labkit.timing.clock import is_queueing

PROFILED_BLOCKS = 256  # of a large grid: they usually include every kind of block, and take seconds instead of hours
_GRID_WORDS = ("this_grid", "grid_group")  # their use requires a cooperative launch, with all blocks resident at once


class GpuBackend:
    """A backend that runs the kernels of one source on a GPU.

    Args:
        names: the kernels, by index. simulator: the same kernels there, for profile, check and signatures.
        folder: where ``#include "..."`` looks.
        gpu: ``the_gpu()`` unless a test stands in for one.
    """

    name = "gpu"

    def __init__(
        self,
        source: Source,
        names: Sequence[str],
        defines: Mapping[str, object],
        simulator: Backend,
        folder: Path | None = None,
        gpu: WorkerGpu | Gpu | None = None,
    ) -> None:
        self._source = source
        self._names = tuple(names)
        self._defines = dict(defines)
        self._simulator = simulator
        self._folder = folder
        self._gpu = gpu or the_gpu()
        self._kernels: dict[int, nvrtc.CompiledSource] = {}
        words = {token.text for token in source.code}
        self._syncs_grid = not words.isdisjoint(_GRID_WORDS)
        self._prints = "printf" in words
        for index in range(len(self._names)):
            self._kernel(index)  # NVIDIA's compiler reports its errors when the source is compiled

    def parameters(self, index: int) -> tuple[Parameter, ...]:
        return self._simulator.parameters(index)

    def static_shared_bytes(self, index: int) -> int:
        return self._simulator.static_shared_bytes(index)

    def run(self, index: int, shape: LaunchShape, arguments: tuple[Any, ...], options: LaunchOptions) -> None:
        """Launch and wait for the end, unless ``lk.bench`` times the launch; a ``seeded`` one runs in the simulator."""
        if options.seed or options.sample_blocks:
            copies, bring_back = on_host(arguments)
            self._simulator.run(index, shape, copies, options)
            bring_back()
        else:
            self._launch(index, shape, arguments, options, timed=False)

    def profile(self, index: int, shape: LaunchShape, arguments: tuple[Any, ...], options: LaunchOptions) -> Profile:
        """Profile some blocks on copies in the simulator; then run and time the launch itself on the GPU."""
        blocks = options.sample_blocks or (PROFILED_BLOCKS if shape.blocks > PROFILED_BLOCKS else 0)
        copies, _ = on_host(arguments)
        profile = self._simulator.profile(index, shape, copies, replace(options, sample_blocks=blocks))
        seconds = self._launch(index, shape, arguments, options, timed=True)
        return replace(profile, gpu=self._gpu.name, gpu_seconds=seconds)

    def check(
        self, index: int, shape: LaunchShape, arguments: tuple[Any, ...], options: LaunchOptions
    ) -> list[KernelFinding]:
        """Check the launch in the simulator, whose results are copied back to the arrays."""
        copies, bring_back = on_host(arguments)
        found = self._simulator.check(index, shape, copies, options)
        bring_back()
        return found

    def _launch(
        self, index: int, shape: LaunchShape, arguments: tuple[Any, ...], options: LaunchOptions, timed: bool
    ) -> float:
        self._check_shape(index, shape)
        name, parameters = self._names[index], self.parameters(index)
        of_torch = any(_is_torch(one) and one.is_cuda for one in arguments)
        gpu = gpu_of_torch() if of_torch else self._gpu
        staged: list[_Staged] = []

        def allocate(nbytes: int) -> Any:
            staged.append(_Staged(gpu.allocate(nbytes)))
            return staged[-1]

        # An array that another process of the GPU has: copied in and out like an array of the notebook.
        elsewhere = {one: one.numpy() for one in arguments if isinstance(one, DeviceArray) and not one.lies_on(gpu)}
        values = tuple(elsewhere.get(one, one) if isinstance(one, DeviceArray) else one for one in arguments)
        if len(arguments) == len(parameters):
            pairs = zip(parameters, values, strict=True)
            values = tuple(_address(name, number, *pair) for number, pair in enumerate(pairs, start=1))
        try:
            bound = bind(name, parameters, values, allocate)
            for one in staged:
                gpu.upload(one.address, one.staging)
            compiled = self._kernel(index)
            launch = GpuLaunch(
                name=name,
                cubin=compiled.cubin,
                symbol=compiled.symbol,
                shape=shape,
                packed=bound.packed,
                offsets=bound.offsets,
                cooperative=self._syncs_grid,
                timed=timed,
                waits=bool(staged) or self._prints or not (of_torch and is_queueing()),
                seconds=launch_seconds() if options.seconds is None else options.seconds,
            )
            seconds = gpu.run(launch, self._prints)
            for one in staged:
                gpu.download(one.staging, one.address)
            bound.copy_back()
            for array, copy in elsewhere.items():
                array.copy_from(copy)
        finally:
            for one in staged:
                one.free()
        return seconds

    def _kernel(self, index: int) -> nvrtc.CompiledSource:
        if index not in self._kernels:
            self._kernels[index] = nvrtc.compile(
                self._source.text,
                self._names[index],
                self._gpu.arch,
                defines=self._defines,
                options=("--generate-line-info",),  # for NVIDIA's profilers
                folder=self._folder,
            )
        return self._kernels[index]

    def _check_shape(self, index: int, shape: LaunchShape) -> None:
        if self._gpu.arch not in LIMITS:
            return
        most = limits_of(self._gpu.arch).shared_per_block
        wanted = shape.shared_bytes + self.static_shared_bytes(index)
        if wanted > most:
            raise CudaLaunchError(
                f"invalid argument: a block asks for {wanted:,} bytes of shared memory, and {self._gpu.name} "
                f"({self._gpu.arch}) has {most:,} for one; use a smaller tile"
            )


class _Staged:
    """Device memory and the host's copy of it, with the interface of shared memory that ``bind`` expects."""

    def __init__(self, memory: WorkerMemory | GpuMemory) -> None:
        self._memory = memory
        self.staging = np.empty(memory.nbytes, np.uint8)

    @property
    def address(self) -> int:
        return self._memory.address

    def view(self) -> NDArray[np.uint8]:
        return self.staging

    def free(self) -> None:
        self._memory.free()


def on_host(arguments: Sequence[Any]) -> tuple[tuple[Any, ...], Callable[[], None]]:
    """Return copies for the simulator, and a function that copies them back.

    An array that is passed twice is copied once.
    """
    copies: dict[int, Any] = {}
    for argument in arguments:
        if id(argument) in copies:
            continue
        if isinstance(argument, DeviceArray):
            copies[id(argument)] = argument.numpy()
        elif _is_torch(argument):
            copies[id(argument)] = argument.detach().cpu().clone()
        else:
            copies[id(argument)] = argument.copy() if isinstance(argument, np.ndarray) else argument

    def bring_back() -> None:
        for argument in arguments:
            copy = copies[id(argument)]
            if isinstance(argument, DeviceArray):
                argument.copy_from(copy)
            elif _is_torch(argument):
                argument.detach().copy_(copy)
            elif isinstance(argument, np.ndarray) and argument.flags.writeable:
                np.copyto(argument, copy)

    return tuple(copies[id(argument)] for argument in arguments), bring_back


def _address(kernel: str, number: int, parameter: Parameter, argument: Any) -> Any:
    """Return the address of an array that is on the GPU already; return host arrays and numbers as they are."""
    label = f"argument {number}" + (f" ({parameter.name})" if parameter.name else "") + f" of {kernel}"
    if isinstance(argument, DeviceArray):
        check_elements(label, parameter, argument.dtype, argument.nbytes)
        return argument.address
    if not _is_torch(argument) or not argument.is_cuda or parameter.kind != "pointer":
        return argument
    if not argument.is_contiguous():
        raise CudaArgumentError(
            f"{label} has shape {tuple(argument.shape)} and strides {argument.stride()}: its elements are not in a "
            "row, as the kernel's pointer says; pass tensor.contiguous()"
        )
    element = str(argument.dtype).removeprefix("torch.")
    dtype = element if element == "bfloat16" else np.dtype(element)
    check_elements(label, parameter, dtype, argument.numel() * argument.element_size())
    return int(argument.data_ptr())


def _is_torch(argument: Any) -> bool:
    return type(argument).__module__.split(".")[0] == "torch" and hasattr(argument, "data_ptr")
