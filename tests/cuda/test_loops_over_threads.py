"""Threads that do not wait run one after another in a loop of the module's own; the first that waits ends the loop."""

from __future__ import annotations

import numpy as np
import pytest

from mlsys_labkit import cuda
from mlsys_labkit.cuda.errors import CudaKernelError
from mlsys_labkit.cuda.kernel.compilation import Kernels
from tests.cuda.engine_helpers import ints, kinds

BLOCK = (8, 4, 5)
THREADS = 160

SOURCE = r"""
#include <cassert>
__device__ int number() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }

__global__ void number_threads(int* out, unsigned* lanes) {
    const int place = blockIdx.x * blockDim.x * blockDim.y * blockDim.z + number();
    out[place] += place + 1;
    asm("mov.u32 %0, %%laneid;" : "=r"(lanes[place]));
}

__global__ void first_ones_leave(int* out, int* seen, int first) {
    out[number()] += 1;
    if (number() < first) return;
    __syncthreads();
    for (int i = 0; i < blockDim.x * blockDim.y * blockDim.z; i++) seen[number()] += out[i];
}

__global__ void one_waits_for_a_later_one(int* flag, int* out, int waits, int sets) {
    if (number() == sets) __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
    if (number() == waits) while (!__atomic_load_n(flag, __ATOMIC_ACQUIRE)) {}
    out[number()] += 1;
}

__global__ void one_fails(int* out, int bad, int asserts) {
    out[number()] = 1;
    if (asserts) assert(number() != bad);
    else if (number() == bad) out[1 << 28] = 1;
}

__global__ void change_parameters(int* out, int value) {
    out += number();
    value += number();
    *out = value;
}
"""


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    kernels = cuda.compile_all(SOURCE, backend="simulator")
    assert isinstance(kernels, Kernels)
    return kernels


def coordinates(number: int) -> tuple[int, int, int]:
    return number % 8, number // 8 % 4, number // 32


def test_each_thread_runs_once_with_its_own_index(kernels: Kernels) -> None:
    out, lanes = ints(7 * THREADS), np.full(7 * THREADS, 99, np.uint32)
    kernels.number_threads[7, BLOCK](out, lanes)
    assert out.tolist() == list(range(1, 7 * THREADS + 1))
    assert lanes.tolist() == [place % THREADS % 32 for place in range(7 * THREADS)]


@pytest.mark.parametrize("first", [0, 1, 31, 32, 33, 100, 159, 160])
def test_a_barrier_that_the_first_threads_do_not_reach(kernels: Kernels, first: int) -> None:
    out, seen = ints(THREADS), ints(THREADS)
    kernels.first_ones_leave[1, BLOCK](out, seen, first)
    assert out.tolist() == [1] * THREADS
    assert seen.tolist() == [0] * first + [THREADS] * (THREADS - first)


@pytest.mark.parametrize(("waits", "sets"), [(0, 159), (37, 38), (40, 130)])
def test_a_thread_that_spins_lets_later_ones_run(kernels: Kernels, waits: int, sets: int) -> None:
    flag, out = ints(1), ints(THREADS)
    kernels.one_waits_for_a_later_one[1, BLOCK](flag, out, waits, sets)
    assert out.tolist() == [1] * THREADS


@pytest.mark.parametrize("bad", [0, 1, 31, 32, 100, 159])
@pytest.mark.parametrize(("asserts", "kind"), [(0, "illegal_address"), (1, "assertion")])
def test_an_error_names_its_thread(kernels: Kernels, bad: int, asserts: int, kind: str) -> None:
    with pytest.raises(CudaKernelError) as caught:
        kernels.one_fails[1, BLOCK](ints(THREADS), bad, asserts)
    assert kinds(caught.value.findings) == {kind}
    assert caught.value.findings[0].thread == coordinates(bad)


def test_each_thread_gets_the_parameters_as_they_were_passed(kernels: Kernels) -> None:
    out = ints(THREADS)
    kernels.change_parameters[1, BLOCK](out, 5)
    assert out.tolist() == list(range(5, 5 + THREADS))
