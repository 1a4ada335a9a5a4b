"""Members of aligned structs: counted in the loads and stores that nvcc makes of them.

The widths were read from the PTX of NVRTC for sm_90.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from mlsys_labkit import cuda
from mlsys_labkit.cuda.nvidia import nvrtc
from tests.cuda import ptx_accesses
from tests.cuda.nvrtc_helpers import NEEDS_NVRTC

# name, type, body, widths of its loads and of its stores
CASES = [
    ("pair", "float2", "out[t] = a[t].x + a[t].y;", [8], [4]),
    ("first", "float4", "out[t] = a[t].x;", [4], [4]),
    ("halves_lower", "float4", "out[t] = a[t].x + a[t].y;", [8], [4]),
    ("halves_upper", "float4", "out[t] = a[t].z + a[t].w;", [8], [4]),
    ("in_the_middle", "float4", "out[t] = a[t].y + a[t].z;", [4, 4], [4]),
    ("with_a_gap", "float4", "out[t] = a[t].x + a[t].w;", [16], [4]),
    ("three", "float4", "out[t] = a[t].x + a[t].y + a[t].z;", [16], [4]),
    ("bytes", "uchar4", "out[t] = a[t].x + a[t].y + a[t].z;", [4], [4]),
    ("doubles", "double2", "out[t] = a[t].x + a[t].y;", [16], [4]),
    ("body", "Body", "out[t] = a[t].x * a[t].y + a[t].z * a[t].mass;", [16], [4]),
    ("set_all", "float4", "a[t].x = 1; a[t].y = 2; a[t].z = 3; a[t].w = 4;", [], [16]),
    ("set_two", "float4", "a[t].x = 1; a[t].y = 2;", [], [8]),
    ("set_three", "float4", "a[t].x = 1; a[t].y = 2; a[t].z = 3;", [], [8, 4]),
    ("add", "float4", "a[t].x += 1; a[t].y += 1; a[t].z += 1; a[t].w += 1;", [16], [16]),
    ("across_a_barrier", "float4", "float s = a[t].x; __syncthreads(); out[t] = s + a[t].y;", [4, 4], [4]),
    ("across_a_store", "float4", "float s = a[t].x; out[t] = s; out[t + 32] = a[t].y;", [4, 4], [4, 4]),
    ("unaligned", "Plain", "out[t] = a[t].x + a[t].y;", [4, 4], [4]),
]
KERNEL = "__global__ void {}({}* a, float* out) {{ int t = threadIdx.x; {} }}\n"
SOURCE = "struct __align__(16) Body { float x, y, z, mass; };\nstruct Plain { float x, y; };\n" + "".join(
    KERNEL.format(name, kind, body) for name, kind, body, *_ in CASES
)
EACH = pytest.mark.parametrize(("name", "loads", "stores"), [(c[0], *c[3:]) for c in CASES], ids=[c[0] for c in CASES])


@cache
def kernels() -> Any:
    return cuda.compile_all(SOURCE, backend="simulator")


@cache
def functions() -> dict[str, ptx_accesses.Function]:
    return ptx_accesses.read(nvrtc.compile(SOURCE, options=("-lineinfo",)).ptx, "kernel.cu")


@EACH
def test_members_are_one_access(name: str, loads: list[int], stores: list[int]) -> None:
    a, out = cuda.zeros(1 << 12, "uint8"), cuda.zeros(1 << 12, "uint8")
    profile = kernels()[name].profile[1, 32](a.address, out.address)
    counted = [(each.op, each.bytes_per_lane) for each in profile.lines for _ in range(each.requests)]
    assert sorted(counted) == sorted([*(("load", width) for width in loads), *(("store", width) for width in stores)])
    assert kernels()[name].check[1, 32](a.address, out.address) == []


@NEEDS_NVRTC
@EACH
def test_nvcc_makes_the_same_accesses(name: str, loads: list[int], stores: list[int]) -> None:
    (symbol,) = (one for one in functions() if one.startswith(f"_Z{len(name)}{name}"))
    emitted = ptx_accesses.kernel(functions(), symbol).elements()
    expected = [*(("load", width) for width in loads), *(("store", width) for width in stores)]
    assert sorted((each.op, each.bytes_per_lane) for each in emitted) == sorted(expected)


def test_a_vector_out_of_bounds_is_found_by_its_member() -> None:
    a, out = cuda.zeros(31 * 8, "uint8"), cuda.zeros(128, "uint8")
    (finding,) = kernels()["pair"].check[1, 32](a.address, out.address)[:1]
    assert (finding.kind, finding.line) == ("out_of_bounds", 3)
