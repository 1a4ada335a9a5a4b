"""Warp operations, barriers, waits, faults and orders of execution, through kernels that use them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsys_labkit import cuda
from mlsys_labkit.cuda.compilation import Kernels
from mlsys_labkit.cuda.errors import KernelError

LANES = np.arange(32)
EVERY = 0xFFFFFFFF


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    return cuda.compile_all(Path(__file__).with_name("engine.cu"))


@pytest.fixture(scope="module")
def volatile_kernels() -> Kernels:
    return cuda.compile_all(Path(__file__).with_name("engine_volatile.cu"))


def ints(count: int) -> np.ndarray:
    return np.zeros(count, np.int32)


def kinds(findings: object) -> set[str]:
    assert isinstance(findings, (list, tuple))
    return {finding.kind for finding in findings}


# Warp operations ------------------------------------------------------------------------------------


def shuffled(values: np.ndarray, mode: str, argument: int, width: int) -> np.ndarray:
    """The programming guide's definition of the four shuffles."""
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
def test_shuffles(kernels: Kernels, mode: str, argument: int, width: int, seed: int) -> None:
    values = np.random.default_rng(argument).integers(0, 2**62, 32)
    out = np.zeros(32, np.int64)
    number = ["index", "up", "down", "xor"].index(mode)
    kernels.shuffle.seeded(seed + 1)[1, 32](values, out, number, argument, width)
    assert out.tolist() == shuffled(values, mode, argument, width).tolist()


def test_a_shuffle_from_an_absent_lane_is_zero_and_a_finding(kernels: Kernels) -> None:
    out = ints(32)
    # 20 lanes live; each reads 8 lanes up, so lanes 12 to 19 read lanes that have left.
    with pytest.raises(KernelError) as caught:
        kernels.reads_up[1, 32](out, 20)
    assert kinds(caught.value.findings) == {"absent_lane"}
    (finding,) = caught.value.findings
    assert finding.thread == (12, 0, 0)
    assert finding.count == 8
    assert out[:20].tolist() == [*range(108, 120), *[0] * 8]
    assert kinds(kernels.reads_up.check[1, 32](out, 20)) == {"absent_lane"}


def test_a_lane_outside_the_mask_is_absent(kernels: Kernels) -> None:
    with pytest.raises(KernelError, match="mask"):
        kernels.reads_outside_mask[1, 32](ints(32))


def test_an_earlier_value_is_never_seen_again(kernels: Kernels) -> None:
    out = ints(32)
    with pytest.raises(KernelError):
        kernels.shuffle_twice[1, 32](out)
    assert out[0] == 0  # not what lane 31 gave to the first shuffle


def test_votes_and_matches(kernels: Kernels) -> None:
    values = np.random.default_rng(3).integers(0, 4, 32).astype(np.int32)
    ballots, matches, any_all = (np.zeros(32, np.uint32) for _ in range(3))
    kernels.votes[1, 32](values, ballots, matches, any_all)
    ballot = sum(1 << lane for lane in range(32) if values[lane] == 1)
    assert ballots.tolist() == [ballot] * 32
    assert matches.tolist() == [sum(1 << other for other in range(32) if values[other] == value) for value in values]
    assert any_all.tolist() == [1 + 2 * 0] * 32  # some lane has 1, not all


def test_operations_of_parts_of_a_warp_do_not_meet(kernels: Kernels) -> None:
    out = ints(32)
    kernels.sums_of_parts[1, 32](out)
    expected = [sum(range(12)) if lane < 12 else sum(range(12, 32)) for lane in range(32)]
    assert out.tolist() == expected


def test_active_mask_is_who_is_here_together(kernels: Kernels) -> None:
    out = np.zeros(32, np.uint32)
    kernels.active[1, 32](out)
    odd = sum(1 << lane for lane in range(1, 32, 2))
    assert out.tolist() == [odd if lane % 2 else EVERY & ~odd for lane in range(32)]


def test_code_before_syncwarp_finds_lanes_in_step(volatile_kernels: Kernels) -> None:
    values = np.arange(64, dtype=np.float32)
    total = np.zeros(1, np.float32)
    volatile_kernels.volatile_sum[1, 32](values, total)
    assert total[0] == 63 * 64 / 2
    assert "shared_race" in kinds(volatile_kernels.volatile_sum.check[1, 32](values, total))


