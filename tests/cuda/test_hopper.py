"""Bulk copies, mbarriers and clusters: results, counts, and the bugs that check names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlsys_labkit import cuda
from mlsys_labkit.cuda.nvidia import nvrtc
from tests.cuda.hopper_kernels import BUGS, CLUSTER, INCLUDES, MULTICAST, PTX, RING, STORE, Planted
from tests.cuda.nvrtc_helpers import NEEDS_NVRTC
from tests.cuda.program_helpers import run

TILES = 7
KERNELS = {"ring": RING, "store": STORE, "reduce": CLUSTER, "multicast": MULTICAST, "exchange": PTX}
SHAPES = {"ring": (1, 96), "store": (1, 64), "reduce": (8, 32), "multicast": (4, 64), "exchange": (4, 64)}
SEEDS = range(4)


def arguments(name: str) -> tuple[Any, ...]:
    if name == "ring":
        return np.arange(TILES * 128, dtype=np.float32), np.zeros(64, np.float32), TILES
    if name == "store":
        return np.arange(768, dtype=np.int32), 3
    size = 2 if name == "reduce" else 256
    return np.arange(256, dtype=np.int32), np.zeros(size, np.int32)


def expected(name: str) -> np.ndarray:
    if name == "ring":
        return arguments(name)[0].reshape(2 * TILES, 64).sum(0)
    if name == "store":
        return np.arange(768) + 1
    if name == "reduce":
        return np.arange(256).reshape(2, 128).sum(1)
    if name == "exchange":
        tiles = np.arange(256).reshape(4, 64)
        return (tiles + np.tile(tiles[[1, 0, 3, 2], :32], 2)).reshape(-1)
    pairs = [128 * (block // 2) + part + np.arange(64) for block in range(4) for part in (0, 64)]
    return np.concatenate([pairs[2 * block] + pairs[2 * block + 1] for block in range(4)])


def result(name: str, given: tuple[Any, ...]) -> np.ndarray:
    return given[0] if name == "store" else given[1]


def kernel_of(bug: Planted) -> str:
    return next(name for name in KERNELS if f" {name}(" in bug.kernel)


def planted(number: int, bug: Planted) -> str:
    assert bug.kernel.count(bug.old) == 1
    return f"namespace bug{number} {{\n{bug.kernel.replace(bug.old, bug.new)}}}\n"


ALL = INCLUDES + "".join(planted(number, bug) for number, bug in enumerate(BUGS.values()))  # one run of g++


def check(name: str, seed: int) -> list[Any]:
    own = kernel_of(BUGS[name])
    kernel = cuda.compile_all(ALL, backend="simulator")[f"bug{list(BUGS).index(name)}::{own}"]
    launch = kernel.check.seeded(seed) if seed else kernel.check
    return launch[SHAPES[own]](*arguments(own))


@pytest.mark.parametrize("name", KERNELS)
def test_correct_kernel_has_its_result_and_no_finding_in_any_order(name: str) -> None:
    kernel = cuda.compile(INCLUDES + KERNELS[name], name, backend="simulator")
    for seed in SEEDS:
        plain, checked = arguments(name), arguments(name)
        (kernel.seeded(seed) if seed else kernel)[SHAPES[name]](*plain)
        np.testing.assert_array_equal(result(name, plain), expected(name))
        launch = kernel.check.seeded(seed) if seed else kernel.check
        assert launch[SHAPES[name]](*checked) == []
        np.testing.assert_array_equal(result(name, checked), expected(name))


@pytest.mark.parametrize("name", BUGS)
def test_planted_bug_is_named_with_its_line(name: str) -> None:
    bug = BUGS[name]
    found = check(name, 0)
    assert {one.kind for one in found} == {bug.kind}, found
    assert all(bug.marker in one.source_line for one in found), found
    assert bug.words in found[0].message


@pytest.mark.parametrize("name", BUGS)
def test_planted_bug_is_found_in_other_orders(name: str) -> None:
    assert all(check(name, seed) for seed in SEEDS if seed)


@NEEDS_NVRTC
def test_nvidias_compiler_takes_the_kernels() -> None:
    # The headers of CUDA 13.0 have the copy to several blocks on sm_90a alone, those of 13.5 on sm_90, too.
    assert nvrtc.check(INCLUDES + MULTICAST, "multicast", "sm_90a") == ()
    others = (f"namespace of_{name} {{\n{text}}}\n" for name, text in KERNELS.items() if name != "multicast")
    assert nvrtc.check(INCLUDES + "".join(others), arch="sm_90") == ()  # the headers take two seconds each time


def test_bulk_copies_are_counted_as_the_sectors_they_move() -> None:
    kernel = cuda.compile(INCLUDES + STORE, "store", backend="simulator")
    profile = kernel.profile[1, 64](*arguments("store"))
    counts = {one.op: (one.sectors, one.lanes * one.bytes_per_lane) for one in profile.lines if one.space == "global"}
    assert counts == {"load": (96, 3072), "store": (96, 3072)}
    assert (profile.bytes_read, profile.bytes_written) == (3072, 3072)
    assert (profile.bulk_copies, profile.bulk_bytes_in_flight) == (6, 1024)
    assert "6 bulk copies, at most 1.02 kB in flight into one block" in str(profile)


def test_graded_kernels_may_have_clusters_and_copies() -> None:
    for name in ("reduce", "store"):
        kernel = cuda.compile(INCLUDES + KERNELS[name], name, backend="simulator", graded=True)
        assert kernel.check[SHAPES[name]](*arguments(name)) == []
        kernel.profile[SHAPES[name]](*arguments(name))


def test_bytes_in_flight_are_those_of_all_stages() -> None:
    profile = cuda.compile(INCLUDES + RING, "ring", backend="simulator").profile[1, 96](*arguments("ring"))
    assert (profile.bulk_copies, profile.bulk_bytes_in_flight) == (TILES, 3 * 512)


def test_a_copy_that_is_not_waited_for_arrives_late_in_a_plain_run() -> None:
    text = STORE.replace("bar.wait(std::move(token));  // wait", "")
    kernel = cuda.compile(INCLUDES + text, "store", backend="simulator")
    given = arguments("store")
    kernel[1, 64](*given)
    assert (given[0] != expected("store")).any()


def test_deadlock_of_a_plain_run_is_named() -> None:
    bug = BUGS["too many bytes are expected"]
    kernel = cuda.compile(INCLUDES + bug.kernel.replace(bug.old, bug.new), "ring", backend="simulator")
    with pytest.raises(cuda.CudaKernelError, match="16 of 528 expected bytes"):
        kernel[1, 96](*arguments("ring"))


@pytest.mark.parametrize(
    ("grid", "dims", "words"), [(6, "4", "multiple of the cluster"), (32, "32", "at most 16"), (4, "1, 2", "multiple")]
)
def test_grid_that_cannot_have_the_cluster_is_refused(grid: int, dims: str, words: str) -> None:
    kernel = cuda.compile(f"__global__ void __cluster_dims__({dims}) f(int* p) {{ *p = 1; }}", backend="simulator")
    with pytest.raises(cuda.CudaError, match=words):
        kernel[grid, 32](np.zeros(1, np.int32))


@pytest.mark.parametrize("check", [False, True])
def test_program_launches_with_a_cluster_of_its_own_and_a_declared_one(check: bool) -> None:
    program = run(Path(__file__).with_name("cluster_histogram.cu").read_text(), check=check)
    assert program.stdout.split("\n")[:3] == ["no error", "bad 0 fixed 20 21 20 21", "cudaErrorInvalidClusterSize"]
    assert (program.findings, program.notes) == ((), ())


PART = """#include <cuda_awbarrier_primitives.h>
__global__ void part(int* out) {
    __shared__ int s[64], all[96];
    __shared__ __mbarrier_t bar;
    if (threadIdx.x == 0) __mbarrier_init(&bar, 96);
    if (threadIdx.x >= 32) {
        int t = threadIdx.x - 32;
        s[t] = t;
        asm volatile("bar.sync 1, 64;" ::: "memory");  // sync
        out[t] = s[63 - t];
    }
    __syncthreads();
    all[threadIdx.x] = threadIdx.x;
    uint64_t token = __mbarrier_arrive(&bar);
    while (!__mbarrier_try_wait(&bar, token, 1000)) {}
    out[64 + threadIdx.x] = all[95 - threadIdx.x];
}
"""


@pytest.mark.parametrize("kept", [True, False])
def test_barrier_of_a_part_of_the_block_and_primitives_of_c(kept: bool) -> None:
    lines = [line for line in PART.splitlines() if kept or "// sync" not in line]
    out = np.zeros(160, np.int32)
    found = cuda.compile("\n".join(lines), "part", backend="simulator").check[1, 96](out)
    assert {one.kind for one in found} == (set() if kept else {"shared_race"})
    if kept:
        np.testing.assert_array_equal(out, [*range(63, -1, -1), *range(95, -1, -1)])


def test_barrier_of_a_part_that_some_never_reach_is_a_finding() -> None:
    text = PART.replace('asm volatile("bar.sync 1, 64;"', 'if (t < 32) asm volatile("bar.sync 1, 64;"')
    found = cuda.compile(text, "part", backend="simulator").check[1, 96](np.zeros(160, np.int32))
    assert "divergent_barrier" in {one.kind for one in found}


RANKS = """#include <cooperative_groups.h>
#include <cstdio>
namespace own {
template <int ROWS, class T, int COLUMNS>
__global__ void __cluster_dims__(ROWS * COLUMNS, 1, 1) ranks(T* out) {
  cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
  out[blockIdx.x] = 100 * cluster.num_blocks() + cluster.block_rank();
}
}
constexpr int WIDE = 2;
template <class T, int COUNT = WIDE>
__global__ void __cluster_dims__(WIDE) fixed(T* out) {
  out[blockIdx.x] = cooperative_groups::this_cluster().num_blocks();
}
struct Two { static constexpr int size = 2; };
template <class Config>
__global__ void __cluster_dims__(Config::size) of_type(int* out) { *out = 0; }
int main() {
  int *d, h[4];
  cudaMalloc(&d, sizeof h);
  auto* kernel = own::ranks<2, int, 1>;
  kernel<<<4, 1>>>(d);
  cudaMemcpy(h, d, sizeof h, cudaMemcpyDeviceToHost);
  printf("%d %d %d %d\\n", h[0], h[1], h[2], h[3]);
  own::ranks<1, int, 4><<<4, 1>>>(d);
  cudaMemcpy(h, d, sizeof h, cudaMemcpyDeviceToHost);
  printf("%d %d %d %d\\n", h[0], h[1], h[2], h[3]);
  fixed<int><<<4, 1>>>(d);
  cudaMemcpy(h, d, sizeof h, cudaMemcpyDeviceToHost);
  printf("%d\\n", h[0]);
  of_type<Two><<<4, 1>>>(d);
}
"""


def test_cluster_may_depend_on_template_arguments_and_the_launch_on_a_pointer() -> None:
    program = run(RANKS)
    assert program.stdout == "200 201 200 201\n400 401 402 403\n2\n"
    (note,) = program.notes
    assert "of_type<Two>" in note
    assert "depend on template arguments: left out" in note
