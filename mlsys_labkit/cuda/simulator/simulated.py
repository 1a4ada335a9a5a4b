"""A compiled source on the simulator: its two builds, each compiled when it is first needed, loaded in the worker alone."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mlsys_labkit.cuda import arguments
from mlsys_labkit.cuda.build.cache import Cache
from mlsys_labkit.cuda.build.flags import Build
from mlsys_labkit.cuda.build.lines import LineTable
from mlsys_labkit.cuda.build.module import CompiledModule, compile_module
from mlsys_labkit.cuda.build.symbols import SharedArray, read_symbols, shared_arrays
from mlsys_labkit.cuda.build.toolchain import Toolchain, find_toolchain
from mlsys_labkit.cuda.build.unit import Unit
from mlsys_labkit.cuda.parameters import Parameter, read_parameters
from mlsys_labkit.cuda.shape import LaunchShape
from mlsys_labkit.cuda.simulator import runtime
from mlsys_labkit.cuda.simulator.client import LaunchRequest, LaunchResult, LoadedModule, Mode, Simulator
from mlsys_labkit.cuda.simulator.launched import Launched
from mlsys_labkit.cuda.source.shared import SYMBOL

__all__ = ["SimulatedModule", "launch_seconds"]

_LOOK_SECONDS = 60.0  # the cache is asked so often whether a kernel.so is still there, which also keeps it there


def launch_seconds() -> float:
    """How long a launch may take: 20 s, or ``LABKIT_CUDA_SECONDS``."""
    return float(os.environ.get("LABKIT_CUDA_SECONDS", "20"))


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

    @cached_property
    def shared_arrays(self) -> tuple[SharedArray, ...]:
        return shared_arrays(self.compiled.path)

    @cached_property
    def dynamic_shared_offset(self) -> int:
        return next(symbol.value for symbol in read_symbols(self.compiled.path) if symbol.name == SYMBOL)


class SimulatedModule:
    """The kernels of one source. Compiling the fast build raises what is wrong with the source."""

    def __init__(self, unit: Unit, parameter_texts: Sequence[str]) -> None:
        self._toolchain: Toolchain = find_toolchain()
        self._cache = Cache()
        self._parameter_texts = parameter_texts
        self._builds: dict[Build, _Loaded] = {}
        self._fast = compile_module(unit, Build.FAST, self._toolchain, self._cache, beside=runtime.worker)
        self.unit = self._fast.unit

    def parameters(self, index: int) -> tuple[Parameter, ...]:
        """Of kernel ``index``; loads the module to ask it."""
        return self._parameters(self._loaded(Build.FAST), index)

    def launch(
        self,
        index: int,
        shape: LaunchShape,
        values: Sequence[Any],
        mode: Mode = "run",
        seed: int = 0,
        sample_blocks: int = 0,
        seconds: float | None = None,
    ) -> tuple[LaunchResult, Launched]:
        """Run kernel ``index`` to its end and bring back what it wrote."""
        loaded = self._loaded(Build.FAST if mode == "run" else Build.INSTRUMENTED)
        name = self.unit.kernels[index]
        bound = arguments.bind(name, self._parameters(loaded, index), values, loaded.simulator.allocate)
        try:
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
                    seed=seed,
                    sample_blocks=sample_blocks,
                    timeout_s=launch_seconds() if seconds is None else seconds,
                    cooperative=True,
                )
            )
            bound.copy_back()
        finally:
            bound.release()
        launched = Launched(
            kernel=name,
            source=self.unit.source,
            shape=shape,
            load_address=loaded.module.text_address,
            lines=loaded.lines,
            shared_arrays=loaded.shared_arrays if mode != "run" or result.findings else (),
            dynamic_shared_offset=loaded.dynamic_shared_offset if mode != "run" or result.findings else 0,
            arrays=bound.arrays,
        )
        return result, launched

    def _parameters(self, loaded: _Loaded, index: int) -> tuple[Parameter, ...]:
        text = self._parameter_texts[index] if index < len(self._parameter_texts) else ""
        return read_parameters(loaded.module.descriptors[index], text)

    def _loaded(self, build: Build) -> _Loaded:
        simulator = Simulator.current()
        loaded = self._builds.get(build)
        if loaded and loaded.simulator is simulator and time.monotonic() - loaded.looked < _LOOK_SECONDS:
            return loaded
        compiled = compile_module(self.unit, build, self._toolchain, self._cache)
        if loaded and loaded.simulator is simulator:
            loaded.looked = time.monotonic()
            return loaded
        loaded = _Loaded(compiled, simulator.load(compiled.path), simulator, time.monotonic())
        self._builds[build] = loaded
        return loaded
