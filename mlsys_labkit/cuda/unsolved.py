"""What stands for the kernels of a cell that nobody has solved yet."""

from __future__ import annotations

from typing import Any, NoReturn

from mlsys_labkit.cuda.finding import Finding
from mlsys_labkit.cuda.parameters import Parameter
from mlsys_labkit.cuda.profile import Profile
from mlsys_labkit.cuda.shape import LaunchShape

__all__ = ["UnsolvedBackend"]


class UnsolvedBackend:
    """Accepts any launch and raises NotImplementedError, as an unsolved Python function does when it is called."""

    name = "unsolved"

    def parameters(self, index: int) -> tuple[Parameter, ...]:
        _unsolved()

    def static_shared_bytes(self, index: int) -> int:
        return 0

    def run(self, index: int, shape: LaunchShape, arguments: tuple[Any, ...], options: object) -> None:
        _unsolved()

    def profile(self, index: int, shape: LaunchShape, arguments: tuple[Any, ...], options: object) -> Profile:
        _unsolved()

    def check(self, index: int, shape: LaunchShape, arguments: tuple[Any, ...], options: object) -> list[Finding]:
        _unsolved()


def _unsolved() -> NoReturn:
    raise NotImplementedError("this kernel is not written yet: replace the line that raises NotImplementedError by C++")
