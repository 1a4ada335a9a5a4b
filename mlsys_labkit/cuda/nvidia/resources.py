"""A kernel's registers, spills, shared memory and occupancy on a GPU, which need not be there."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from mlsys_labkit.cuda.errors import CudaError
from mlsys_labkit.cuda.nvidia import nvrtc, ptxas
from mlsys_labkit.cuda.nvidia.occupancy import Occupancy, occupancy


@dataclass(frozen=True)
class Resources:
    """The resources that one kernel takes when compiled for ``arch``.

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
        """Return resident blocks and warps on one SM for this ``block``; ``shared_bytes`` is the dynamic part.

        Raises CudaLaunchError for an impossible block.
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


def resources(compiled: nvrtc.CompiledSource, name: str) -> Resources:
    """Read what NVIDIA's assembler allotted to the kernel ``name``, with which the source was compiled.

    Example:
        >>> source = "__global__ void twice(float* x) { x[threadIdx.x] *= 2; }"
        >>> print(resources(nvrtc.compile(source, "twice"), "twice"))
        twice on sm_90: 8 registers a thread, no spills, 0 bytes of shared memory, 0 barriers
    """
    used = ptxas.read_report(compiled.log).get(compiled.symbol)
    if used is None:
        raise CudaError(f"NVIDIA's assembler reports nothing about {name} ({compiled.symbol}): {compiled.log[-500:]}")
    constants = ptxas.constant_bytes(compiled.cubin)
    return Resources(name=name, arch=compiled.arch, constant_bytes=constants, **asdict(used))
