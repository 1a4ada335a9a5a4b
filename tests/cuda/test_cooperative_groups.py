"""Cooperative groups against numpy, in the natural order of threads and in others."""

from __future__ import annotations

from functools import cache, reduce
from itertools import accumulate
from operator import xor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlsys_labkit import cuda
from mlsys_labkit.cuda.nvidia import nvrtc

pytestmark = pytest.mark.usefixtures("checked_kernels")

SOURCE = Path(__file__).with_name("groups.cu")
RNG = np.random.default_rng(5)
SEEDS = (0, 3, 4)


@cache
def kernels() -> Any:
    return cuda.compile_all(SOURCE, backend="simulator")


def launch(name: str, grid: Any, block: Any, shared: int, *arguments: Any, seed: int = 0) -> None:
    """Run the kernel plainly and under check; check must find nothing and both runs must compute the same."""
    kernel = kernels()[name]
    check, plain_run = (kernel.check.seeded(seed), kernel.seeded(seed)) if seed else (kernel.check, kernel)
    outputs = [each.copy() if isinstance(each, np.ndarray) else each for each in arguments]
    found = check[grid, block, shared](*outputs)
    assert found == []
    plain_run[grid, block, shared](*arguments)
    for plain, checked in zip(arguments, outputs, strict=True):
        np.testing.assert_array_equal(plain, checked)


def int32(count: int) -> Any:
    return np.zeros(count, np.int32)


def bits(flags: list[bool]) -> int:
    return int(np.array(sum(1 << place for place, flag in enumerate(flags) if flag), np.uint32).astype(np.int32))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_block_and_the_grid_know_their_threads(seed: int) -> None:
    extent, blocks = (4, 3, 2), (3, 2)
    out = int32(8 * 24 * 6)
    launch("block", blocks, extent, 0, out, seed=seed)
    for number, row in enumerate(out.reshape(-1, 8)):
        block, rank = divmod(number, 24)
        place = [rank, 24, block % 3, block // 3, rank // 12, 3, number, block + 100 * 6 + 10000 * 144]
        assert list(row) == place


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("size", [1, 2, 4, 8, 16, 32])
def test_tiles(size: int, seed: int) -> None:
    values = RNG.integers(0, 100, 64).astype(np.int32)
    out = int32(64 * 16)
    launch(f"tile{size}", 1, 64, 0, values, out, seed=seed)
    for thread, row in enumerate(out.reshape(-1, 16)):
        number, rank = divmod(thread, size)
        mine = [int(value) for value in values[number * size : (number + 1) * size]]
        high = [value > 50 for value in mine]
        alike = [value % 3 == mine[rank] % 3 for value in mine]
        running = list(accumulate(mine))
        assert list(row) == [
            rank,
            number,
            64 // size,
            mine[1 % size],
            mine[max(rank - 1, 0)],
            mine[min(rank + 1, size - 1)],
            mine[rank ^ size // 2],
            any(high),
            all(high),
            bits(high),
            bits(alike),
            sum(mine),
            max(mine),
            running[rank],
            running[rank] - mine[rank],
            reduce(xor, mine),
        ]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 1.0])
