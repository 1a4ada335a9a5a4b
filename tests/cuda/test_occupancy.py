"""Occupancy equals NVIDIA's own calculator, which ships as a C header, and the figures that NVIDIA publishes."""

from __future__ import annotations

import ctypes
import dataclasses
import re
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from mlsys_labkit.cuda.errors import CudaError, CudaLaunchError
from mlsys_labkit.cuda.nvidia.occupancy import LIMITS, limits_of, occupancy

HEADER = Path(sysconfig.get_path("purelib")) / "nvidia" / "cu13" / "include" / "cuda_occupancy.h"
RUNTIME = HEADER.with_name("cuda_runtime_api.h")
VERSION = int(re.findall(r"CUDART_VERSION +(\d+)", RUNTIME.read_text())[0]) if RUNTIME.exists() else 0

# The device is described with numbers of its own: threads an SM and shared memory an SM, as the CUDA Programming
# Guide tabulates them (7.0: its edition 12.9). Granularities, blocks an SM and barriers an SM are the header's.
GUIDE = {  # warps an SM, shared memory an SM in KiB, the most a block may have in KiB
    "sm_70": (64, 96, 96),
    "sm_75": (32, 64, 64),
    "sm_80": (64, 164, 163),
    "sm_86": (48, 100, 99),
    "sm_87": (48, 164, 163),
    "sm_89": (48, 100, 99),
    "sm_90": (64, 228, 227),
    "sm_100": (64, 228, 227),
    "sm_103": (64, 228, 227),
    "sm_110": (48, 228, 227),
    "sm_120": (48, 100, 99),
    "sm_121": (48, 100, 99),
}

ORACLE = r"""
#include <cuda_occupancy.h>
extern "C" int blocks(int major, int minor, int warps, int shared_sm, int shared_block, int threads, int registers,
                      int shared, int barriers, unsigned* limits) {
    cudaOccDeviceProp device;
    device.computeMajor = major;
    device.computeMinor = minor;
    device.maxThreadsPerBlock = 1024;
    device.maxThreadsPerMultiprocessor = 32 * warps;
    device.regsPerBlock = 65536;
    device.regsPerMultiprocessor = 65536;
    device.warpSize = 32;
    device.sharedMemPerBlock = 48 << 10;
    device.sharedMemPerMultiprocessor = shared_sm;
    device.sharedMemPerBlockOptin = shared_block;
    device.reservedSharedMemPerBlock = major >= 8 ? 1024 : 0;
    device.numSms = 1;
    cudaOccFuncAttributes function;
    function.maxThreadsPerBlock = 1024;
    function.numRegs = registers;
    function.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
    function.maxDynamicSharedSizeBytes = shared_block;
    function.numBlockBarriers = barriers;
    cudaOccDeviceState state;
    cudaOccResult result;
    if (cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &function, &state, threads, shared)) return -1;
    *limits = result.limitingFactors;
    return result.activeBlocksPerMultiprocessor;
}
"""
BITS = {"warps": 1, "registers": 2, "shared memory": 4, "blocks": 8, "barriers": 16}

Calculator = Callable[[str, int, int, int, int], tuple[int, int]]


