"""``expect_clean`` and ``expect_counters`` on kernels that are really run; expected counts are worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mlsys_labkit as lk
from mlsys_labkit.checks import CheckError, ImpossibleCountError, expect_clean, expect_counters, graded_kernel
from mlsys_labkit.cuda.kernel.absent import unsolved_kernel

N = 1000  # not a multiple of the block: the last warp has lanes without work
ADD = """
__global__ void add(const float* a, const float* b, float* c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}
"""
TRANSPOSE = """
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
SIDE = 64


def vectors() -> tuple[Any, ...]:
    a = np.arange(N, dtype=np.float32)
    return a, a + 1, np.zeros(N, np.float32), N


def squares() -> tuple[Any, ...]:
    a = np.arange(SIDE * SIDE, dtype=np.float32).reshape(SIDE, SIDE)
    return a, np.zeros_like(a), SIDE


def message(check: Any, *args: Any, **kwargs: Any) -> str:
    with pytest.raises(CheckError) as caught:
        check(*args, **kwargs)
    return str(caught.value)


@pytest.fixture(scope="module")
def add() -> Any:
    return lk.cuda.compile(ADD)


@pytest.fixture(scope="module")
def added(add: Any) -> Any:
    return add.profile[8, 128](*vectors())


@pytest.fixture(scope="module")
def transposed() -> Any:
    return lk.cuda.compile(TRANSPOSE).profile[(2, 2), (32, 32)](*squares())


# --- findings --------------------------------------------------------------------------------------------------------


def test_a_right_kernel_is_clean_and_its_result_is_there(add: Any) -> None:
    arguments = vectors()
    expect_clean(add, (8, 128, arguments), ((4,), (256, 1), 0, vectors()))
    assert (arguments[2] == 2 * arguments[0] + 1).all()


def test_a_missing_bound_is_reported_with_its_line() -> None:
    kernel = lk.cuda.compile(ADD.replace("if (i < n) ", ""))
    text = message(expect_clean, kernel, (8, 128, vectors()))
    assert text.splitlines()[0] == "add, grid 8, block 128: out of bounds"
    assert "  expected  no finding" in text
    assert "line 5: c[i] = a[i] + b[i];" in text


def test_a_missing_barrier_is_reported_with_both_lines() -> None:
    kernel = lk.cuda.compile(TRANSPOSE.replace("__syncthreads();", ""))
    text = message(expect_clean, kernel, ((2, 2), (32, 32), squares()), name="transpose of 64")
    assert text.startswith("transpose of 64, grid (2, 2), block (32, 32): shared race")
    assert "tile[threadIdx.y][threadIdx.x] = in[y * n + x];" in text
    assert "out[y * n + x] = tile[threadIdx.x][threadIdx.y];" in text


def test_every_launch_is_checked(add: Any) -> None:
    short = (*vectors()[:3], N + 1)  # N + 1 is one element more than the arrays have
    assert "grid 8, block 128" in message(expect_clean, add, (1, 32, vectors()), (8, 128, short))


def test_an_unsolved_kernel_raises_as_an_unsolved_function_does() -> None:
    with pytest.raises(NotImplementedError):
        expect_clean(unsolved_kernel("add", "", 3), (8, 128, vectors()))


def test_an_unsolved_kernel_is_reported_by_its_name() -> None:
    stub = lk.cuda.compile("__global__ void add(float* x)\n{\n    # YOUR CODE HERE\n    raise NotImplementedError()\n}")
    with pytest.raises(NotImplementedError, match=r"^add is not written yet: line 4 of its cell"):
        graded_kernel(stub)
    with pytest.raises(NotImplementedError, match=r"^subtract is not written yet"):
        graded_kernel(stub, "subtract")


# --- counters --------------------------------------------------------------------------------------------------------


def test_counts_of_a_vector_add_equal_theory(added: Any) -> None:
    # 1000 elements are 31 full warps and one of 8 lanes: 32 warps load twice and store once.
    # 31 warps x 4 sectors and one sector of 8 lanes, an array.
    expect_counters(
        added,
        global_load_requests=64,
        global_store_requests=32,
        global_load_sectors=2 * 125,
        global_store_sectors=125,
        sectors_per_load_request=250 / 64,
        at_least_global_load_sectors=250,
        at_most_sectors_per_load_request=4,
        bytes_read=8 * N,
        bytes_written=4 * N,
        barriers=0,
        bank_conflicts=0,
    )