def test_coalesced_threads(share: float, seed: int) -> None:
    values = RNG.integers(0, 100, 32).astype(np.int32)
    chosen = (RNG.random(32) < share).astype(np.int32)
    chosen[7] = 1
    out = int32(32 * 16)
    launch("coalesced", 1, 32, 0, values, chosen, out, seed=seed)
    lanes = [lane for lane in range(32) if chosen[lane]]
    mine = [int(values[lane]) for lane in lanes]
    high, running, count = [value > 50 for value in mine], list(accumulate(mine)), len(mine)
    labels = list(dict.fromkeys(value % 3 for value in mine))  # by their lowest lane
    for rank, lane in enumerate(lanes):
        alike = [value % 3 == mine[rank] % 3 for value in mine]
        agree = [flag == high[rank] for flag in high]
        expected = [
            rank,
            count,
            mine[-1],
            mine[rank - 2 if rank >= 2 else rank],
            mine[rank + 2 if rank + 2 < count else rank],
            any(high),
            all(high),
            bits(high),
            bits(alike),
            sum(mine),
            min(mine),
            running[rank],
            running[rank] - mine[rank],
            sum(alike[:rank]) + 100 * sum(alike) + 10000 * labels.index(mine[rank] % 3),
            sum(agree[:rank]) + 100 * sum(agree) + 10000 * (high[rank] if not all(agree) else 0),
            rank % 4 + 100 * min(4, count - rank // 4 * 4) + 10000 * (rank // 4),
        ]
        assert list(out[16 * lane : 16 * lane + 16]) == expected
    assert not out.reshape(32, 16)[chosen == 0].any()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_function_that_takes_any_group(seed: int) -> None:
    values = RNG.integers(0, 100, 64).astype(np.int32)
    out = int32(128)
    launch("any_group", 1, 64, 0, values, out, seed=seed)
    assert out[0] == values.sum()
    np.testing.assert_array_equal(out[64::8], values.reshape(8, 8).sum(axis=1))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_grid_barrier_orders_all_blocks(seed: int) -> None:
    values = np.arange(16 * 64, dtype=np.int32)
    expected = np.roll(values, -3 * 64)
    launch("grid", 16, 64, 0, values, values.size, seed=seed)
    np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize("count", [4, 31, 128, 130, 132])
def test_a_shared_copy(count: int) -> None:
    values, out = np.arange(count, dtype=np.float32), np.zeros(count, np.float32)
    launch("copied", 1, 64, 4 * count, values, out, count)
    np.testing.assert_array_equal(out, values[::-1])


def test_a_shared_copy_is_as_wide_as_it_can_be() -> None:
    values, out = np.arange(256, dtype=np.float32), np.zeros(256, np.float32)
    profile = kernels()["copied"].profile[1, 64, 1024](values, out, 256)
    line = next(each for each in profile.lines if each.space == "global" and each.op == "load")
    assert (line.bytes_per_lane, line.requests, line.sectors) == (16, 2, 32)


def test_one_thread_of_a_group() -> None:
    out = int32(65)
    launch("once", 1, 64, 0, out)
    assert out[0] == 4
    np.testing.assert_array_equal(out[1:], np.arange(64) // 16 * 16 + 5)


def test_a_sum_of_floats_is_added_as_on_a_gpu() -> None:
    """Halves of the tile, then quarters, ...: the order of CUDA's own header, in float32."""
    source = """
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
__global__ void f(const float* values, float* out) {
    auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    out[threadIdx.x] = cg::reduce(warp, values[threadIdx.x], cg::plus<float>());
}
"""
    values = RNG.standard_normal(32).astype(np.float32)
    out = np.zeros(32, np.float32)
    kernel = cuda.compile(source, backend="simulator")
    kernel[1, 32](values, out)
    partial = values
    for distance in (16, 8, 4, 2, 1):
        partial = partial + partial[np.arange(32) ^ distance]
    np.testing.assert_array_equal(out, partial)
    assert kernel.profile[1, 32](values, out).flops == 32 * 5


BARRIERS = {
    "a tile's barrier is not the block's": ("cg::tiled_partition<32>(cg::this_thread_block()).sync();", "shared_race"),
    "a barrier of half a warp is not the warp's": (
        "cg::tiled_partition<16>(cg::this_thread_block()).sync();",
        "shared_race",
    ),
    "a block's barrier": ("cg::this_thread_block().sync();", ""),
    "a barrier by name": ("cg::sync(cg::this_thread_block());", ""),
    "a barrier that is passed in two steps": (
        "auto block = cg::this_thread_block(); block.barrier_wait(block.barrier_arrive());",
        "",
    ),
    "two barriers where one is meant": (
        "if (threadIdx.x < 32) cg::this_thread_block().sync();\n else cg::this_thread_block().sync();",
        "divergent_barrier",
    ),
}


@pytest.mark.parametrize("name", BARRIERS)
def test_what_barriers_of_groups_order(name: str) -> None:
    barrier, kind = BARRIERS[name]
    source = f"""
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void f(int* out) {{
    __shared__ int s[64];
    s[threadIdx.x] = threadIdx.x;
    {barrier}
    out[threadIdx.x] = s[63 - threadIdx.x];
}}
"""
    found = cuda.compile(source, backend="simulator").check[1, 64](int32(64))
    assert {each.kind for each in found} >= {kind} if kind else not found


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("cg::tiled_partition<64>(cg::this_thread_block()).sync();", "more than one warp"),
        ("cg::tiled_partition<3>(cg::this_thread_block()).sync();", "power of two"),
    ],
)
def test_features_left_out_are_named(code: str, words: str) -> None:
    source = f"#include <cooperative_groups.h>\nnamespace cg = cooperative_groups;\n__global__ void f() {{ {code} }}"
    with pytest.raises(cuda.CudaCompileError, match=words):
        cuda.compile(source, backend="simulator", strict=False)


def test_nvidias_compiler_takes_the_source() -> None:
    assert nvrtc.check(SOURCE.read_text()) == ()
