"""``Kernel``: a compiled kernel that is launched, profiled and checked from Python."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from mlsys_labkit.cuda.errors import CudaLaunchError
from mlsys_labkit.cuda.finding import KernelFinding
from mlsys_labkit.cuda.kernel.arguments.parameters import Parameter, signature
from mlsys_labkit.cuda.profile import Profile
from mlsys_labkit.cuda.shape import LaunchShape, launch_shape

if TYPE_CHECKING:
    from mlsys_labkit.cuda.nvidia.nvrtc import CompiledSource
    from mlsys_labkit.cuda.nvidia.resources import Resources
    from mlsys_labkit.cuda.time_model.time_estimate import TimeEstimate

Result = TypeVar("Result", covariant=True)


@dataclass(frozen=True)
class LaunchOptions:
    """Settings of a launch besides its shape.

    Attributes:
        seed: another order of warps and lanes; 0 is the natural one.
        sample_blocks: how many blocks to run, evenly spread over the grid; 0 for all.
        seconds: after which the launch is stopped; None for the usual time.
    """

    seed: int = 0
    sample_blocks: int = 0
    seconds: float | None = None


class Backend(Protocol):
    """The place where kernel ``index`` of a source runs: the simulator, or a GPU."""

    name: str

    def parameters(self, index: int) -> tuple[Parameter, ...]: ...

    def static_shared_bytes(self, index: int) -> int: ...

    def run(self, index: int, shape: LaunchShape, arguments: tuple[Any, ...], options: LaunchOptions) -> None: ...

    def profile(
        self, index: int, shape: LaunchShape, arguments: tuple[Any, ...], options: LaunchOptions
    ) -> Profile: ...

    def check(
        self, index: int, shape: LaunchShape, arguments: tuple[Any, ...], options: LaunchOptions
    ) -> list[KernelFinding]: ...


class Launcher(Generic[Result]):
    """The object before ``[grid, block]``: ``kernel.profile``, ``kernel.check``, ``kernel.seeded(7)``."""

    def __init__(
        self,
        kernel: Kernel,
        run: Callable[[LaunchShape, tuple[Any, ...], LaunchOptions], Result],
        options: LaunchOptions,
    ) -> None:
        self._kernel = kernel
        self._run = run
        self._options = options

    def __getitem__(self, key: Any) -> Callable[..., Result]:
        shape = self._kernel._shape(key)

        def launch(*arguments: Any) -> Result:
            return self._run(shape, arguments, self._options)

        return launch

    def seeded(self, seed: int) -> Launcher[Result]:
        """Return a launcher that runs warps and lanes in another order, the same for the same seed.

        Results that depend on the order then differ.
        """
        return Launcher(self._kernel, self._run, replace(self._options, seed=_positive("seed", seed)))

    def sampled(self, blocks: int) -> Launcher[Result]:
        """Return a launcher that runs only so many blocks, evenly spread over the grid.

        The result has the number that ran and the number of the grid.
        """
        return Launcher(self._kernel, self._run, replace(self._options, sample_blocks=_positive("blocks", blocks)))

    def within(self, seconds: float) -> Launcher[Result]:
        """Return a launcher that stops the launch after so many seconds."""
        if not seconds > 0:
            raise CudaLaunchError(f"a launch is given more than 0 seconds; got {seconds!r}")
        return Launcher(self._kernel, self._run, replace(self._options, seconds=float(seconds)))

    def __call__(self, *arguments: Any) -> Result:
        raise CudaLaunchError(
            f"say how many threads: {self._kernel.name}[grid, block](...), also for .profile and .check"
        )


class Kernel:
    """One kernel of a compiled source. ``mlsys_labkit.cuda.compile`` makes it.

    Attributes:
        name: as the source calls it, such as ``"matmul<16>"``.
        source: the text that was compiled.
        backend: ``"simulator"`` or ``"gpu"``.

    Example:
        >>> import numpy as np
        >>> from mlsys_labkit import cuda
        >>> double = cuda.compile("__global__ void twice(float* x) { x[threadIdx.x] *= 2; }")
        >>> x = np.arange(4, dtype=np.float32)
        >>> double[1, 4](x)
        >>> x
        array([0., 2., 4., 6.], dtype=float32)
        >>> double.check[1, 8](x)[0].kind
        'out_of_bounds'

    Reference: CUDA C++ programming guide, "Kernels" and "Execution configuration".
    """

    def __init__(
        self,
        name: str,
        source: str,
        backend: Backend,
        index: int,
        defines: tuple[tuple[str, str], ...],
        folder: Path | None = None,
    ) -> None:
        self.name = name
        self.source = source
        self._backend = backend
        self._index = index
        self._defines = defines
        self._folder = folder

    @property
    def backend(self) -> str:
        return self._backend.name

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """Names and types, as the compiler sees them."""
        return self._backend.parameters(self._index)

    @property
    def signature(self) -> str:
        """The kernel as its declaration would show it."""
        return signature(self.name, self.parameters)

    def __getitem__(self, key: Any) -> Callable[..., None]:
        """Return a function that launches: ``kernel[grid, block](...)`` or ``kernel[grid, block, shared_bytes](...)``.

        numpy arrays and torch tensors are copied in, and back where the kernel's pointer is not const.

        Raises CudaLaunchError, CudaArgumentError, and CudaKernelError with findings when the kernel fails.
        """
        return self._plain[key]

    def __call__(self, *arguments: Any) -> None:
        self._plain(*arguments)

    def seeded(self, seed: int) -> Launcher[None]:
        """Return plain launches with another order of warps and lanes, always in the simulator: a GPU has its own."""
        return self._plain.seeded(seed)

    def within(self, seconds: float) -> Launcher[None]:
        """Return plain launches that are stopped after so many seconds."""
        return self._plain.within(seconds)

    @property
    def profile(self) -> Launcher[Profile]:
        """``kernel.profile[grid, block](...)``: run it and count what it does to memory. Always on the simulator."""
        return Launcher(self, lambda *launch: self._backend.profile(self._index, *launch), LaunchOptions())

    @property
    def check(self) -> Launcher[list[KernelFinding]]:
        """``kernel.check[grid, block](...)``: run it and report races, accesses out of bounds, and similar errors."""
        return Launcher(self, lambda *launch: self._backend.check(self._index, *launch), LaunchOptions())

    @property
    def _plain(self) -> Launcher[None]:
        return Launcher(self, lambda *launch: self._backend.run(self._index, *launch), LaunchOptions())

    def resources(self, architecture: str = "sm_90") -> Resources:
        """Return registers, spills and shared memory, from NVIDIA's own compiler; no GPU is needed.

        Raises CudaCompileError, CudaError for an unknown ``architecture``, MissingExtraError when NVRTC is not
        installed.
        """
        from mlsys_labkit.cuda.nvidia.resources import resources

        return resources(self._compiled(architecture), self.name)

    def ptx(self, architecture: str = "sm_90") -> str:
        """Return the kernel in NVIDIA's virtual assembly language. Raises as ``resources`` does."""
        return self._compiled(architecture).ptx

    def sass(self, architecture: str = "sm_90") -> str:
        """Return the kernel in the GPU's own machine language. Raises as ``resources`` does."""
        from mlsys_labkit.cuda.nvidia.ptxas import disassemble

        compiled = self._compiled(architecture)
        return disassemble(compiled.cubin, compiled.symbol)

    def model(self, gpu: str) -> Launcher[TimeEstimate]:
        """``kernel.model("h100-sxm")[grid, block](...)``: estimate the launch's time on a GPU. A model, no measurement.

        The launch is profiled in the simulator on copies of its arrays; ``.sampled(4)`` profiles four blocks of it.

        Raises CudaError for a GPU without a model, and what ``profile`` raises.

        Example:
            >>> import numpy as np
            >>> from mlsys_labkit import cuda
            >>> double = cuda.compile("__global__ void twice(float* x) { x[threadIdx.x] *= 2; }")
            >>> double.model("h100-sxm")[1, 32](np.ones(32, np.float32)).bound
            'latency'
        """
        from mlsys_labkit.cuda.time_model import gpus, launch

        machine = gpus.modelled(gpu)

        def run(shape: LaunchShape, arguments: tuple[Any, ...], options: LaunchOptions) -> TimeEstimate:
            def profile(blocks: int) -> Profile:
                chosen = replace(options, sample_blocks=blocks or options.sample_blocks)
                return self._backend.profile(self._index, shape, launch.copies(arguments), chosen)

            def compiled(architecture: str) -> CompiledSource:
                return self._compiled(architecture, ("--generate-line-info",))

            static = self._backend.static_shared_bytes(self._index)
            return launch.estimate_launch(profile, compiled, arguments, machine, static)

        return Launcher(self, run, LaunchOptions())

    def _compiled(self, architecture: str, options: tuple[str, ...] = ()) -> CompiledSource:
        from mlsys_labkit.cuda.nvidia.nvrtc import compile

        defines = dict(self._defines)
        return compile(self.source, self.name, architecture, defines=defines, options=options, folder=self._folder)

    def _shape(self, key: Any) -> LaunchShape:
        return launch_shape(key, self._backend.static_shared_bytes(self._index))

    def __repr__(self) -> str:
        return f"<kernel {self.name} on the {'GPU' if self.backend == 'gpu' else self.backend}>"


def _positive(what: str, number: int) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise CudaLaunchError(f"{what} is a whole number from 1; got {number!r}")
    return number
