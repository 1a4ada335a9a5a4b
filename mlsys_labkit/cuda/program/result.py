"""The result of a whole program: its output, its launches, their errors and their profiles."""

from __future__ import annotations

from dataclasses import dataclass

from mlsys_labkit.cuda.finding import KernelFinding
from mlsys_labkit.cuda.profile import Profile


@dataclass(frozen=True)
class Launch:
    """One ``kernel<<<grid, block, shared_bytes>>>(...)`` that the program came by.

    Attributes:
        kernel: as the source calls it.
        line, file: where it was launched.
        grid, block: extents (x, y, z). shared_bytes: the dynamic part.
        error: the CUDA error that it ended in, such as "cudaErrorInvalidConfiguration"; empty when it went well.
        seconds: the simulator took; it says nothing about a GPU.
    """

    kernel: str
    line: int
    file: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    error: str
    seconds: float


@dataclass(frozen=True)
class ProgramResult:
    """A program that has run.

    Attributes:
        returncode: of main; -n when signal n ended it, 124 when it was stopped.
        stdout, stderr: its output, cut where it is too long.
        launches: in their order, those that CUDA refused too.
        findings: of all launches, each once, with ``check=True``; a fault that ended a kernel is there in any mode.
        profiles: one for each launch, with ``profile=True``.
        notes: remarks of the kit, such as that times of events are not a GPU's.
        stopped: why the program did not get to its end by itself; empty when it did.
        backend: "simulator", or "gpu" where nvcc and a GPU ran it.
    """

    returncode: int
    stdout: str
    stderr: str
    launches: tuple[Launch, ...] = ()
    findings: tuple[KernelFinding, ...] = ()
    profiles: tuple[Profile, ...] = ()
    notes: tuple[str, ...] = ()
    stopped: str = ""
    backend: str = "simulator"

    def __str__(self) -> str:
        counts = f"{len(self.launches)} launches"
        if self.findings:
            counts += f", {len(self.findings)} findings"
        lines = [f"returned {self.returncode}; {counts}; run by: {self.backend}"]
        if self.stopped:
            lines.append(self.stopped)
        lines += [str(finding) for finding in self.findings]
        for launch, profile in zip(self.launches, self.profiles, strict=False):
            lines += ["", f"{launch.file}:{launch.line}", str(profile)]
        return "\n".join(lines)

    __repr__ = __str__
