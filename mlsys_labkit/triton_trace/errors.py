"""What can go wrong between a Triton kernel and its result, each kind of it a class of its own."""

from __future__ import annotations

from mlsys_labkit.errors import LabkitError

__all__ = [
    "ArgumentError",
    "KernelError",
    "LaunchError",
    "RefusedSourceError",
    "TritonTraceError",
    "UnsolvedError",
    "WorkerError",
]


class TritonTraceError(LabkitError):
    """Base of every error of this room."""


class RefusedSourceError(TritonTraceError, SyntaxError):
    """A kernel's source holds something that Triton's compiler or the interpreter does not take."""

    def __str__(self) -> str:
        return str(self.args[0])


class UnsolvedError(TritonTraceError, NotImplementedError):
    """A kernel that is still the stub it was handed out as. Launching it fails as calling an unsolved function does."""


class LaunchError(TritonTraceError, ValueError):
    """A grid or a launch option that Triton refuses."""


class ArgumentError(TritonTraceError, TypeError):
    """An argument that does not fit the kernel's parameters."""


class KernelError(TritonTraceError):
    """The kernel ran and did something that ends it: a type that does not fit, an access outside its arrays.

    Attributes:
        place, line: the cell or file and the line in it; "" and 0 where no line of the kernel is to blame.
        program: (x, y, z) of the program that did it, or None.
    """

    def __init__(self, text: str, place: str = "", line: int = 0, program: tuple[int, int, int] | None = None) -> None:
        super().__init__(text)
        self.place = place
        self.line = line
        self.program = program


class WorkerError(TritonTraceError):
    """The process that interprets kernels died or did not answer. The next launch starts another one."""


class CompileError(TritonTraceError):
    """Triton's compiler refuses a kernel, or did not finish.

    Attributes:
        place, line: the cell or file and the line in it; "" and 0 where the compiler names none.
    """

    def __init__(self, text: str, place: str = "", line: int = 0) -> None:
        super().__init__(text)
        self.place = place
        self.line = line
