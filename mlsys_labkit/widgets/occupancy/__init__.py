"""Occupancy calculator: blocks and warps resident on one SM, the resource that stops the next, and what would help."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from mlsys_labkit._base.units import plain, si
from mlsys_labkit.cuda.nvidia.occupancy import LIMITS, occupancy as calculate
from mlsys_labkit.errors import LabkitError
from mlsys_labkit.widgets.base import Kind, State, paragraph, table


def occupancy(architecture: str = "sm_90", *, threads: int = 256, registers: int = 32, shared_bytes: int = 0) -> Any:
    """Explore the blocks and warps that one SM holds by threads, registers and shared memory, and their limit.

    ``threads`` a block (1 to 1024), ``registers`` a thread (1 to 255), ``shared_bytes`` a block, static and dynamic
    together. The numbers are those of ``lk.cuda.occupancy``. Raises LabkitError for an architecture that is not in its
    table or a value outside these bounds.
    Reference: NVIDIA, "CUDA C++ Programming Guide", technical specifications per compute capability.

    Example:
        >>> occupancy("sm_90", threads=256, registers=40, shared_bytes=8192)
        <Occupancy calculator>
    """
    if architecture not in LIMITS:
        raise LabkitError(f"architecture {architecture!r} is not known; choose one of {', '.join(LIMITS)}")
    most = max(limits.shared_per_block for limits in LIMITS.values())
    if not (1 <= threads <= 1024 and 1 <= registers <= 255 and 0 <= shared_bytes <= most):
        raise LabkitError(
            f"expected 1 to 1024 threads, 1 to 255 registers and 0 to {most} shared_bytes, "
            f"got {threads}, {registers} and {shared_bytes}"
        )
    return KIND.show(
        architectures=[[key, asdict(limits)] for key, limits in LIMITS.items()],
        architecture=architecture,
        threads=threads,
        registers=registers,
        shared=shared_bytes,
    )


def _static(state: State) -> str:
    threads, registers, shared = state["threads"], state["registers"], state["shared"]
    rows = []
    for key, limits in state["architectures"]:
        found = calculate(key, threads, registers, shared)
        most = limits["warps_per_sm"]
        warps = (f"{found.warps} of {most}", f"{plain(100 * found.warps / most)} %")
        rows.append([key, found.blocks_per_sm, *warps, " and ".join(found.limits)])
    caption = f"{threads} threads a block, {registers} registers a thread, {si(shared, 'B')} of shared memory a block"
    head = ["architecture", "blocks an SM", "warps", "occupancy", "limit"]
    return table(caption, head, rows) + paragraph(f"Shown first: {state['architecture']}.")


KIND = Kind("occupancy", "Occupancy calculator", _static)
