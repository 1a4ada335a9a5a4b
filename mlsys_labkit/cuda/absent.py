"""What stands for the kernels of a cell that nobody has solved yet, or that did not compile."""

from __future__ import annotations

from typing import Any, NoReturn

from mlsys_labkit.cuda.errors import CompileError, CudaError, UnsolvedError
from mlsys_labkit.cuda.finding import Finding
from mlsys_labkit.cuda.kernel import Kernel
from mlsys_labkit.cuda.parameters import Parameter
from mlsys_labkit.cuda.profile import Profile

__all__ = ["AbsentKernel", "broken_kernel", "unsolved_kernel"]

_NEXT = "run that cell, and run this one again"


def unsolved_kernel(name: str, source: str, line: int) -> AbsentKernel:
    """Raises UnsolvedError, a NotImplementedError, as an unsolved Python function does when it is called."""
    why = f"is not written yet: line {line} of its cell says so; write C++, delete that line, {_NEXT}"
    return AbsentKernel(name, source, UnsolvedError, why)


def broken_kernel(name: str, source: str) -> AbsentKernel:
    """Stands for the kernel of a cell that did not compile: without it, tests would judge the one before."""
    return AbsentKernel(name, source, CompileError, f"did not compile: mend what its cell complains of, {_NEXT}")


class AbsentKernel(Kernel):
    """Raises ``error`` with its name and ``why`` when it is launched.

    Nobody knows how many kernels there will be: ``.scale`` of it is another one.
    """

    def __init__(self, name: str, source: str, error: type[CudaError], why: str) -> None:
        self._error, self._why = error, why
        super().__init__(name, source, _AbsentBackend(self), 0, ())

    def fail(self, name: str | None = None) -> NoReturn:
        """Raise what a launch raises, told of another of the cell's kernels if need be."""
        raise self._error(f"{name or self.name} {self._why}")

    def __getattr__(self, name: str) -> AbsentKernel:
        if name.startswith("_"):
            raise AttributeError(name)
        return AbsentKernel(name, self.source, self._error, self._why)

    def resources(self, architecture: str = "sm_90") -> NoReturn:
        self.fail()

    def ptx(self, architecture: str = "sm_90") -> NoReturn:
        self.fail()

    def sass(self, architecture: str = "sm_90") -> NoReturn:
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

    def check(self, *launch: Any) -> list[Finding]:
        self._kernel.fail()
