"""Copies of structs and arrays are counted in the loads and stores that nvcc makes of them: as wide as the alignment.

The widths were read from the PTX of NVRTC 12.9 for sm_90; the sectors follow from width and distance of the lanes.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from mlsys_labkit import cuda
from mlsys_labkit.cuda.kernel.gcc.copies import with_copy_parts

BYTES = 1 << 14
# type, its definition, bytes of one load, loads, sectors of one load of a warp
TYPES = [
    ("Pair", "struct Pair { float x, y; };", 4, 2, 8),
    ("Four", "struct Four { float x, y, z, w; };", 4, 4, 16),
    ("float3", "", 4, 3, 12),
    ("float4", "", 16, 1, 16),
    ("double2", "", 16, 1, 16),
    ("Two", "struct Two { double x, y; };", 8, 2, 16),
    ("Mixed", "struct Mixed { int i; float f; double d; };", 8, 2, 16),
    ("Padded", "struct Padded { char c; float f; };", 4, 2, 8),
    ("Pixel", "struct Pixel { unsigned char r, g, b, a; };", 1, 4, 4),
    ("Shorts", "struct Shorts { short a, b, c; };", 2, 3, 6),
    ("Row", "struct Row { float v[16]; };", 4, 16, 32),
    ("Long", "struct Long { float v[64]; };", 4, 64, 32),
    ("Aligned8", "struct __align__(8) Aligned8 { float x, y; };", 8, 1, 8),
    ("Aligned16", "struct alignas(16) Aligned16 { float v[8]; };", 16, 2, 32),
    ("Nested", "struct Nested { float4 p; float q; };", 16, 2, 32),
]
KERNELS = """
__global__ void copy_{0}(const {0}* from, {0}* to) {{ to[threadIdx.x] = from[threadIdx.x]; }}
__global__ void shared_{0}(const {0}* from, {0}* to) {{
    __shared__ {0} tile[32];
    tile[threadIdx.x] = from[threadIdx.x];
    __syncthreads();
    to[threadIdx.x] = tile[31 - threadIdx.x];
}}
"""
SOURCE = "\n".join(definition + KERNELS.format(name) for name, definition, *_ in TYPES)
EACH = pytest.mark.parametrize(("name", "width", "loads", "sectors"), [(t[0], *t[2:]) for t in TYPES])


@cache
def kernels() -> Any:
    return cuda.compile_all(SOURCE, backend="simulator")


def counts(kernel: str) -> dict[tuple[str, str], tuple[int, int, int]]:
    a, b = cuda.zeros(BYTES, "uint8"), cuda.zeros(BYTES, "uint8")
    profile = kernels()[kernel].profile[1, 32](a.address, b.address)
    return {(c.space, c.op): (c.bytes_per_lane, c.requests, c.sectors) for c in profile.lines if c.requests}


@EACH
def test_copy_in_global_memory(name: str, width: int, loads: int, sectors: int) -> None:
    expected = (width, loads, loads * sectors)
    assert counts(f"copy_{name}") == {("global", "load"): expected, ("global", "store"): expected}


@EACH
def test_copy_through_shared_memory(name: str, width: int, loads: int, sectors: int) -> None:
    """gcc aligns shared arrays further than nvcc; the other side of the copy says how far the type is aligned."""
    found = counts(f"shared_{name}")
    assert {place: count[:2] for place, count in found.items()} == dict.fromkeys(found, (width, loads))
    assert len(found) == 4


def test_the_hook_of_aarch64_is_renamed_too() -> None:
    said = """\tbl\t__tsan_write_range
//(call_insn 22 20 24 2 (parallel [
\tbl\t__tsan_read_range
//(insn 23 22 24 2 (set (reg:V4SI 63 v31)
//        (mem:V4SI (reg/f:DI 19 x19 [orig:95 _4 ] [95]) [16 *_4+0 S16 A64])) "kernel.cu":1:2 {*aarch64_simd_movv4si})
\tldr\tq31, [x19]
//(insn 24 23 25 2 (set (mem:V4SI (reg/f:DI 20 x20 [orig:96 _5 ] [96]) [16 *_5+0 S16 A128])
//        (reg:V4SI 63 v31)) "kernel.cu":1:2 {*aarch64_simd_movv4si})
\tstr\tq31, [x20]"""
    assert with_copy_parts(said).split() == [
        "bl", "__tsan_write_range_by8", "bl", "__tsan_read_range_by8", "ldr", "q31,", "[x19]", "str", "q31,", "[x20]",
    ]  # fmt: skip
