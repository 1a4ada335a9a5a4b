"""The notebook's side of the worker process: start it, give it kernels and buffers, wait for it, outlive it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["DeviceBuffer", "LaunchRequest", "LaunchResult", "LoadedModule", "Simulator"]

Mode = Literal["run", "check", "profile"]


@dataclass(frozen=True)
class LoadedModule:
    """A kernel.so in the worker. It stays valid when the worker dies: the next launch loads it again."""

    id: int
    path: Path
    descriptors: tuple[str, ...]  # lk_describe_<i> of every kernel, in order
    text_address: int  # load address of the object: program counter - text_address = address in the ELF file
    text_bytes: int  # from the load address to the end of the last segment


@dataclass(frozen=True)
class LaunchRequest:
    """One launch. Argument i begins at argument_offsets[i] of packed_arguments, in the host's own alignment."""

    module: LoadedModule
    kernel_index: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    packed_arguments: bytes
    argument_offsets: tuple[int, ...]
    shared_bytes: int = 0  # the dynamic part, as in <<<grid, block, shared_bytes>>>
    mode: Mode = "run"
    seed: int = 0  # 0: natural order of warps and lanes
    sample_blocks: int = 0  # 0: every block
    timeout_s: float = 60.0
    cooperative: bool = False


@dataclass(frozen=True)
class LaunchResult:
    """What came back, undecoded: arrays of the structs in records.h as bytes (see simulator/decode.py)."""

    findings: bytes
    sites: bytes
    steps: bytes
    samples: bytes
    totals: bytes
    output: str  # of printf; already written to sys.stdout while the kernel ran
    seconds: float  # of the simulator: never to be shown as a GPU's


class DeviceBuffer:
    """A range of the simulator's memory, mapped in the notebook and in the worker."""

    address: int  # what a kernel sees; 256-byte aligned
    nbytes: int

    def view(self) -> NDArray[np.uint8]:
        """The bytes themselves, shape (nbytes,): no copy."""
        raise NotImplementedError

    def free(self) -> None:
        """Give the range back. Freeing twice does nothing; a kernel that still uses the address faults."""
        raise NotImplementedError


class Simulator:
    """The one worker process of this interpreter, started by its first use and again after it died."""

    @staticmethod
    def current() -> Simulator:
        """The simulator of this process (a forked child gets its own)."""
        raise NotImplementedError

    def load(self, path: Path) -> LoadedModule:
        """Load a compiled kernel.so in the worker."""
        raise NotImplementedError

    def allocate(self, nbytes: int) -> DeviceBuffer:
        """Device memory, uninitialised. Raises CudaError ("out of memory") when the machine cannot hold it."""
        raise NotImplementedError

    def launch(self, request: LaunchRequest) -> LaunchResult:
        """Run to the end. Raises WorkerError when the worker died, KeyboardInterrupt when interrupted."""
        raise NotImplementedError
