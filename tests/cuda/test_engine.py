"""Warp operations, barriers and waits, through kernels that use them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mlsys_labkit.cuda.errors import CudaKernelError
from mlsys_labkit.cuda.kernel.compilation import Kernels
from tests.cuda.engine_helpers import ints, kinds

LANES = np.arange(32)
EVERY = 0xFFFFFFFF


# Warp operations ------------------------------------------------------------------------------------


def shuffled(values: np.ndarray, mode: str, argument: int, width: int) -> np.ndarray:
    """Compute the four shuffles by the programming guide's definition."""
    place = LANES % width
    base = LANES - place
    if mode == "index":
        source = base + argument % width
    elif mode == "up":
        source = np.where(place - argument < 0, LANES, LANES - argument)
    elif mode == "down":
        source = np.where(place + argument >= width, LANES, LANES + argument)
    else:
        source = np.where((LANES ^ argument) < base + width, LANES ^ argument, LANES)
    return values[source]


@settings(max_examples=60, deadline=None)
@given(
    mode=st.sampled_from(["index", "up", "down", "xor"]),
    argument=st.integers(0, 31),
    width=st.sampled_from([1, 2, 4, 8, 16, 32]),
    seed=st.integers(0, 5),
)
def test_shuffles(engine_kernels: Kernels, mode: str, argument: int, width: int, seed: int) -> None:
    values = np.random.default_rng(argument).integers(0, 2**62, 32)
    out = np.zeros(32, np.int64)
    number = ["index", "up", "down", "xor"].index(mode)
    engine_kernels.shuffle.seeded(seed + 1)[1, 32](values, out, number, argument, width)
    assert out.tolist() == shuffled(values, mode, argument, width).tolist()


def test_a_shuffle_from_an_absent_lane_is_zero_and_a_finding(engine_kernels: Kernels) -> None:
    out = ints(32)
    # 20 lanes live; each reads 8 lanes up, so lanes 12 to 19 read lanes that have left.
    with pytest.raises(CudaKernelError) as caught:
        engine_kernels.reads_up[1, 32](out, 20)
    assert kinds(caught.value.findings) == {"absent_lane"}
    (finding,) = caught.value.findings
    assert finding.thread == (12, 0, 0)
    assert finding.count == 8
    assert out[:20].tolist() == [*range(108, 120), *[0] * 8]
    (checked,) = engine_kernels.reads_up.check[1, 32](out, 20)
    assert checked.kind == "absent_lane"
    assert "no if, loop or return may keep one of them away" in checked.message


def test_a_lane_outside_the_mask_is_absent(engine_kernels: Kernels) -> None:
    with pytest.raises(CudaKernelError, match="put the lane into the mask"):
        engine_kernels.reads_outside_mask[1, 32](ints(32))


def test_an_earlier_value_is_never_seen_again(engine_kernels: Kernels) -> None:
    out = ints(32)
    with pytest.raises(CudaKernelError):
        engine_kernels.shuffle_twice[1, 32](out)
    assert out[0] == 0  # not what lane 31 gave to the first shuffle


def test_votes_and_matches(engine_kernels: Kernels) -> None:
    values = np.random.default_rng(3).integers(0, 4, 32).astype(np.int32)
    ballots, matches, any_all = (np.zeros(32, np.uint32) for _ in range(3))
    engine_kernels.votes[1, 32](values, ballots, matches, any_all)
    ballot = sum(1 << lane for lane in range(32) if values[lane] == 1)
    assert ballots.tolist() == [ballot] * 32
    assert matches.tolist() == [sum(1 << other for other in range(32) if values[other] == value) for value in values]
    assert any_all.tolist() == [1 + 2 * 0] * 32  # some lane has 1, not all


def test_operations_of_parts_of_a_warp_do_not_meet(engine_kernels: Kernels) -> None:
    out = ints(32)
    engine_kernels.sums_of_parts[1, 32](out)
    expected = [sum(range(12)) if lane < 12 else sum(range(12, 32)) for lane in range(32)]
    assert out.tolist() == expected


