"""Asynchronous copies without a wait: found by check under every order; correct twins have no findings."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from mlsys_labkit import cuda
from mlsys_labkit.cuda.nvidia import nvrtc

pytestmark = pytest.mark.usefixtures("checked_kernels")

SEEDS = range(6)  # 0 is the natural order
THREADS, TILES = 64, 5

INCLUDES = """
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda_pipeline.h>
namespace cg = cooperative_groups;
"""

# Double-buffered tiles: the next one is under way while this one is read, reversed, by other threads than copied it.
PRIMITIVES = """
__global__ void f(const float* in, float* out, int tiles) {
    __shared__ float s[2][64];
    const int t = threadIdx.x;
    __pipeline_memcpy_async(&s[0][t], &in[t], 4);  // first
    __pipeline_commit();
    for (int i = 0; i < tiles; i++) {
        if (i + 1 < tiles) __pipeline_memcpy_async(&s[(i + 1) % 2][t], &in[64 * (i + 1) + t], 4);  // next
        $1
        $2
        $3
        out[64 * i + t] = s[i % 2][63 - t];  // read
        __syncthreads();
    }
}
"""
GROUP = """
__global__ void f(const float* in, float* out, int tiles) {
    __shared__ alignas(16) float s[2][64];
    const int t = threadIdx.x;
    auto block = cg::this_thread_block();
    cg::memcpy_async(block, s[0], in, sizeof s[0]);  // first
    for (int i = 0; i < tiles; i++) {
        if (i + 1 < tiles) cg::memcpy_async(block, s[(i + 1) % 2], in + 64 * (i + 1), sizeof s[0]);  // next
        $1
        out[64 * i + t] = s[i % 2][63 - t];  // read
        block.sync();
    }
}
"""
OWN_PIPELINE = """
__global__ void f(const float* in, float* out, int tiles) {
    __shared__ float s[2][64];
    const int t = threadIdx.x;
    auto pipe = cuda::make_pipeline();
    for (int i = 0, next = 0; i < tiles; i++) {
        for (; next < tiles && next < i + 2; next++) {
            pipe.producer_acquire();
            cuda::memcpy_async(&s[next % 2][t], &in[64 * next + t], sizeof(float), pipe);  // next
            pipe.producer_commit();
        }
        $1
        __syncthreads();
        out[64 * i + t] = s[i % 2][63 - t];  // read
        __syncthreads();
        pipe.consumer_release();
    }
}
"""
BLOCK_PIPELINE = """
__global__ void f(const float* in, float* out, int tiles) {
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    __shared__ alignas(16) float s[2][64];
    const int t = threadIdx.x;
    auto block = cg::this_thread_block();
    auto pipe = cuda::make_pipeline(block, &state);
    for (int i = 0, next = 0; i < tiles; i++) {
        for (; next < tiles && next < i + 2; next++) {
            pipe.producer_acquire();
            cuda::memcpy_async(block, s[next % 2], in + 64 * next, sizeof s[0], pipe);  // next
            pipe.producer_commit();
        }
        $1
        out[64 * i + t] = s[i % 2][63 - t];  // read
        $2
        pipe.consumer_release();
    }
}
"""
BARRIER = """
__global__ void f(const float* in, float* out, int tiles) {
    __shared__ cuda::barrier<cuda::thread_scope_block> bar;
    __shared__ alignas(16) float s[64];
    const int t = threadIdx.x;
    auto block = cg::this_thread_block();
    if (t == 0) init(&bar, 64);
    __syncthreads();
    for (int i = 0; i < tiles; i++) {
        cuda::memcpy_async(block, s, in + 64 * i, sizeof s, bar);  // next
        $1
        out[64 * i + t] = s[63 - t];  // read
        __syncthreads();
    }
}
"""
OWN_ELEMENT = """
__global__ void f(const float* in, float* out, int tiles) {
    __shared__ float s[64];
    const int t = threadIdx.x;
    for (int i = 0; i < tiles; i++) {
        __pipeline_memcpy_async(&s[t], &in[64 * i + 63 - t], 4);  // next
        __pipeline_commit();
        $1
        out[64 * i + t] = s[t];  // read
    }
}
"""

SYNC, COMMIT, WAIT = "__syncthreads();", "__pipeline_commit();", "pipe.consumer_wait();"
ARRIVE = "auto token = bar.arrive();"
# A template, and what stands in the places of $1, $2 and $3.
CORRECT: dict[str, tuple[str, ...]] = {
    "primitives": (PRIMITIVES, COMMIT, "__pipeline_wait_prior(1);", SYNC),
    "primitives, all at once": (PRIMITIVES, COMMIT, "__pipeline_wait_prior(0);", SYNC),
    "group": (GROUP, "if (i + 1 < tiles) cg::wait_prior<1>(block); else cg::wait(block);"),
    "group, all at once": (GROUP, "cg::wait(block);"),
    "own pipeline": (OWN_PIPELINE, WAIT),
    "own pipeline, by number": (
        OWN_PIPELINE,
        "if (i + 1 < tiles) cuda::pipeline_consumer_wait_prior<1>(pipe);"
        " else cuda::pipeline_consumer_wait_prior<0>(pipe);",
    ),
    "block's pipeline": (BLOCK_PIPELINE, WAIT, ""),
    "barrier": (BARRIER, "bar.arrive_and_wait();"),
    "barrier in two steps": (BARRIER, f"{ARRIVE} bar.wait(cuda::std::move(token));"),
    "one waits and tells all": (BARRIER, f"{ARRIVE} if (t == 0) bar.wait(cuda::std::move(token)); {SYNC}"),
    "own element": (OWN_ELEMENT, "__pipeline_wait_prior(0);"),
}
NO_WAIT, NO_COMMIT = "no wait for the copy comes before", "so no wait ends it, comes before"
BUGGY: dict[str, tuple[str, ...]] = {
    "no wait": (PRIMITIVES, COMMIT, "", SYNC),
    "one batch too few": (PRIMITIVES, COMMIT, "__pipeline_wait_prior(2);", SYNC),
    "no commit in the loop": (PRIMITIVES, "", "__pipeline_wait_prior(1);", SYNC),
    "no commit, all awaited": (PRIMITIVES, "", "__pipeline_wait_prior(0);", SYNC),
    "no commit for the last": (PRIMITIVES, f"if (i + 1 < tiles) {COMMIT}", "__pipeline_wait_prior(1);", SYNC),
    "no barrier behind the wait": (PRIMITIVES, COMMIT, "__pipeline_wait_prior(1);", ""),
    "barrier before the wait": (PRIMITIVES, COMMIT, SYNC, "__pipeline_wait_prior(1);"),
    "group: a barrier is no wait": (GROUP, "block.sync();"),
    "group: the last tile is not awaited": (GROUP, "cg::wait_prior<1>(block);"),
    "own pipeline: no wait": (OWN_PIPELINE, ""),
    "own pipeline: one stage too few": (OWN_PIPELINE, "cuda::pipeline_consumer_wait_prior<1>(pipe);"),
    "block's pipeline: a barrier is no wait": (BLOCK_PIPELINE, SYNC, WAIT),
    "barrier: nobody waits": (BARRIER, f"(void)bar.arrive(); {SYNC}"),
    "barrier: no arrival, either": (BARRIER, SYNC),
    "own element: no wait": (OWN_ELEMENT, ""),
    "own element: a barrier is no wait": (OWN_ELEMENT, SYNC),
}
# How a message ends; "" where what is found first depends on the order: the copy under way, or the race.
ENDINGS = {"no commit, all awaited": NO_COMMIT, "no barrier behind the wait": "", "barrier before the wait": ""}


def source_of(number: int, template: str, *parts: str) -> str:
    text = template.replace("void f(", f"void f{number}(")
    for place, part in enumerate(parts, 1):
        text = text.replace(f"${place}", part)
    return text


NUMBERS = {name: number for number, name in enumerate([*CORRECT, *BUGGY])}
SOURCE = INCLUDES + "".join(source_of(NUMBERS[name], *parts) for name, parts in (CORRECT | BUGGY).items())
LINES = SOURCE.splitlines()


@cache
def kernels() -> Any:
    return cuda.compile_all(SOURCE, backend="simulator")


def find(name: str, seed: int) -> tuple[list[Any], Any, Any]:
    values = np.random.default_rng(seed).normal(size=THREADS * TILES).astype(np.float32)
    out = np.zeros_like(values)
    check = kernels()[f"f{NUMBERS[name]}"].check
    found = (check.seeded(seed) if seed else check)[1, THREADS](values, out, TILES)
    return found, values.reshape(TILES, THREADS)[:, ::-1].reshape(-1), out


def mark(line: int) -> str:
    """Return the comment at the end of a line, which names the kernel's step."""
    return LINES[line - 1].rpartition("// ")[2]


