"""A profile written by hand: a 32 x 32 tile transpose of a 64 x 64 matrix, its numbers worked out on paper."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

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


def _count(line: int, space: str, op: str, sectors: int, wavefronts: int, worst: int) -> SimpleNamespace:
    """A whole-warp access of 4 bytes a lane, ``sectors`` and ``wavefronts`` a request."""
    return SimpleNamespace(
        line=line,
        function="transpose",
        space=space,
        op=op,
        bytes_per_lane=4,
        requests=REQUESTS,
        lanes=LANES,
        sectors=REQUESTS * sectors,
        wavefronts=REQUESTS * wavefronts,
        ideal_sectors=REQUESTS * 4 if space == "global" else 0,
        ideal_wavefronts=REQUESTS if space == "shared" else 0,
        worst=worst,
        executed=LANES,
    )


def _sample(line: int, space: str, op: str, array: str, lanes: list[int | None]) -> SimpleNamespace:
    return SimpleNamespace(
        line=line, space=space, op=op, bytes_per_lane=4, block=(0, 0, 0), warp=1, lanes=tuple(lanes), array=array
    )


def profile(**changes: Any) -> Any:
    fields = {
        "kernel": "transpose",
        "source": SOURCE,
        "grid": (2, 2, 1),
        "block": (32, 32, 1),
        "label": "source-level model",
        "blocks_run": 4,
        "blocks_total": 4,
        "lines": (
            _count(6, "global", "load", 4, 0, 4),
            _count(6, "shared", "store", 0, 1, 1),
            _count(10, "shared", "load", 0, 32, 32),
            _count(10, "global", "store", 4, 0, 4),
        ),
        "samples": (
            _sample(6, "global", "load", "in", [256 + 4 * lane for lane in range(32)]),
            _sample(6, "shared", "store", "tile", [128 + 4 * lane for lane in range(32)]),
            _sample(10, "shared", "load", "tile", [4 + 128 * lane for lane in range(32)]),
            _sample(10, "shared", "load", "tile", [8 + 128 * lane if lane < 16 else None for lane in range(32)]),
            _sample(10, "global", "store", "out", [256 + 4 * lane for lane in range(32)]),
        ),
    }
    return SimpleNamespace(**{**fields, **changes})


def finding(**changes: Any) -> Any:
    fields = {
        "kind": "shared_race",
        "message": f"thread (1, 0, 0) reads tile[1] that thread (0, 1, 0) writes at line 6 {OPEN}",
        "line": 10,
        "other_line": 6,
        "block": (0, 0, 0),
        "thread": (1, 0, 0),
    }
    return SimpleNamespace(**{**fields, **changes})