@pytest.fixture(scope="module")
def calculator(tmp_path_factory: pytest.TempPathFactory) -> Calculator:
    if not HEADER.exists():
        pytest.skip("needs the header cuda_occupancy.h; run: pip install nvidia-cuda-runtime")
    folder = tmp_path_factory.mktemp("calculator")
    (folder / "oracle.cpp").write_text(ORACLE)
    library = folder / "oracle.so"
    command = ["g++", "-shared", "-fPIC", "-O1", f"-I{HEADER.parent}", "-o", str(library), str(folder / "oracle.cpp")]
    subprocess.run(command, check=True)
    oracle = ctypes.CDLL(str(library)).blocks

    def calculate(arch: str, threads: int, registers: int, shared: int, barriers: int) -> tuple[int, int]:
        number = int(arch.removeprefix("sm_"))
        warps, shared_sm, shared_block = GUIDE[arch]
        limits = ctypes.c_uint()
        device = (number // 10, number % 10, warps, shared_sm << 10, shared_block << 10)
        blocks = oracle(*device, threads, registers, shared, barriers, ctypes.byref(limits))
        return blocks, limits.value

    return calculate


def test_the_whole_table_is_compared() -> None:
    assert set(GUIDE) == set(LIMITS)


@settings(max_examples=3000, deadline=None)
@given(
    arch=st.sampled_from(sorted(GUIDE)),
    threads=st.one_of(st.integers(1, 1100), st.integers(1, 33).map(lambda warps: 32 * warps)),
    registers=st.integers(0, 255),
    shared=st.one_of(st.integers(0, 240 << 10), st.integers(0, 227).map(lambda kib: kib << 10)),
    barriers=st.integers(0, 16),
)
def test_occupancy_equals_the_calculators(
    calculator: Calculator, arch: str, threads: int, registers: int, shared: int, barriers: int
) -> None:
    if arch == "sm_103" and VERSION < 13050:
        barriers = 0  # these headers give it the barriers of sm_100, and CUDA 13.5 half of them
    blocks, bits = calculator(arch, threads, registers, shared, barriers)
    ours = occupancy(arch, threads, registers, shared, barriers=barriers)
    assert ours.blocks_per_sm == blocks
    if "barriers" in ours.limits:
        assert bits & BITS["barriers"]  # the header leaves the bits of what allowed the most before it came to barriers
    else:
        assert sum(BITS[name] for name in ours.limits) == bits


@pytest.mark.parametrize("arch", sorted(GUIDE))
@pytest.mark.parametrize("over", [-1, 0, 1])
def test_the_edge_of_shared_memory(calculator: Calculator, arch: str, over: int) -> None:
    """One byte too many and the block does not fit: a table without the reserve would differ here."""
    limits = LIMITS[arch]
    assert occupancy(arch, 32, 32, limits.shared_per_block + over).blocks_per_sm == (over <= 0)
    for blocks in range(1, limits.blocks_per_sm):
        shared = limits.shared_per_sm // blocks - limits.shared_reserved + over
        if shared <= limits.shared_per_block:
            assert occupancy(arch, 32, 32, shared).blocks_per_sm == calculator(arch, 32, 32, shared, 1)[0]


@pytest.mark.parametrize(
    ("arch", "threads", "registers", "blocks", "percent"),
    [
        # CUDA C++ Best Practices Guide, "Occupancy": 37 registers on compute capability 7.0.
        ("sm_70", 128, 37, 12, 75),
        ("sm_70", 320, 37, 4, 62.5),
        # The same: 32 registers are the most for 100 %.
        ("sm_70", 1024, 32, 2, 100),
        ("sm_70", 1024, 33, 1, 50),
        # Hopper Tuning Guide: 64 warps and 32 blocks an SM; so one warp a block fills half.
        ("sm_90", 32, 32, 32, 50),
        # NVIDIA Ampere GPU Architecture Tuning Guide: 8.6 has 48 warps and 16 blocks.
        ("sm_86", 96, 32, 16, 100),
        ("sm_86", 64, 32, 16, 200 / 3),
    ],
)
def test_published_figures(arch: str, threads: int, registers: int, blocks: int, percent: float) -> None:
    found = occupancy(arch, threads, registers)
    assert found.blocks_per_sm == blocks
    assert 100 * found.fraction == pytest.approx(percent)


def test_the_text_names_the_binding_resources() -> None:
    assert str(occupancy("sm_90", 1024, 40)) == (
        "1 block, 32 of 64 warps (50 %) an SM on sm_90: registers allow no more"
    )
    assert occupancy("sm_90", 256, 32, 40 << 10).limit == "shared memory"
    assert occupancy("sm_90", 256, 32, 40 << 10).blocks_allowed["registers"] == 8
    assert str(occupancy("sm_90", 1025, 32)).startswith("no block fits on an SM of sm_90: warps allow none")
    assert occupancy("sm_90a", 256, 32) == occupancy("sm_90", 256, 32)


def test_limits_travel_to_a_widget() -> None:
    assert dataclasses.asdict(limits_of("sm_90"))["shared_per_block"] == 227 << 10


@pytest.mark.parametrize("wrong", ["h100", "sm_61", "90", ""])
def test_an_unknown_architecture_lists_the_known(wrong: str) -> None:
    with pytest.raises(CudaError, match=r"expected one of sm_70, .* sm_90, "):
        occupancy(wrong, 128, 32)


@pytest.mark.parametrize("wrong", [{"threads": 0}, {"registers": -1}, {"shared_bytes": -1}])
def test_impossible_amounts_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(CudaLaunchError, match="expected at least 1 thread"):
        occupancy(**{"arch": "sm_90", "threads": 32, "registers": 32} | wrong)  # type: ignore[arg-type]
