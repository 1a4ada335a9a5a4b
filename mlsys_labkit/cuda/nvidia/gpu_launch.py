"""``GpuLaunch``: all that a GPU needs for one launch, as plain data that a process can send to another."""

from __future__ import annotations

from dataclasses import dataclass

from mlsys_labkit.cuda.shape import LaunchShape


@dataclass(frozen=True)
class GpuLaunch:
    """One launch on a GPU.

    Attributes:
        name: of the kernel, for messages.
        cubin, symbol: its machine code, and its name there.
        packed, offsets: the arguments; argument i begins at ``offsets[i]`` of ``packed``.
        cooperative: all blocks are resident at once, for barriers of the grid.
        timed: measure it by events. waits: wait for its end, at most ``seconds``.
    """

    name: str
    cubin: bytes
    symbol: str
    shape: LaunchShape
    packed: bytes
    offsets: tuple[int, ...]
    cooperative: bool = False
    timed: bool = False
    waits: bool = True
    seconds: float = 20.0
