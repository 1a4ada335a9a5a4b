"""cuda::barrier, cuda::pipeline, cp.async, cuda::atomic, cuda::std: results, and what the race check makes of them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlsys_labkit import cuda
from mlsys_labkit.cuda.nvidia import nvrtc

pytestmark = pytest.mark.usefixtures("checked_kernels")

SOURCE = Path(__file__).with_name("synchronisation.cu")
RNG = np.random.default_rng(8)
SEEDS = (0, 2, 9)


@cache
def kernels() -> Any:
    return cuda.compile_all(SOURCE, backend="simulator")


def launch(name: str, grid: int, block: int, *arguments: Any, seed: int = 0) -> None:
    kernel = kernels()[name]
    check, run = (kernel.check.seeded(seed), kernel.seeded(seed)) if seed else (kernel.check, kernel)
    outputs = [each.copy() if isinstance(each, np.ndarray) else each for each in arguments]
    assert check[grid, block](*outputs) == []
    run[grid, block](*arguments)
    for plain, checked in zip(arguments, outputs, strict=True):
        np.testing.assert_array_equal(plain, checked)


def floats(count: int) -> Any:
    return RNG.integers(-50, 50, count).astype(np.float32)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_barrier_in_two_steps(seed: int) -> None:
    values, out = floats(64), np.zeros(64, np.float32)
    launch("arrive_then_wait", 2, 64, values, out, 5, seed=seed)
    np.testing.assert_array_equal(out, 5 * (values[::-1] + values) + 10)


@pytest.mark.parametrize("seed", SEEDS)
def test_threads_that_drop_out_of_a_barrier(seed: int) -> None:
    out = np.zeros(32, np.float32)
    launch("drop", 1, 64, out, seed=seed)
    np.testing.assert_array_equal(out, (63 - np.arange(32) + 1)[np.arange(32) ^ 1])


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("name", "width", "threads"), [("hand_over", 32, 64), ("staged", 64, 64), ("specialised", 32, 64)]
)
def test_producers_and_consumers(name: str, width: int, threads: int, seed: int) -> None:
    values = floats(width * 7)
    out = np.zeros_like(values)
    launch(name, 1, threads, values, out, 7, seed=seed)
    np.testing.assert_array_equal(out, values.reshape(7, width)[:, ::-1].reshape(-1))


@pytest.mark.parametrize("zeros", [0, 4, 12])
def test_primitives(zeros: int) -> None:
    values = floats(4 * 32 * 5)
    out = np.zeros_like(values)
    launch("primitives", 1, 32, values, out, 5, zeros)
    expected = values.reshape(5, 32, 4)[:, ::-1].copy()
    expected[:, :, 4 - zeros // 4 :] = 0
    np.testing.assert_array_equal(out, expected.reshape(-1))


def test_asynchronous_copies_are_counted_where_they_stand() -> None:
    values = floats(4 * 32 * 5)
    profile = kernels()["primitives"].profile[1, 32](values, np.zeros_like(values), 5, 0)
    assert profile.total("global", "load", "requests") == 5
    assert profile.total("global", "load", "sectors") == 5 * 16
    assert profile.total("shared", "store", "wavefronts") == 5 * 4
    source = SOURCE.read_text().splitlines()
    loads = [each.line for each in profile.lines if (each.space, each.op) == ("global", "load") and each.requests]
    assert len(loads) == 2
    assert all("__pipeline_memcpy_async" in source[line - 1] for line in loads)


@pytest.mark.parametrize("seed", SEEDS)
def test_operations_of_atomics(seed: int) -> None:
    values = RNG.integers(1, 1000, 256).astype(np.int32)
    ints = np.array([0, 2**31 - 1, 0, 0, 0], np.int32)
    total, most, threes = np.zeros(1, np.float32), np.zeros(1), np.zeros(1, np.uint64)
    launch("operations", 4, 64, values, ints, total, most, threes, seed=seed)
    assert list(ints) == [
        values.sum(),
        values.min(),
        np.bitwise_xor.reduce(values),
        np.bitwise_or.reduce(values),
        256,
    ]
    assert (total[0], most[0], threes[0]) == (128, values.max(), 768)


@pytest.mark.parametrize(("name", "kinds"), [("message_released", []), ("message_relaxed", ["global_race"])])
def test_only_an_order_that_releases_publishes(name: str, kinds: list[str]) -> None:
    kernel = cuda.compile(SOURCE.read_text() + f"// {name}\n", name, backend="simulator")  # device memory of its own
    out = np.zeros(1, np.int32)
    assert [each.kind for each in kernel.check[2, 32](out)] == kinds
    assert out[0] == 42


def test_targets() -> None:
    out = np.zeros(4, np.int32)
    launch("targets", 1, 1, out)
    assert list(out) == [2, 5, 2, 2**31 - 1]


MISUSE = {
    "nobody waits until the barrier is set up": (
        "if (threadIdx.x == 0) init(&b, 64);\n b.arrive_and_wait();",
        "shared_race",
    ),
    "an arrival alone orders nothing": (
        "if (threadIdx.x == 0) init(&b, 64);\n __syncthreads();\n"
        "s[threadIdx.x] = 1;\n (void)b.arrive();\n out[threadIdx.x] = s[63 - threadIdx.x];",
        "shared_race",
    ),
    "the barrier is never set up": ("b.arrive_and_wait();", "unset_barrier"),
    "too few arrive": (
        "if (threadIdx.x == 0) init(&b, 65);\n __syncthreads();\n b.arrive_and_wait();",
        "stuck_barrier",
    ),
}


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_of_a_barrier_is_found(name: str) -> None:
    code, kind = MISUSE[name]
    source = f"""
#include <cuda/barrier>
__global__ void f(int* out) {{
    __shared__ cuda::barrier<cuda::thread_scope_block> b;
    __shared__ int s[64];
    {code}
}}
"""
    found = cuda.compile(source, backend="simulator").check[1, 64](np.zeros(64, np.int32))
    assert kind in {each.kind for each in found}


def test_nvidias_compiler_takes_the_source() -> None:
    assert nvrtc.check(SOURCE.read_text()) == ()


def test_an_atomic_is_read_and_written_through_a_pointer_to_volatile():
    source = """
#include <cuda/atomic>
__global__ void f(int* x) {
  volatile cuda::atomic<int>* flag = reinterpret_cast<cuda::atomic<int>*>(x);
  flag->store(5, cuda::memory_order_release);
  x[1] = flag->load(cuda::memory_order_acquire) + 1;
}
"""
    x = np.zeros(2, np.int32)
    cuda.compile(source, backend="simulator")[1, 1](x)
    np.testing.assert_array_equal(x, [5, 6])
