"""Counters of local and constant memory, and of atomics' plain loads and stores, against theory and NVRTC's PTX."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from mlsys_labkit import cuda
from mlsys_labkit.cuda.nvidia import nvrtc
from tests.cuda import ptx_accesses
from tests.cuda.counted_kernels import line_of, one
from tests.cuda.nvrtc_helpers import NEEDS_NVRTC

pytestmark = pytest.mark.usefixtures("checked_kernels")

SOURCE = """
#include <cuda/atomic>
__constant__ float table[32];

__global__ void picks(const int* x, int* y) {
    int q[8];
    for (int i = 0; i < 8; ++i)
        q[i] = x[threadIdx.x + i];
    y[threadIdx.x] = q[x[threadIdx.x] & 7];
}

__global__ void histogram(const int* x, int* y, int n) {
    int bins[16] = {0};
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        bins[x[i] & 15]++;
    for (int i = 0; i < 16; ++i)
        y[16 * threadIdx.x + i] = bins[i];
}

__global__ void in_registers(const float* x, float* y) {
    float q[4];
    for (int i = 0; i < 4; ++i)
        q[i] = x[threadIdx.x + 32 * i];
    for (int i = 0; i < 4; ++i)
        y[threadIdx.x + 32 * i] = q[3 - i];
}

__global__ void wide(const float4* x, float4* y, int n) {
    float4 q[4];
    for (int i = 0; i < 4; ++i)
        q[i] = x[threadIdx.x + 32 * i];
    y[threadIdx.x] = q[n];
}

__global__ void constants(const int* at, float* y) {
    int i = at[threadIdx.x];
    y[threadIdx.x] = table[i];
}

__global__ void flags(int* at) {
    cuda::atomic_ref<int, cuda::thread_scope_device> flag(at[threadIdx.x]);
    int seen = flag.load();
    flag.store(seen + 1);
    flag.fetch_add(1);
}
"""
LANES = np.arange(32, dtype=np.int32)
INTS = np.arange(64, dtype=np.int32)


@cache
def kernels() -> cuda.Kernels:
    return cuda.compile_all(SOURCE, backend="simulator")


@cache
def theirs() -> dict[str, ptx_accesses.Function]:
    """Return the functions of NVIDIA's PTX by symbol."""
    return ptx_accesses.read(nvrtc.compile(SOURCE, options=("-lineinfo",)).ptx, "kernel.cu")


def local(profile: Any, text: str, op: str) -> tuple[int, int, int]:
    count = one(profile, line_of(SOURCE, text), "local", op)
    return count.requests, count.sectors, count.worst


def test_one_index_of_all_lanes_is_four_sectors() -> None:
    """The same word of 32 threads fills 128 bytes."""
    profile = kernels()["picks"].profile[1, 32](INTS, np.zeros(32, np.int32))
    assert local(profile, "q[i] = x[threadIdx.x + i]", "store") == (8, 8 * 4, 4)


def test_different_indices_lie_apart() -> None:
    """Eight neighbouring lanes with eight indices: 32 sectors; lanes with one index: 4."""
    picks = kernels()["picks"]
    y = np.zeros(32, np.int32)
    apart = picks.profile[1, 32](INTS, y)
    assert y.tolist() == [lane + (lane & 7) for lane in range(32)]
    together = picks.profile[1, 32](np.full(64, 5, np.int32), y)
    text = "y[threadIdx.x] = q[x"
    assert (local(apart, text, "load"), local(together, text, "load")) == ((1, 32, 32), (1, 4, 4))
    assert (apart.local_load_requests, apart.local_load_sectors) == (1, 32)


def test_an_initial_value_is_stored() -> None:
    """16 integers in four stores of 16 bytes, which fill 16 sectors each; each lane counts two numbers."""
    y = np.zeros(512, np.int32)
    profile = kernels()["histogram"].profile[1, 32](INTS, y, 64)
    assert (y.reshape(32, 16).sum(1) == 2).all()
    assert local(profile, "int bins[16] = {0}", "store") == (4, 4 * 16, 16)
    assert local(profile, "bins[x[i] & 15]++", "load")[0] == local(profile, "bins[x[i] & 15]++", "store")[0] == 2


def test_wide_elements_take_a_sector_for_each_word() -> None:
    x = np.zeros((128, 4), np.float32)
    profile = kernels()["wide"].profile[1, 32](x, x.copy(), 2)
    assert local(profile, "y[threadIdx.x] = q[n]", "load") == (1, 16, 16)


def test_registers_are_no_memory() -> None:
    profile = kernels()["in_registers"].profile[1, 32](np.zeros(128, np.float32), np.zeros(128, np.float32))
    assert profile.total("local", None, "requests") == 0
    assert (profile.global_load_requests, profile.global_store_requests) == (4, 4)


@NEEDS_NVRTC
@pytest.mark.parametrize("name", ["picks", "histogram", "in_registers", "wide"])
def test_nvcc_keeps_the_same_arrays_in_local_memory(name: str) -> None:
    (symbol,) = (symbol for symbol in theirs() if symbol.startswith(f"_Z{len(name)}{name}"))
    accesses = ptx_accesses.kernel(theirs(), symbol)
    x, y = cuda.zeros(1 << 12, np.uint8), cuda.zeros(1 << 12, np.uint8)
    more = {"histogram": (64,), "wide": (2,)}.get(name, ())
    profile = kernels()[name].profile[1, 32](x.address, y.address, *more)
    assert {(each.line, each.op) for each in profile.lines if each.space == "local"} == {
        (each.line, each.op) for each in accesses if each.space == "local"
    }


@pytest.mark.parametrize(("at", "passes"), [(LANES * 0, 1), (LANES % 2, 2), (LANES // 8, 4), (LANES, 32)])
def test_constant_cache_serves_one_address_at_a_time(at: Any, passes: int) -> None:
    profile = kernels()["constants"].profile[1, 32](at.astype(np.int32), np.zeros(32, np.float32))
    assert (profile.constant_load_requests, profile.constant_load_wavefronts) == (1, passes)
    assert (profile.global_load_requests, profile.bytes_read) == (1, 128)
    assert f"constant memory: 1 loads, {passes} passes" in str(profile)


def test_loads_and_stores_of_an_atomic_are_loads_and_stores() -> None:
    """ld.relaxed and st.relaxed in PTX; only the addition is an atomic."""
    x = np.zeros(32, np.int32)
    profile = kernels()["flags"].profile[1, 32](x)
    assert (x == 2).all()
    assert (profile.global_load_requests, profile.global_store_requests, profile.global_atomic_requests) == (1, 1, 1)


def test_report_names_local_memory() -> None:
    text = str(kernels()["picks"].profile[1, 32](INTS, np.zeros(32, np.int32)))
    assert "local memory: 9 requests, 2.05 kB in sectors" in text
