"""What a kernel takes of a GPU that need not be there: registers, spills, shared memory, and so its occupancy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from mlsys_labkit.cuda.errors import CudaError
from mlsys_labkit.cuda.nvidia import nvrtc, ptxas
from mlsys_labkit.cuda.nvidia.occupancy import Occupancy, occupancy

__all__ = ["Resources", "ptx", "resources", "sass"]


@dataclass(frozen=True)
class Resources:
    """What one kernel takes when compiled for ``arch``.

    Attributes:
        registers: a thread. stack_bytes: a thread, in local memory.
        spill_store_bytes, spill_load_bytes: of the instructions that move registers to the stack and back.
        shared_bytes: a block, static arrays only. barriers: a block.
        constant_bytes: what the whole source declares ``__constant__``.
    """

    name: str
    arch: str
    registers: int
    spill_store_bytes: int
    spill_load_bytes: int
    stack_bytes: int
    shared_bytes: int
    barriers: int
    constant_bytes: int

    @property
    def spill_bytes(self) -> int:
        """Spill stores and spill loads together."""
        return self.spill_store_bytes + self.spill_load_bytes

    def occupancy(self, block: int | tuple[int, ...], shared_bytes: int = 0) -> Occupancy:
        """Resident blocks and warps on one SM for this ``block``; ``shared_bytes`` is the dynamic part.

        Raises LaunchError for an impossible block.
        """
        threads = math.prod(block) if isinstance(block, tuple) else block
        shared = self.shared_bytes + shared_bytes
        return occupancy(self.arch, threads, self.registers, shared, barriers=self.barriers)

    def __str__(self) -> str:
        spills = f"{self.spill_bytes} bytes of spills" if self.spill_bytes else "no spills"
        barriers = "1 barrier" if self.barriers == 1 else f"{self.barriers} barriers"
        parts = [
            f"{self.registers} registers a thread",
            spills,
            f"{self.shared_bytes} bytes of shared memory",
            barriers,
        ]
        parts += [f"{self.stack_bytes} bytes of stack"] * bool(self.stack_bytes)
        parts += [f"{self.constant_bytes} bytes of constants"] * bool(self.constant_bytes)
        return f"{self.name} on {self.arch}: {', '.join(parts)}"


def resources(
    source: str,
    name: str,
    arch: str = "sm_90",
    defines: Mapping[str, object] | None = None,
    folder: Path | None = None,
) -> Resources:
    """Compile ``name`` for ``arch`` and read what NVIDIA's assembler allotted. No GPU is needed.

    Raises:
        CompileError: CUDA refuses the source.
        CudaError: NVRTC does not know ``arch``.
        MissingExtraError: NVRTC is not installed.

    Example:
        >>> print(resources("__global__ void twice(float* x) { x[threadIdx.x] *= 2; }", "twice"))
        twice on sm_90: 8 registers a thread, no spills, 0 bytes of shared memory, 0 barriers
    """
    compiled = nvrtc.compile(source, name, arch, defines=defines, folder=folder)
    used = ptxas.read_report(compiled.log).get(compiled.symbol)
    if used is None:
        raise CudaError(f"NVIDIA's assembler reports nothing about {name} ({compiled.symbol}): {compiled.log[-500:]}")
    return Resources(name=name, arch=arch, constant_bytes=ptxas.constant_bytes(compiled.cubin), **asdict(used))


def ptx(
    source: str,
    name: str,
    arch: str = "sm_90",
    defines: Mapping[str, object] | None = None,
    folder: Path | None = None,
) -> str:
    """PTX, NVIDIA's portable assembly, of the whole source with ``name`` in it. Raises as ``resources`` does.

    Example:
        >>> ".target sm_90" in ptx("__global__ void nothing() {}", "nothing")
        True
    """
    return nvrtc.compile(source, name, arch, defines=defines, folder=folder).ptx


def sass(
    source: str,
    name: str,
    arch: str = "sm_90",
    defines: Mapping[str, object] | None = None,
    folder: Path | None = None,
) -> str:
    """SASS, the instructions of the GPU itself, of one kernel. Raises as ``resources`` does.

    Example:
        >>> "EXIT" in sass("__global__ void nothing() {}", "nothing")
        True
    """
    compiled = nvrtc.compile(source, name, arch, defines=defines, folder=folder)
    return ptxas.disassemble(compiled.cubin, compiled.symbol)