@pytest.mark.parametrize("name", CORRECT)
def test_copies_that_are_waited_for(name: str) -> None:
    for seed in SEEDS:
        found, expected, out = find(name, seed)
        assert found == []
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("name", BUGGY)
def test_a_missing_wait_is_found(name: str) -> None:
    ending = ENDINGS.get(name, NO_WAIT)
    for seed in SEEDS:
        found, _, _ = find(name, seed)
        assert {each.kind for each in found} <= {"unfinished_copy", "shared_race"}
        at_read = [each for each in found if "read" in (mark(each.line), mark(each.other_line))]
        assert at_read, f"nothing found at the read with seed {seed}"
        assert all({mark(each.line), mark(each.other_line)} & {"first", "next"} for each in at_read)
        if ending:
            assert any(each.kind == "unfinished_copy" and each.message.endswith(ending) for each in at_read)


def test_the_message_names_both_lines_and_threads() -> None:
    found, _, _ = find("own element: no wait", 0)
    (read,) = (each for each in found if mark(each.line) == "read")
    assert mark(read.other_line) == "next"
    assert read.message == (
        "thread (0, 0, 0) of block (0, 0, 0) reads element 0 of s, which its own asynchronous copy at line "
        f"{read.other_line} may still be writing: no wait for the copy comes before"
    )
    assert (read.array, read.offset) == ("s", 0)


def test_the_next_block_starts_with_nothing_under_way() -> None:
    kernel = cuda.compile(
        "#include <cuda_pipeline.h>\n"
        "__global__ void f(const float* in, float* out) { __shared__ float s[32]; s[threadIdx.x] = 1;\n"
        "  out[threadIdx.x + 32 * blockIdx.x] = s[threadIdx.x]; __pipeline_memcpy_async(&s[threadIdx.x], in, 4); }",
        backend="simulator",
    )
    assert kernel.check[64, 32](np.ones(1, np.float32), np.zeros(64 * 32, np.float32)) == []


def test_nvidias_compiler_takes_the_source() -> None:
    assert nvrtc.check(SOURCE) == ()