def test_active_mask_is_who_is_here_together(engine_kernels: Kernels) -> None:
    out = np.zeros(32, np.uint32)
    engine_kernels.active[1, 32](out)
    odd = sum(1 << lane for lane in range(1, 32, 2))
    assert out.tolist() == [odd if lane % 2 else EVERY & ~odd for lane in range(32)]


def test_code_before_syncwarp_finds_lanes_in_step(volatile_engine_kernels: Kernels) -> None:
    values = np.arange(64, dtype=np.float32)
    total = np.zeros(1, np.float32)
    volatile_engine_kernels.volatile_sum[1, 32](values, total)
    assert total[0] == 63 * 64 / 2
    assert "shared_race" in kinds(volatile_engine_kernels.volatile_sum.check[1, 32](values, total))


@pytest.mark.parametrize("run", ["launch", "check", "profile"])
def test_lanes_find_into_step_again_after_unequal_work(volatile_engine_kernels: Kernels, run: str) -> None:
    values, total = np.arange(64, dtype=np.float32), np.zeros(1, np.float32)
    kernel = volatile_engine_kernels.volatile_sum_after_unequal_work
    {"launch": kernel, "check": kernel.check, "profile": kernel.profile}[run][1, 32](values, ints(32), total)
    assert total[0] == 63 * 64 / 2


def test_a_missing_syncwarp_is_a_race(engine_kernels: Kernels) -> None:
    assert kinds(engine_kernels.mirror.check[1, 32](ints(32), 0)) == {"shared_race"}
    assert engine_kernels.mirror.check[1, 32](ints(32), 1) == []