def test_bank_conflicts_are_reported_with_their_line(transposed: Any) -> None:
    # 4 blocks of 32 warps; each reads a column of the tile: 32 wavefronts, 31 more than one.
    text = message(expect_counters, transposed, bank_conflicts=0)
    assert text.splitlines()[:3] == [
        "transpose: bank conflicts: too many",
        "  expected  0",
        f"  actual    {128 * 31:,}".replace(",", " "),
    ]
    assert "most at line 11: out[y * n + x] = tile[threadIdx.x][threadIdx.y];" in text
    assert "neighbouring words, or pad the rows" in text
    expect_counters(transposed, worst_bank_conflict=32, barriers=4, shared_load_wavefronts=128 * 32)
    expect_counters(transposed, wavefronts_per_shared_store=1, sectors_per_store_request=4)


def test_a_line_that_is_busy_without_conflicts_is_not_blamed_for_them() -> None:
    source = """
__global__ void rows(float* x)
{
    __shared__ float s[64];
    s[2 * threadIdx.x] = x[threadIdx.x];
    float sum = 0.0f;
    for (int i = 0; i < 50; ++i) sum += s[2 * (i % 32)];
    x[threadIdx.x] = sum;
}
"""
    profile = lk.cuda.compile(source).profile[1, 32](np.ones(32, np.float32))
    expect_counters(profile, shared_load_wavefronts=50, shared_store_wavefronts=2, worst_bank_conflict=2)
    assert "most at line 5: s[2 * threadIdx.x]" in message(expect_counters, profile, bank_conflicts=0)
    assert "most at line 5: s[2 * threadIdx.x]" in message(expect_counters, profile, worst_bank_conflict=1)


def test_too_many_sectors_give_a_ratio_and_too_few_are_reported(added: Any) -> None:
    text = message(expect_counters, added, at_most_global_load_requests=32, name="vector add")
    assert text.startswith("vector add: global load requests: too many\n  expected  at most 32\n  actual    64 (2x)")
    text = message(expect_counters, added, global_load_requests=65)
    assert "too few" in text
    assert "more often than it has to be" not in text
    assert "meaning   fewer accesses than this exact count: some were left out, or wider ones took their place" in text
    expect_counters(added, global_load_requests=65, rtol=0.02)


def test_a_count_below_the_minimum_is_an_error_of_its_own_kind_and_comes_first(added: Any) -> None:
    with pytest.raises(ImpossibleCountError) as caught:
        expect_counters(added, at_most_global_load_requests=1, at_least_global_load_sectors=251)
    assert str(caught.value).startswith("add: global load sectors: fewer than any kernel needs for this work")
    with pytest.raises(CheckError) as caught:
        expect_counters(added, global_load_sectors=251)  # only at_least_ states a minimum
    assert not isinstance(caught.value, ImpossibleCountError)


def test_a_sampled_profile_names_the_blocks_that_were_counted(add: Any) -> None:
    sampled = add.profile.sampled(2)[8, 128](*vectors())
    assert "expected  at most 1 in 2 of 8 blocks" in message(expect_counters, sampled, at_most_global_load_requests=1)


# --- what a student might hand in instead ----------------------------------------------------------------------------


class Forged:
    """Objects that imitate a kernel's and a profile's answers, with the values that the check expects."""

    lines = ()
    blocks_run = blocks_total = 1

    def __getattr__(self, name: str) -> Any:
        return 0

    @property
    def check(self) -> Any:
        return {(8, 128): lambda *args: []}


def test_only_a_kernel_and_a_profile_of_the_kit_are_believed(add: Any) -> None:
    assert "actual    Forged" in message(expect_clean, Forged(), (8, 128, vectors()))
    assert "actual    Forged" in message(expect_counters, Forged(), barriers=0)
    assert "pass the profile, not the kernel" in message(expect_counters, add, barriers=0)


def test_an_unknown_counter_is_the_test_authors_error(added: Any) -> None:
    with pytest.raises(TypeError, match="knows no counter 'sectors'; choose one of"):
        expect_counters(added, at_most_sectors=4)
