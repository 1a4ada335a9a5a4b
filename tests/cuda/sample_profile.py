"""A profile written by hand: a 32 x 32 tile transpose of a 64 x 64 matrix, its numbers worked out on paper."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mlsys_labkit.cuda.counters import LineCount, RequestSample
from mlsys_labkit.cuda.finding import KernelFinding
from mlsys_labkit.cuda.profile import Profile

SOURCE = """\
__global__ void transpose(const float* in, float* out, int n)
{
    __shared__ float tile[32][32];
    int x = blockIdx.x * 32 + threadIdx.x;
    int y = blockIdx.y * 32 + threadIdx.y;
    tile[threadIdx.y][threadIdx.x] = in[y * n + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x;
    y = blockIdx.x * 32 + threadIdx.y;
    out[y * n + x] = tile[threadIdx.x][threadIdx.y];
}
"""
REQUESTS = 4 * 32  # four blocks of 32 warps
LANES = 32 * REQUESTS
OPEN = "</script><b>"  # a text that would break a page that does not escape it


def _count(line: int, space: str, op: str, each: int) -> LineCount:
    """Build a whole-warp access of 4 bytes per lane that costs ``each`` sectors or wavefronts per request."""
    sectors, wavefronts = (REQUESTS * each, 0) if space == "global" else (0, REQUESTS * each)
    ideal = (REQUESTS * 4, 0) if space == "global" else (0, REQUESTS)
    return LineCount(
        line, "transpose", space, op, 4, REQUESTS, LANES, sectors, wavefronts, *ideal, worst=each, executed=LANES
    )


def _sample(line: int, space: str, op: str, array: str, lanes: list[int | None]) -> RequestSample:
    return RequestSample(line, space, op, 4, (0, 0, 0), 1, tuple(lanes), array)


PROFILE = Profile(
    kernel="transpose",
    source=SOURCE,
    grid=(2, 2, 1),
    block=(32, 32, 1),
    shared_bytes=0,
    lines=(
        _count(6, "global", "load", 4),
        _count(6, "shared", "store", 1),
        LineCount(7, "transpose", "", "", 0, 0, 0, 0, 0, 0, 0, 0, LANES),
        _count(10, "shared", "load", 32),
        _count(10, "global", "store", 4),
    ),
    samples=(
        _sample(6, "global", "load", "in", [256 + 4 * lane for lane in range(32)]),
        _sample(6, "shared", "store", "tile", [128 + 4 * lane for lane in range(32)]),
        _sample(10, "shared", "load", "tile", [4 + 128 * lane for lane in range(32)]),
        _sample(10, "shared", "load", "tile", [8 + 128 * lane if lane < 16 else None for lane in range(32)]),
        _sample(10, "global", "store", "out", [256 + 4 * lane for lane in range(32)]),
    ),
    blocks_run=4,
    blocks_total=4,
)
FINDING = KernelFinding(
    "shared_race",
    f"thread (1, 0, 0) reads tile[1] that thread (0, 1, 0) writes at line 6 {OPEN}",
    line=10,
    source_line="    out[y * n + x] = tile[threadIdx.x][threadIdx.y];",
    other_line=6,
    block=(0, 0, 0),
    thread=(1, 0, 0),
)


def profile(**changes: Any) -> Profile:
    return replace(PROFILE, **changes)


def finding(**changes: Any) -> KernelFinding:
    return replace(FINDING, **changes)
