"""The simulator as a kernel's backend: two builds of a source, each compiled when it is first needed.

Only the worker loads them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlsys_labkit.cuda.cache import Cache
from mlsys_labkit.cuda.errors import CudaCompileError, CudaKernelError
from mlsys_labkit.cuda.finding import KernelFinding
from mlsys_labkit.cuda.kernel.arguments.binding import bind
from mlsys_labkit.cuda.kernel.arguments.parameters import Parameter, read_parameters
from mlsys_labkit.cuda.kernel.backends.unrecorded_stores import unrecorded_stores
from mlsys_labkit.cuda.kernel.backends.variables import KeptVariables
from mlsys_labkit.cuda.kernel.gcc.flags import Build
from mlsys_labkit.cuda.kernel.gcc.lines import LineTable
from mlsys_labkit.cuda.kernel.gcc.module import CompiledModule, compile_module
from mlsys_labkit.cuda.kernel.gcc.symbols import is_called, shared_arrays
from mlsys_labkit.cuda.kernel.gcc.toolchain import Toolchain, find_toolchain
from mlsys_labkit.cuda.kernel.gcc.unit import Unit
from mlsys_labkit.cuda.kernel.kernel import LaunchOptions
from mlsys_labkit.cuda.kernel.simulator import runtime
from mlsys_labkit.cuda.kernel.simulator.client import LaunchRequest, LaunchResult, LoadedModule, Mode, Simulator
from mlsys_labkit.cuda.kernel.simulator.decode import LaunchContext, NamedRange, decode_profile
from mlsys_labkit.cuda.kernel.simulator.explain import decode_findings
from mlsys_labkit.cuda.kernel.unset_findings import unset_findings, with_unset
from mlsys_labkit.cuda.profile import Profile
from mlsys_labkit.cuda.shape import LaunchShape
from mlsys_labkit.cuda.source.volatile import has_volatile_accesses
from mlsys_labkit.cuda.time_limits import launch_seconds

_PLAIN = LaunchOptions()
MOST_STATIC_BYTES = 48 << 10
_LOOK_SECONDS = 60.0  # between two checks that kernel.so is still in the cache; a check also counts as a use


@dataclass
class _Loaded:
    """One build of a module in the worker."""

    compiled: CompiledModule
    module: LoadedModule
    simulator: Simulator
    looked: float

    @cached_property
    def lines(self) -> LineTable:
        return LineTable(self.compiled.path, self.compiled.unit.name)


def first_build(unit: Unit) -> Build:
    """Return the build whose compilation raises what is wrong with the source.

    A graded kernel is checked and profiled, and hardly ever launched plainly.
    """
    return Build.INSTRUMENTED if unit.graded else Build.FAST


class SimulatedModule:
    """The backend that runs the kernels of one source on the simulator; a build is compiled when it is first used."""

    name = "simulator"

    def __init__(self, unit: Unit, parameter_texts: Sequence[str]) -> None:
        self._toolchain: Toolchain = find_toolchain()
        self._cache = Cache()
        self._parameter_texts = parameter_texts
        self._builds: dict[Build, _Loaded] = {}
        self._variables: KeptVariables | None = None
        self._read: dict[int, tuple[Parameter, ...]] = {}
        self._first = first_build(unit)
        first = compile_module(unit, self._first, self._toolchain, self._cache, beside=runtime.worker)
        self.unit = first.unit
        self._plain = Build.INSTRUMENTED if has_volatile_accesses(self.unit.source) else Build.FAST
        self._shared_arrays = shared_arrays(first.path)
        self._static_bytes: dict[int, int] = {}
        self._check_static_shared()

    def parameters(self, index: int) -> tuple[Parameter, ...]:
        """Return the parameters of kernel ``index``, for which the module is loaded."""
        return self._parameters(self._loaded(self._first), index)

    def static_shared_bytes(self, index: int) -> int:
        """Return the bytes of the ``__shared__`` arrays of kernel ``index``, and of those at file scope."""
        if index not in self._static_bytes:
            self._static_bytes[index] = sum(
                array.nbytes
                for array in self._shared_arrays
                if not array.function or is_called(array.function, self.unit.kernels[index])
            )
        return self._static_bytes[index]

    def _check_static_shared(self) -> None:
        for index, kernel in enumerate(self.unit.kernels):
            nbytes = self.static_shared_bytes(index)
            if nbytes > MOST_STATIC_BYTES:
                raise CudaCompileError(
                    f"{kernel} uses too much shared data: its __shared__ arrays have {nbytes:,} bytes and "
                    f"{MOST_STATIC_BYTES:,} are allowed (48 KiB); use smaller tiles, or extern __shared__"
                )

    def run(self, index: int, shape: LaunchShape, arguments: tuple[Any, ...], options: LaunchOptions) -> None:
        result, context = self.launch(index, shape, arguments, "run", options)
        if result.findings:
            raise _failure(decode_findings(result, context()))

    def profile(self, index: int, shape: LaunchShape, arguments: tuple[Any, ...], options: LaunchOptions) -> Profile:
        result, context = self.launch(index, shape, arguments, "profile", options)
        if result.findings:
            raise _failure(decode_findings(result, context()))
        return decode_profile(result, context())

    def check(
        self, index: int, shape: LaunchShape, arguments: tuple[Any, ...], options: LaunchOptions
    ) -> list[KernelFinding]:
        result, context = self.launch(index, shape, arguments, "check", options)
        unset = unset_findings(self.unit.source.text, [self.unit.kernels[index]])
        return with_unset(unset, decode_findings(result, context()) if result.findings else [])

    def launch(
        self,
        index: int,
        shape: LaunchShape,
        values: Sequence[Any],
        mode: Mode = "run",
        options: LaunchOptions = _PLAIN,
    ) -> tuple[LaunchResult, Callable[[], LaunchContext]]:
        """Run kernel ``index`` and copy back what it wrote. The second value is what the records are decoded with."""
        loaded = self._loaded(self._plain if mode == "run" else Build.INSTRUMENTED)
        name = self.unit.kernels[index]
        bound = bind(name, self._parameters(loaded, index), values, loaded.simulator.allocate)
        witnessed = self.unit.graded and mode == "profile"
        try:
            before = _contents(loaded.simulator, bound.arrays) if witnessed else {}
            result = loaded.simulator.launch(
                LaunchRequest(
                    module=loaded.module,
                    kernel_index=index,
                    grid=shape.grid,
                    block=shape.block,
                    packed_arguments=bound.packed,
                    argument_offsets=bound.offsets,
                    shared_bytes=shape.shared_bytes,
                    mode=mode,
                    seed=options.seed,
                    sample_blocks=options.sample_blocks,
                    timeout_s=launch_seconds() if options.seconds is None else options.seconds,
                )
            )
            # A fault ends the kernel between a store and its record, and the caller reports the fault.
            if witnessed and not result.findings:
                after = _contents(loaded.simulator, bound.arrays)
                if hidden := unrecorded_stores(result, before, after):
                    raise _failure(hidden)
            bound.copy_back()
        finally:
            bound.release()
        return result, partial(self._context, loaded, name, shape, bound.arrays)

    def _context(self, loaded: _Loaded, name: str, shape: LaunchShape, arrays: tuple[NamedRange, ...]) -> LaunchContext:
        return LaunchContext(
            kernel=name,
            source=self.unit.source.text,
            grid=shape.grid,
            block=shape.block,
            shared_bytes=shape.shared_bytes,
            lines=loaded.lines,
            arrays=arrays,
        )

    def _parameters(self, loaded: _Loaded, index: int) -> tuple[Parameter, ...]:
        if index not in self._read:
            self._read[index] = read_parameters(loaded.module.descriptors[index], self._parameter_texts[index])
        return self._read[index]

    def _loaded(self, build: Build) -> _Loaded:
        simulator = Simulator.current()
        loaded = self._builds.get(build)
        if loaded and loaded.simulator is simulator and time.monotonic() - loaded.looked < _LOOK_SECONDS:
            return loaded
        compiled = compile_module(self.unit, build, self._toolchain, self._cache)
        if loaded and loaded.simulator is simulator:
            loaded.looked = time.monotonic()
            return loaded
        if self._variables is None or self._variables.simulator is not simulator:
            self._variables = KeptVariables(simulator, compiled.path)
        module = simulator.load(compiled.path, self.unit.graded, self._variables.of(compiled.path))
        loaded = _Loaded(compiled, module, simulator, time.monotonic())
        self._builds[build] = loaded
        return loaded


def _contents(simulator: Simulator, arrays: Sequence[NamedRange]) -> dict[NamedRange, NDArray[np.uint8]]:
    offsets = {array: array.begin - simulator.arena_address for array in arrays}
    return {array: simulator.view(offset, array.end - array.begin).copy() for array, offset in offsets.items()}


def _failure(findings: list[KernelFinding]) -> CudaKernelError:
    return CudaKernelError("\n".join(map(str, findings)), tuple(findings))
