"""The grid, the blocks and the dynamic shared memory of a launch, checked against CUDA's limits."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

from mlsys_labkit.cuda.errors import CudaLaunchError

Extents = tuple[int, int, int]

# Compute capability 9.0, CUDA C++ programming guide, "Technical Specifications per Compute Capability".
MOST_BLOCKS = (2**31 - 1, 65_535, 65_535)
MOST_THREADS = (1024, 1024, 64)
MOST_THREADS_PER_BLOCK = 1024
MOST_SHARED_BYTES = 227 << 10


@dataclass(frozen=True)
class LaunchShape:
    """The values between ``<<<`` and ``>>>``.

    Attributes:
        grid: blocks along x, y, z.
        block: threads along x, y, z.
        shared_bytes: dynamic shared memory of each block.
    """

    grid: Extents
    block: Extents
    shared_bytes: int = 0

    @property
    def threads_per_block(self) -> int:
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def blocks(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]

    def __str__(self) -> str:
        shared = f", {self.shared_bytes}" if self.shared_bytes else ""
        return f"<<<{_shown(self.grid)}, {_shown(self.block)}{shared}>>>"


def launch_shape(key: Any, static_shared_bytes: int = 0) -> LaunchShape:
    """Return the shape that ``kernel[key]`` asks for. Raises CudaLaunchError in the words of CUDA's own errors.

    Example:
        >>> launch_shape(((4, 2), 256))
        LaunchShape(grid=(4, 2, 1), block=(256, 1, 1), shared_bytes=0)
    """
    if not isinstance(key, tuple) or len(key) not in (2, 3):
        raise CudaLaunchError(
            f"a launch is kernel[grid, block](...) or kernel[grid, block, shared_bytes](...); got {key!r}"
        )
    grid, block = _extents("grid", key[0], MOST_BLOCKS), _extents("block", key[1], MOST_THREADS)
    shape = LaunchShape(grid, block, _whole("shared_bytes", key[2]) if len(key) == 3 else 0)
    if shape.threads_per_block > MOST_THREADS_PER_BLOCK:
        raise CudaLaunchError(
            f"invalid configuration argument: a block of {_shown(block)} has {shape.threads_per_block:,} threads, "
            f"and at most {MOST_THREADS_PER_BLOCK:,} are allowed; use smaller blocks and more of them"
        )
    if shape.shared_bytes < 0:
        raise CudaLaunchError(f"invalid argument: shared_bytes is {shape.shared_bytes}, and the least is 0")
    total = shape.shared_bytes + static_shared_bytes
    if total > MOST_SHARED_BYTES:
        static = f" and {static_shared_bytes:,} bytes of __shared__ arrays" if static_shared_bytes else ""
        raise CudaLaunchError(
            f"invalid argument: {shape.shared_bytes:,} bytes of dynamic shared memory{static} are more than the "
            f"{MOST_SHARED_BYTES:,} bytes (227 KiB) that a block can have on sm_90; use a smaller tile"
        )
    return shape


def _extents(what: str, value: Any, most: Extents) -> Extents:
    parts = list(value) if isinstance(value, tuple | list) or getattr(value, "ndim", 0) == 1 else [value]
    if not 1 <= len(parts) <= 3:
        raise CudaLaunchError(f"invalid configuration argument: {what} is a number or a tuple of 1 to 3; got {value!r}")
    x, y, z = (_whole(what, part) for part in [*parts, 1, 1, 1][:3])
    for axis, extent, limit in zip("xyz", (x, y, z), most, strict=True):
        if extent < 1:
            hint = "; is a size 0, or was it divided by // where it has to be rounded up?" if extent == 0 else ""
            raise CudaLaunchError(
                f"invalid configuration argument: {what} is {_shown((x, y, z))}, and each extent is 1 or more{hint}"
            )
        if extent > limit:
            raise CudaLaunchError(
                f"invalid configuration argument: {what} is {_shown((x, y, z))}, and its {axis} is at most {limit:,}"
            )
    return x, y, z


def _whole(what: str, value: Any) -> int:
    if isinstance(value, bool):
        raise CudaLaunchError(f"invalid configuration argument: {what} is {value}, and a whole number is expected")
    try:
        return operator.index(value)
    except TypeError:
        hint = "; divide with //, or round up with -(-n // m)" if isinstance(value, float) else ""
        raise CudaLaunchError(
            f"invalid configuration argument: {what} is {value!r}, and a whole number is expected{hint}"
        ) from None


def _shown(extents: Extents) -> str:
    return f"({', '.join(map(str, extents))})"