@pytest.mark.parametrize("run", ["launch", "check", "profile"])
def test_lanes_find_into_step_again_after_unequal_work(volatile_kernels: Kernels, run: str) -> None:
    values, total = np.arange(64, dtype=np.float32), np.zeros(1, np.float32)
    kernel = volatile_kernels.volatile_sum_after_unequal_work
    {"launch": kernel, "check": kernel.check, "profile": kernel.profile}[run][1, 32](values, ints(32), total)
    assert total[0] == 63 * 64 / 2


def test_a_missing_syncwarp_is_a_race(kernels: Kernels) -> None:
    assert kinds(kernels.mirror.check[1, 32](ints(32), 0)) == {"shared_race"}
    assert kernels.mirror.check[1, 32](ints(32), 1) == []


# Barriers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 31, 32, 33, 96, 1000, 1024])
def test_barriers_with_a_vote(kernels: Kernels, threads: int) -> None:
    out = ints(3 * threads)
    kernels.barrier_votes[1, threads](out, 5)
    true = -(-threads // 5)
    assert out.reshape(-1, 3).tolist() == [[true, int(true == threads), 1]] * threads


@pytest.mark.parametrize("seed", range(1, 6))
def test_registers_survive_barriers(kernels: Kernels, seed: int) -> None:
    out = np.zeros(256, np.float64)
    kernels.many_live_values.seeded(seed)[1, 256](out)
    expected = [sum((thread + i) * (i + 1) * 0.5 for i in range(24)) * 3 for thread in range(256)]
    assert out.tolist() == expected


def test_leaving_before_a_barrier_is_told_by_check_alone(kernels: Kernels) -> None:
    out = ints(64)
    kernels.leaves_early[1, 64](out)
    assert out.tolist() == [2] * 40 + [0] * 24
    (finding,) = kernels.leaves_early.check[1, 64](out)
    assert finding.kind == "exited_before_barrier"
    assert finding.other_thread == (40, 0, 0)
    kernels.leaves_early.profile[1, 64](out)


@pytest.mark.parametrize("run", ["launch", "check", "profile"])
def test_barriers_in_two_branches_are_two_barriers(kernels: Kernels, run: str) -> None:
    kernel = kernels.two_branches
    if run == "check":
        findings = kernel.check[1, 64]()
    else:
        with pytest.raises(KernelError) as caught:
            (kernel if run == "launch" else kernel.profile)[1, 64]()
        findings = list(caught.value.findings)
    (finding,) = findings
    assert finding.kind == "divergent_barrier"
    assert {finding.source_line.strip(), finding.other_source_line.strip()} == {
        "__syncthreads();  // even",
        "__syncthreads();  // odd",
    }


@pytest.mark.parametrize("kernel", ["stuck_warp", "half_at_syncwarp"])
def test_threads_that_can_never_meet(kernels: Kernels, kernel: str) -> None:
    with pytest.raises(KernelError) as caught:
        kernels[kernel][1, 64]()
    assert kinds(caught.value.findings) == {"divergent_barrier"}


@pytest.mark.parametrize("blocks", [1, 3, 40, 200])
@pytest.mark.parametrize("seed", [0, 9])
def test_a_grid_barrier_holds_all_blocks_and_their_shared_memory(kernels: Kernels, blocks: int, seed: int) -> None:
    ring = ints(blocks)
    wrong = ints(1)
    kernel = kernels.ring.seeded(seed) if seed else kernels.ring
    kernel[blocks, 64](ring, wrong)
    assert wrong[0] == 0
    assert ring.tolist() == [9] * blocks
    assert kernels.ring.check[blocks, 64](ring, wrong) == []


# Threads that wait for each other -------------------------------------------------------------------


@pytest.mark.parametrize("how", ["volatile", "atomic"])
@pytest.mark.parametrize("run", ["launch", "check", "profile"])
def test_threads_that_spin_on_each_other_get_on(
    kernels: Kernels, volatile_kernels: Kernels, how: str, run: str
) -> None:
    out = ints(96)
    kernel = volatile_kernels.pass_a_token if how == "volatile" else kernels.pass_a_token_by_atomics
    {"launch": kernel, "check": kernel.check, "profile": kernel.profile}[run][1, 96](out)
    assert out.tolist() == [3] * 96


@pytest.mark.parametrize("run", ["launch", "check", "profile"])
@pytest.mark.parametrize("name", ["counted_under_lock", "counted_under_blocks_lock"])
def test_what_a_lock_holds_may_be_volatile(volatile_kernels: Kernels, name: str, run: str) -> None:
    # Lanes that spin never come to where the lock's owner would wait for them, to be in step.
    lock, counts = ints(1), ints(4)
    kernel = volatile_kernels[name]
    found = {"launch": kernel, "check": kernel.check, "profile": kernel.profile}[run][4, 32](lock, counts)
    assert counts.sum() == 128
    assert run != "check" or found == []


@pytest.mark.parametrize("run", ["launch", "check", "profile"])
def test_blocks_that_spin_on_each_other_get_on(kernels: Kernels, run: str) -> None:
    counters = ints(2)
    launcher = {
        "launch": kernels.wait_for_all,
        "check": kernels.wait_for_all.check,
        "profile": kernels.wait_for_all.profile,
    }
    launcher[run][33, 64](counters)
    assert counters.tolist() == [33, 33]


def test_a_plain_spin_is_made_to_yield(kernels: Kernels) -> None:
    out = ints(2)
    kernels.spin_without_volatile[1, 64](out)
    assert out.tolist() == [7, 7]


def test_a_lock_is_taken_by_every_thread(kernels: Kernels) -> None:
    for launcher in (kernels.locked, kernels.locked.profile, kernels.locked.seeded(4)):
        state = ints(2)
        launcher[8, 64](state)
        assert state.tolist() == [0, 512]


@pytest.mark.parametrize("run", ["launch", "check", "profile"])
@pytest.mark.parametrize("kernel", ["never_ends", "never_ends_with_memory"])
def test_a_kernel_that_never_ends_is_stopped_and_says_where(kernels: Kernels, kernel: str, run: str) -> None:
    launcher = {"launch": kernels[kernel], "check": kernels[kernel].check, "profile": kernels[kernel].profile}[run]
    if run == "check":
        findings = launcher.within(0.2)[4, 64](ints(64))
    else:
        with pytest.raises(KernelError) as caught:
            launcher.within(0.2)[4, 64](ints(64))
        findings = list(caught.value.findings)
    timeouts = [finding for finding in findings if finding.kind == "timeout"]
    assert timeouts
    assert any("for ever" in finding.source_line for finding in timeouts)
    out = ints(64)
    kernels.leaves_early[1, 64](out)  # and the next launch is as good as ever
    assert out[0] == 2


# Faults ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("run", ["launch", "check", "profile"])
@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        ("divides", "division_by_zero"),
        ("overflows", "stack_overflow"),
        ("large_frame", "stack_overflow"),
        ("wild", "out_of_bounds"),
        ("null", "out_of_bounds"),
        ("asserts", "assertion"),
        ("traps", "trap"),
    ],
)
def test_faults(kernels: Kernels, kernel: str, kind: str, run: str) -> None:
    out = ints(128)
    launcher = {"launch": kernels[kernel], "check": kernels[kernel].check, "profile": kernels[kernel].profile}[run]
    if run == "check":
        findings = launcher[2, 64](out)
    else:
        with pytest.raises(KernelError) as caught:
            launcher[2, 64](out)
        findings = list(caught.value.findings)
    assert kinds(findings) <= {kind, "illegal_address"} if kind == "out_of_bounds" else kinds(findings) == {kind}
    finding = findings[0]
    assert finding.thread == (37, 0, 0)
    assert finding.block == (1, 0, 0)
    assert "here" in finding.source_line
    kernels.leaves_early[1, 64](out)
    assert out[0] == 2


