"""Exceptions raised while a Triton kernel is read, launched or compiled, one class for each kind of failure."""

from __future__ import annotations

from mlsys_labkit.errors import LabkitError


class TritonTraceError(LabkitError):
    """Base class of all errors of this package."""


class RefusedSourceError(TritonTraceError):
    """A kernel's source with something that Triton's compiler or the interpreter does not accept.

    It is no SyntaxError: IPython prints the frames of the kit under one, and feedback would tell of wrong Python.
    """


class TritonUnsolvedError(TritonTraceError, NotImplementedError):
    """A kernel that is still a stub. Launching it fails as calling an unsolved function does."""


class TritonLaunchError(TritonTraceError, ValueError):
    """A grid or a launch option that Triton refuses."""


class TritonArgumentError(TritonTraceError, TypeError):
    """An argument that does not fit the kernel's parameters."""


class TritonOverflowError(TritonArgumentError, OverflowError):
    """A number among the arguments that no type of Triton's holds."""


class TritonKernelError(TritonTraceError):
    """A failure while the kernel runs, such as a wrong type or an access outside its arrays.

    Attributes:
        place, line: the cell or file and the line in it; "" and 0 where no line of the kernel is known.
        program: (x, y, z) of the program that failed, or None.
        refusal: what Triton raises as the kernel is compiled: "CompilationError", "CompileTimeAssertionFailure", or ""
            for a failure at run time.
    """

    refusal = ""

    def __init__(self, text: str, place: str = "", line: int = 0, program: tuple[int, int, int] | None = None) -> None:
        super().__init__(text)
        self.place = place
        self.line = line
        self.program = program


class TritonWorkerError(TritonTraceError):
    """The end or the silence of the worker process. The next launch starts another one."""


class TritonCompileError(TritonTraceError):
    """A compilation that Triton's compiler refused or did not finish.

    Attributes:
        place, line: the cell or file and the line in it; "" and 0 where the compiler names none.
    """

    def __init__(self, text: str, place: str = "", line: int = 0) -> None:
        super().__init__(text)
        self.place = place
        self.line = line
