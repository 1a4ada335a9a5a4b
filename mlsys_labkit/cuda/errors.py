"""Exceptions raised while a kernel is compiled or run, one class for each kind of failure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlsys_labkit.errors import LabkitError, readers_traceback

if TYPE_CHECKING:
    from mlsys_labkit.cuda.finding import KernelFinding


class CudaError(LabkitError):
    """Base of every error of this package: a missing compiler, a full disk, memory that ran out."""


@dataclass(frozen=True)
class Diagnostic:
    """One complaint of a compiler. ``line`` and ``column`` count from 1, 0 where the compiler named none."""

    line: int
    column: int
    text: str
    source_line: str = ""
    file: str = ""  # of an included file; empty for the student's own source

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.file else f"line {self.line}"
        if not self.line:
            return self.text
        shown = f": {self.source_line.strip()}" if self.source_line.strip() else ""
        return f"{where}: {self.text}{shown}"


class CudaCompileError(CudaError):
    """A source that this machine cannot compile into a kernel.

    Attributes:
        diagnostics: every complaint, in the order of the lines.
    """

    def __init__(self, text: str, diagnostics: tuple[Diagnostic, ...] = ()) -> None:
        super().__init__(text)
        self.diagnostics = diagnostics


class GradedError(CudaCompileError):
    """The error for a graded kernel with code that could bypass the counters."""


class CudaLaunchError(CudaError, ValueError):
    """A grid, a block or an amount of shared memory that CUDA refuses."""


class CudaArgumentError(CudaError, TypeError):
    """An argument that does not fit the kernel's parameter."""


class CudaKernelError(CudaError):
    """A kernel that was ended by its own fault, such as an access outside its arrays.

    Attributes:
        findings: what it did, with block, thread and source line.
    """

    def __init__(self, text: str, findings: tuple[KernelFinding, ...] = ()) -> None:
        super().__init__(text)
        self.findings = findings


class KernelInterrupt(KeyboardInterrupt):
    """The interruption of a running kernel. A notebook shows it in one line, without the frames that waited."""

    def _render_traceback_(self) -> list[str]:
        return readers_traceback(self)


class CudaUnsolvedError(CudaError, NotImplementedError):
    """A launch of a kernel that is not written yet."""


class CudaWorkerError(CudaError):
    """A worker, the process that runs kernels, that died or did not answer. The next launch starts another one."""