def test_large_local_arrays_fit(kernels: Kernels) -> None:
    out = ints(64)
    kernels.half_a_megabyte[1, 64](out)
    assert out.tolist() == [100 * thread for thread in range(64)]


# Order ----------------------------------------------------------------------------------------------


def test_no_order_of_threads_changes_a_correct_result(kernels: Kernels) -> None:
    values = np.random.default_rng(1).integers(0, 1000, 1024).astype(np.int32)
    for seed in range(1, 101):
        totals = ints(4)
        kernels.block_sums.seeded(seed)[4, 256](values, totals, 1)
        assert totals.tolist() == values.reshape(4, 256).sum(axis=1).tolist()


def test_some_order_of_threads_shows_a_missing_barrier(kernels: Kernels) -> None:
    values = np.random.default_rng(1).integers(0, 1000, 1024).astype(np.int32)
    right = values.reshape(4, 256).sum(axis=1).tolist()
    results = []
    for seed in range(1, 21):
        totals = ints(4)
        kernels.block_sums.seeded(seed)[4, 256](values, totals, 0)
        results.append(totals.tolist() == right)
    assert not all(results)


def test_a_seed_is_an_order_and_the_same_one_again(kernels: Kernels) -> None:
    def order(seed: int) -> list[int]:
        out = ints(513)
        kernels.arrivals.seeded(seed)[1, 512](out)
        return out[1:].tolist()

    assert order(5) == order(5)
    assert order(5) != order(6)
    assert sorted(order(5)) == list(range(512))


