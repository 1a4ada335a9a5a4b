"""What can go wrong between a student's kernel and its result, each kind of it a class of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlsys_labkit.errors import LabkitError, readers_traceback

if TYPE_CHECKING:
    from mlsys_labkit.cuda.finding import Finding

__all__ = [
    "ArgumentError",
    "CompileError",
    "CudaError",
    "Diagnostic",
    "GradedError",
    "KernelError",
    "KernelInterrupt",
    "LaunchError",
    "UnsolvedError",
    "WorkerError",
]


class CudaError(LabkitError):
    """Base of every error of this room: a missing compiler, a full disk, memory that ran out."""


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


class CompileError(CudaError):
    """The source is no kernel that this machine can run.

    Attributes:
        diagnostics: every complaint, in the order of the lines.
    """

    def __init__(self, text: str, diagnostics: tuple[Diagnostic, ...] = ()) -> None:
        super().__init__(text)
        self.diagnostics = diagnostics


class GradedError(CompileError):
    """A graded kernel holds something that could go around the counters."""


class LaunchError(CudaError, ValueError):
    """A grid, a block or an amount of shared memory that CUDA refuses."""


class ArgumentError(CudaError, TypeError):
    """An argument that does not fit the kernel's parameter."""


class KernelError(CudaError):
    """The kernel ran and did something that ends it, such as an access outside its arrays.

    Attributes:
        findings: what it did, with block, thread and source line.
    """

    def __init__(self, text: str, findings: tuple[Finding, ...] = ()) -> None:
        super().__init__(text)
        self.findings = findings


class KernelInterrupt(KeyboardInterrupt):
    """A kernel was interrupted while it ran. Shown as its own line in a notebook, without the frames that waited."""

    def _render_traceback_(self) -> list[str]:
        return readers_traceback(self)


class UnsolvedError(CudaError, NotImplementedError):
    """A kernel that nobody has written yet was launched."""


class WorkerError(CudaError):
    """The process that runs kernels died or did not answer. The next launch starts another one."""
