"""``check`` finds planted bugs under every order of threads, and nothing in correct kernels."""

from __future__ import annotations

import pytest

from tests.cuda.planted_races import PLANTED
from tests.cuda.race_case import expect_planted
from tests.cuda.race_free_kernels import CORRECT

pytestmark = pytest.mark.usefixtures("checked_kernels")

SEEDS = range(4)  # 0 is the natural order
MANY_SEEDS = range(100)


@pytest.mark.parametrize("name", PLANTED)
@pytest.mark.parametrize("seed", SEEDS)
def test_planted_bugs_are_found(name: str, seed: int) -> None:
    expect_planted(PLANTED[name], seed)


@pytest.mark.soak
@pytest.mark.parametrize("name", PLANTED)
def test_planted_bugs_are_found_in_any_order(name: str) -> None:
    for seed in MANY_SEEDS:
        expect_planted(PLANTED[name], seed)


@pytest.mark.parametrize("name", CORRECT)
@pytest.mark.parametrize("seed", SEEDS)
def test_correct_kernels_are_clean(name: str, seed: int) -> None:
    assert CORRECT[name].find(seed) == []


@pytest.mark.soak
@pytest.mark.parametrize("name", CORRECT)
def test_correct_kernels_are_clean_in_any_order(name: str) -> None:
    for seed in MANY_SEEDS:
        assert CORRECT[name].find(seed) == []


def test_a_finding_names_threads_line_and_array() -> None:
    case = PLANTED["no barrier between load and use, other warps"]
    (finding,) = case.find()
    assert finding.block == finding.other_block == (0, 0, 0)
    assert finding.array == "s"
    assert finding.source_line.strip() == "s[threadIdx.x] = a[threadIdx.x];"
    assert finding.count == 64  # one write and one read of each element
    assert "__syncthreads()" in finding.message


def test_two_writes_of_one_line_are_told_to_add_by_an_atomic() -> None:
    (counter,) = PLANTED["a counter without an atomic, one warp"].find()
    assert "no __syncwarp() or __syncthreads() orders them; if both add to it, use atomicAdd" in counter.message
    (barrier,) = PLANTED["no barrier between load and use, one warp"].find()
    assert "atomic" not in barrier.message


def test_of_several_readers_the_one_that_clashes_is_named() -> None:
    """Block 0 reads first, and what it reads it may overwrite: only block 1 is at odds with the write."""
    (finding,) = PLANTED["a handshake of blocks without fences"].find()
    assert {finding.block, finding.other_block} == {(0, 0, 0), (1, 0, 0)}
    assert "the blocks of a launch" in finding.message


def test_out_of_bounds_names_the_element() -> None:
    (finding,) = PLANTED["one element past the end"].find()
    assert (finding.array, finding.offset, finding.thread) == ("a", 33 * 4, (32, 0, 0))
    assert "a[33]" in finding.message
    assert "33 elements" in finding.message
