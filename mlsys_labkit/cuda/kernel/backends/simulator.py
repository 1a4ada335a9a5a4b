"""The simulator as a kernel's backend: a plain launch, a profile, a check."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlsys_labkit.cuda.errors import CudaKernelError
from mlsys_labkit.cuda.finding import KernelFinding
from mlsys_labkit.cuda.kernel.arguments.parameters import Parameter
from mlsys_labkit.cuda.kernel.backends.module import SimulatedModule
from mlsys_labkit.cuda.kernel.kernel import LaunchOptions
from mlsys_labkit.cuda.kernel.simulator.client import LaunchResult, Mode
from mlsys_labkit.cuda.kernel.simulator.decode import LaunchContext, decode_profile
from mlsys_labkit.cuda.kernel.simulator.explain import decode_findings
from mlsys_labkit.cuda.profile import Profile
from mlsys_labkit.cuda.shape import LaunchShape

__all__ = ["SimulatorBackend"]


class SimulatorBackend:
    """A backend that runs the kernels of one compiled source on the simulator."""

    name = "simulator"

    def __init__(self, module: SimulatedModule) -> None:
        self._module = module

    def parameters(self, index: int) -> tuple[Parameter, ...]:
        return self._module.parameters(index)

    def static_shared_bytes(self, index: int) -> int:
        return self._module.static_shared_bytes(index)

    def run(self, index: int, shape: LaunchShape, arguments: tuple[Any, ...], options: LaunchOptions) -> None:
        result, context = self._launch("run", index, shape, arguments, options)
        if result.findings:
            raise _failure(decode_findings(result, context()))

    def profile(self, index: int, shape: LaunchShape, arguments: tuple[Any, ...], options: LaunchOptions) -> Profile:
        result, context = self._launch("profile", index, shape, arguments, options)
        if result.findings:
            raise _failure(decode_findings(result, context()))
        return decode_profile(result, context())

    def check(
        self, index: int, shape: LaunchShape, arguments: tuple[Any, ...], options: LaunchOptions
    ) -> list[KernelFinding]:
        result, context = self._launch("check", index, shape, arguments, options)
        return list(decode_findings(result, context())) if result.findings else []

    def _launch(
        self, mode: Mode, index: int, shape: LaunchShape, arguments: tuple[Any, ...], options: LaunchOptions
    ) -> tuple[LaunchResult, Callable[[], LaunchContext]]:
        return self._module.launch(index, shape, arguments, mode, options)


def _failure(findings: list[KernelFinding]) -> CudaKernelError:
    return CudaKernelError("\n".join(map(str, findings)), tuple(findings))
