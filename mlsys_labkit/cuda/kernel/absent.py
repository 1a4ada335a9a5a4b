"""Placeholders for the kernels of a cell that is not solved yet, or that did not compile."""

from __future__ import annotations

from typing import Any, NoReturn

from mlsys_labkit.cuda.errors import CudaCompileError, CudaError, CudaUnsolvedError
from mlsys_labkit.cuda.finding import KernelFinding
from mlsys_labkit.cuda.kernel.arguments.parameters import Parameter
from mlsys_labkit.cuda.kernel.kernel import Kernel
from mlsys_labkit.cuda.profile import Profile

_NEXT = "run that cell, and run this one again"


def unsolved_kernel(name: str, source: str, line: int) -> AbsentKernel:
    """Return a kernel whose launch raises CudaUnsolvedError, a NotImplementedError as of an unsolved function."""
    why = f"is not written yet: line {line} of its cell says so; write C++, delete that line, {_NEXT}"
    return AbsentKernel(name, source, CudaUnsolvedError, why)


def broken_kernel(name: str, source: str) -> AbsentKernel:
    """Return the kernel of a cell that did not compile, so that tests do not judge the one compiled before."""
    return AbsentKernel(name, source, CudaCompileError, f"did not compile: mend what its cell complains of, {_NEXT}")


class AbsentKernel(Kernel):
    """A kernel that raises ``error`` with its name and ``why`` when it is launched.

    The number of kernels of the cell is unknown, so every attribute, such as ``.scale``, is another such kernel.
    """

    def __init__(self, name: str, source: str, error: type[CudaError], why: str) -> None:
        self._error, self._why = error, why
        super().__init__(name, source, _AbsentBackend(self), 0, ())

    def fail(self, name: str | None = None) -> NoReturn:
        """Raise the error of a launch, worded for the kernel ``name`` of the cell if one is given."""
        raise self._error(f"{name or self.name} {self._why}")

    def __getattr__(self, name: str) -> AbsentKernel:
        if name.startswith("_"):
            raise AttributeError(name)
        return AbsentKernel(name, self.source, self._error, self._why)

    def _compiled(self, architecture: str, options: tuple[str, ...] = ()) -> NoReturn:
        self.fail()

    def __repr__(self) -> str:
        return f"<kernel {self.name}, {self._why.split(':')[0].removeprefix('is ')}>"


class _AbsentBackend:
    name = "absent"

    def __init__(self, kernel: AbsentKernel) -> None:
        self._kernel = kernel

    def parameters(self, index: int) -> tuple[Parameter, ...]:
        self._kernel.fail()

    def static_shared_bytes(self, index: int) -> int:
        return 0

    def run(self, *launch: Any) -> None:
        self._kernel.fail()

    def profile(self, *launch: Any) -> Profile:
        self._kernel.fail()

    def check(self, *launch: Any) -> list[KernelFinding]:
        self._kernel.fail()
