"""What a launch was, for whoever tells its findings and counters in the student's own terms."""

from __future__ import annotations

from dataclasses import dataclass

from mlsys_labkit.cuda.arguments import ArrayRange
from mlsys_labkit.cuda.build.lines import LineTable
from mlsys_labkit.cuda.build.symbols import SharedArray
from mlsys_labkit.cuda.shape import LaunchShape

__all__ = ["Launched"]


@dataclass(frozen=True)
class Launched:
    """A launch of one kernel.

    Attributes:
        kernel: its name, such as ``"matmul<16>"``.
        source: the student's text; line n is ``source.split("\\n")[n - 1]``.
        shape: grid, block and dynamic shared memory.
        load_address: where the worker has kernel.so: program counter less this is an address in the file.
        lines: from an address in the file to a line.
        shared_arrays: the static ``__shared__`` variables of the module, offsets in its thread-local segment.
        dynamic_shared_offset: where dynamic shared memory begins in it.
        arrays: which argument owns which range of device memory.
    """

    kernel: str
    source: str
    shape: LaunchShape
    load_address: int
    lines: LineTable
    shared_arrays: tuple[SharedArray, ...]
    dynamic_shared_offset: int
    arrays: tuple[ArrayRange, ...]