def test_sampled_blocks_are_spread_over_the_grid(kernels: Kernels) -> None:
    out = ints(1000)
    profile = kernels.mark_block.profile.sampled(10)[1000, 32](out)
    assert np.flatnonzero(out).tolist() == list(range(0, 1000, 100))
    assert (profile.blocks_run, profile.blocks_total) == (10, 1000)


# The rest of the C library --------------------------------------------------------------------------


@pytest.mark.parametrize("conversion", ["%n", "%-8.*hhn", "%5$ln"])
def test_printf_stores_nothing(conversion: str, capsys: pytest.CaptureFixture[str]) -> None:
    letters = ", ".join(f"'{letter}'" for letter in f"ab{conversion}")  # as no rule about strings sees it
    source = f"__global__ void f(int* x) {{ char form[] = {{{letters}, 0}}; printf(form, x, x, x, x, x); }}"
    x = np.full(4, 7, np.int32)
    cuda.compile(source, backend="simulator", graded=True).profile[1, 1](x)
    assert x.tolist() == [7] * 4
    assert capsys.readouterr().out == f"ab{conversion}"


def test_printf_returns_the_number_of_its_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    # As the programming guide has it, section "Formatted output": and not a length, which depends on what %s reads.
    source = r"""__global__ void f(int* x) {
      x[0] = printf("100%% of %*d, %s and %5.1f\n", 4, 2, "text", 1.5f);
      x[1] = printf("none\n"); x[2] = printf("%ld%c", 1l, 'a');
    }"""
    x = np.zeros(3, np.int32)
    cuda.compile(source, backend="simulator")[1, 1](x)
    assert x.tolist() == [4, 0, 2]
    assert capsys.readouterr().out == "100% of    2, text and   1.5\nnone\n1a"


def test_printf_formats_as_c_does(kernels: Kernels, capsys: pytest.CaptureFixture[str]) -> None:
    kernels.prints[1, 1]()
    assert capsys.readouterr().out == " 3.14|7   |ab|%|c|1099511627776|ff\n"


def test_memory_of_the_device_heap_lasts_until_freed(kernels: Kernels) -> None:
    pointers = np.zeros(64, np.uint64)
    out = ints(64)
    kernels.allocate[1, 64](pointers)
    assert len(set(pointers.tolist())) == 64
    kernels.use_and_free[1, 64](pointers, out)
    assert out.tolist() == [3 * thread for thread in range(64)]


def test_memory_runs_out_and_malloc_says_so(kernels: Kernels) -> None:
    out = ints(1)
    kernels.exhaust[1, 1](out)
    assert 1 <= out[0] < 1000


def test_the_clock_goes_forward(kernels: Kernels) -> None:
    out = np.zeros(2, np.int64)
    kernels.ticks[1, 1](out)
    assert out[1] > out[0]


@pytest.mark.parametrize("element", ["half", "half2", "pair"])
def test_shared_arrays_of_classes_cost_no_access(kernels: Kernels, element: str) -> None:
    profile = kernels[f"shared_{element}"].profile[1, 32](ints(1))
    stores = [line for line in profile.lines if line.space == "shared" and line.op == "store"]
    assert [(line.requests, line.lanes) for line in stores] == [(1, 32)]
    assert kernels[f"shared_{element}"].check[1, 64](ints(1)) == []