# Barriers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 31, 32, 33, 96, 1000, 1024])
def test_barriers_with_a_vote(engine_kernels: Kernels, threads: int) -> None:
    out = ints(3 * threads)
    engine_kernels.barrier_votes[1, threads](out, 5)
    true = -(-threads // 5)
    assert out.reshape(-1, 3).tolist() == [[true, int(true == threads), 1]] * threads


@pytest.mark.parametrize("seed", range(1, 6))
def test_registers_survive_barriers(engine_kernels: Kernels, seed: int) -> None:
    out = np.zeros(256, np.float64)
    engine_kernels.many_live_values.seeded(seed)[1, 256](out)
    expected = [sum((thread + i) * (i + 1) * 0.5 for i in range(24)) * 3 for thread in range(256)]
    assert out.tolist() == expected


def test_leaving_before_a_barrier_is_reported_by_check_alone(engine_kernels: Kernels) -> None:
    out = ints(64)
    engine_kernels.leaves_early[1, 64](out)
    assert out.tolist() == [2] * 40 + [0] * 24
    (finding,) = engine_kernels.leaves_early.check[1, 64](out)
    assert finding.kind == "exited_before_barrier"
    assert finding.other_thread == (40, 0, 0)
    engine_kernels.leaves_early.profile[1, 64](out)


@pytest.mark.parametrize("run", ["launch", "check", "profile"])
def test_barriers_in_two_branches_are_two_barriers(engine_kernels: Kernels, run: str) -> None:
    kernel = engine_kernels.two_branches
    if run == "check":
        findings = kernel.check[1, 64]()
    else:
        with pytest.raises(CudaKernelError) as caught:
            (kernel if run == "launch" else kernel.profile)[1, 64]()
        findings = list(caught.value.findings)
    (finding,) = findings
    assert finding.kind == "divergent_barrier"
    assert {finding.source_line.strip(), finding.other_source_line.strip()} == {
        "__syncthreads();  // even",
        "__syncthreads();  // odd",
    }


@pytest.mark.parametrize("kernel", ["stuck_warp", "half_at_syncwarp"])
def test_threads_that_can_never_meet(engine_kernels: Kernels, kernel: str) -> None:
    with pytest.raises(CudaKernelError) as caught:
        engine_kernels[kernel][1, 64]()
    assert kinds(caught.value.findings) == {"divergent_barrier"}


@pytest.mark.parametrize("blocks", [1, 3, 40, 200])
@pytest.mark.parametrize("seed", [0, 9])
def test_a_grid_barrier_holds_all_blocks_and_their_shared_memory(
    engine_kernels: Kernels, blocks: int, seed: int
) -> None:
    ring = ints(blocks)
    wrong = ints(1)
    kernel = engine_kernels.ring.seeded(seed) if seed else engine_kernels.ring
    kernel[blocks, 64](ring, wrong)
    assert wrong[0] == 0
    assert ring.tolist() == [9] * blocks
    assert engine_kernels.ring.check[blocks, 64](ring, wrong) == []


# Threads that wait for each other -------------------------------------------------------------------


@pytest.mark.parametrize("how", ["volatile", "atomic"])
@pytest.mark.parametrize("run", ["launch", "check", "profile"])
def test_threads_that_spin_on_each_other_get_on(
    engine_kernels: Kernels, volatile_engine_kernels: Kernels, how: str, run: str
) -> None:
    out = ints(96)
    kernel = volatile_engine_kernels.pass_a_token if how == "volatile" else engine_kernels.pass_a_token_by_atomics
    {"launch": kernel, "check": kernel.check, "profile": kernel.profile}[run][1, 96](out)
    assert out.tolist() == [3] * 96


@pytest.mark.parametrize("run", ["launch", "check", "profile"])
@pytest.mark.parametrize("name", ["counted_under_lock", "counted_under_blocks_lock"])
def test_what_a_lock_holds_may_be_volatile(volatile_engine_kernels: Kernels, name: str, run: str) -> None:
    # Lanes that spin never come to where the lock's owner would wait for them, to be in step.
    lock, counts = ints(1), ints(4)
    kernel = volatile_engine_kernels[name]
    found = {"launch": kernel, "check": kernel.check, "profile": kernel.profile}[run][4, 32](lock, counts)
    assert counts.sum() == 128
    assert run != "check" or found == []


@pytest.mark.parametrize("run", ["launch", "check", "profile"])
def test_blocks_that_spin_on_each_other_get_on(engine_kernels: Kernels, run: str) -> None:
    counters = ints(2)
    launcher = {
        "launch": engine_kernels.wait_for_all,
        "check": engine_kernels.wait_for_all.check,
        "profile": engine_kernels.wait_for_all.profile,
    }
    launcher[run][33, 64](counters)
    assert counters.tolist() == [33, 33]


def test_a_plain_spin_is_made_to_yield(engine_kernels: Kernels) -> None:
    out = ints(2)
    engine_kernels.spin_without_volatile[1, 64](out)
    assert out.tolist() == [7, 7]


def test_a_lock_is_taken_by_every_thread(engine_kernels: Kernels) -> None:
    for launcher in (engine_kernels.locked, engine_kernels.locked.profile, engine_kernels.locked.seeded(4)):
        state = ints(2)
        launcher[8, 64](state)
        assert state.tolist() == [0, 512]


@pytest.mark.parametrize("run", ["launch", "check", "profile"])
@pytest.mark.parametrize("kernel", ["never_ends", "never_ends_with_memory"])
def test_a_kernel_that_never_ends_is_stopped_and_its_line_named(engine_kernels: Kernels, kernel: str, run: str) -> None:
    launcher = {
        "launch": engine_kernels[kernel],
        "check": engine_kernels[kernel].check,
        "profile": engine_kernels[kernel].profile,
    }[run]
    if run == "check":
        findings = launcher.within(1.0)[4, 64](ints(64))
    else:
        with pytest.raises(CudaKernelError) as caught:
            launcher.within(1.0)[4, 64](ints(64))  # on a busy machine the other blocks have ended by then
        findings = list(caught.value.findings)
    timeouts = [finding for finding in findings if finding.kind == "timeout"]
    assert timeouts
    assert any("for ever" in finding.source_line for finding in timeouts)
    out = ints(64)
    engine_kernels.leaves_early[1, 64](out)  # and the next launch is as good as ever
    assert out[0] == 2
