"""What stands for the kernels of a cell that nobody has solved yet."""

from __future__ import annotations

from typing import Any, NoReturn

from mlsys_labkit.cuda.errors import UnsolvedError
from mlsys_labkit.cuda.finding import Finding
from mlsys_labkit.cuda.kernel import Kernel
from mlsys_labkit.cuda.parameters import Parameter
from mlsys_labkit.cuda.profile import Profile

__all__ = ["UnsolvedKernel"]


class UnsolvedKernel(Kernel):
    """Raises NotImplementedError when it is launched, as an unsolved Python function does when it is called.

    Nobody knows how many kernels there will be: ``.scale`` of it is another one.
    """

    def __init__(self, name: str, source: str) -> None:
        super().__init__(name, source, _UnsolvedBackend(), 0, ())

    def __getattr__(self, name: str) -> UnsolvedKernel:
        if name.startswith("_"):
            raise AttributeError(name)
        return UnsolvedKernel(name, self.source)

    def resources(self, architecture: str = "sm_90") -> NoReturn:
        _raise()

    def ptx(self, architecture: str = "sm_90") -> NoReturn:
        _raise()

    def sass(self, architecture: str = "sm_90") -> NoReturn:
        _raise()

    def __repr__(self) -> str:
        return f"<kernel {self.name}, not written yet>"


class _UnsolvedBackend:
    name = "unsolved"

    def parameters(self, index: int) -> tuple[Parameter, ...]:
        _raise()

    def static_shared_bytes(self, index: int) -> int:
        return 0

    def run(self, *launch: Any) -> None:
        _raise()

    def profile(self, *launch: Any) -> Profile:
        _raise()

    def check(self, *launch: Any) -> list[Finding]:
        _raise()


def _raise() -> NoReturn:
    raise UnsolvedError(
        "this kernel is not written yet; write C++ in place of the line that raises NotImplementedError"
    )
