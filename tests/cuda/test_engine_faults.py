"""Faults, orders of execution and the C library, through kernels that use them."""

from __future__ import annotations

import numpy as np
import pytest

from mlsys_labkit import cuda
from mlsys_labkit.cuda.errors import CudaKernelError
from mlsys_labkit.cuda.kernel.compilation import Kernels
from tests.cuda.engine_helpers import ints, kinds


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
def test_faults(engine_kernels: Kernels, kernel: str, kind: str, run: str) -> None:
    out = ints(128)
    launcher = {
        "launch": engine_kernels[kernel],
        "check": engine_kernels[kernel].check,
        "profile": engine_kernels[kernel].profile,
    }[run]
    if run == "check":
        findings = launcher[2, 64](out)
    else:
        with pytest.raises(CudaKernelError) as caught:
            launcher[2, 64](out)
        findings = list(caught.value.findings)
    assert kinds(findings) <= {kind, "illegal_address"} if kind == "out_of_bounds" else kinds(findings) == {kind}
    finding = findings[0]
    assert finding.thread == (37, 0, 0)
    assert finding.block == (1, 0, 0)
    assert "here" in finding.source_line
    engine_kernels.leaves_early[1, 64](out)
    assert out[0] == 2


def test_large_local_arrays_fit(engine_kernels: Kernels) -> None:
    out = ints(64)
    engine_kernels.half_a_megabyte[1, 64](out)
    assert out.tolist() == [100 * thread for thread in range(64)]


# Order ----------------------------------------------------------------------------------------------


def test_no_order_of_threads_changes_a_correct_result(engine_kernels: Kernels) -> None:
    values = np.random.default_rng(1).integers(0, 1000, 1024).astype(np.int32)
    for seed in range(1, 101):
        totals = ints(4)
        engine_kernels.block_sums.seeded(seed)[4, 256](values, totals, 1)
        assert totals.tolist() == values.reshape(4, 256).sum(axis=1).tolist()


def test_some_order_of_threads_shows_a_missing_barrier(engine_kernels: Kernels) -> None:
    values = np.random.default_rng(1).integers(0, 1000, 1024).astype(np.int32)
    right = values.reshape(4, 256).sum(axis=1).tolist()
    results = []
    for seed in range(1, 21):
        totals = ints(4)
        engine_kernels.block_sums.seeded(seed)[4, 256](values, totals, 0)
        results.append(totals.tolist() == right)
    assert not all(results)


def test_a_seed_is_an_order_and_the_same_one_again(engine_kernels: Kernels) -> None:
    def order(seed: int) -> list[int]:
        out = ints(513)
        engine_kernels.arrivals.seeded(seed)[1, 512](out)
        return out[1:].tolist()

    assert order(5) == order(5)
    assert order(5) != order(6)
    assert sorted(order(5)) == list(range(512))


def test_sampled_blocks_are_spread_over_the_grid(engine_kernels: Kernels) -> None:
    out = ints(1000)
    profile = engine_kernels.mark_block.profile.sampled(10)[1000, 32](out)
    assert np.flatnonzero(out).tolist() == list(range(0, 1000, 100))
    assert (profile.blocks_run, profile.blocks_total) == (10, 1000)


# The rest of the C library --------------------------------------------------------------------------


@pytest.mark.parametrize("conversion", ["%n", "%-8.*hhn", "%5$ln"])
def test_printf_stores_nothing(conversion: str, capsys: pytest.CaptureFixture[str]) -> None:
    letters = ", ".join(f"'{letter}'" for letter in f"ab{conversion}")  # no string literal
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


def test_printf_formats_as_c_does(engine_kernels: Kernels, capsys: pytest.CaptureFixture[str]) -> None:
    engine_kernels.prints[1, 1]()
    assert capsys.readouterr().out == " 3.14|7   |ab|%|c|1099511627776|ff\n"


def test_memory_of_the_device_heap_lasts_until_freed(engine_kernels: Kernels) -> None:
    pointers = np.zeros(64, np.uint64)
    out = ints(64)
    engine_kernels.allocate[1, 64](pointers)
    assert len(set(pointers.tolist())) == 64
    engine_kernels.use_and_free[1, 64](pointers, out)
    assert out.tolist() == [3 * thread for thread in range(64)]


def test_malloc_returns_null_when_memory_runs_out(engine_kernels: Kernels) -> None:
    out = ints(1)
    engine_kernels.exhaust[1, 1](out)
    assert 1 <= out[0] < 1000


def test_the_clock_goes_forward(engine_kernels: Kernels) -> None:
    out = np.zeros(2, np.int64)
    engine_kernels.ticks[1, 1](out)
    assert out[1] > out[0]


@pytest.mark.parametrize("element", ["half", "half2", "pair"])
def test_shared_arrays_of_classes_cost_no_access(engine_kernels: Kernels, element: str) -> None:
    profile = engine_kernels[f"shared_{element}"].profile[1, 32](ints(1))
    stores = [line for line in profile.lines if line.space == "shared" and line.op == "store"]
    assert [(line.requests, line.lanes) for line in stores] == [(1, 32)]
    assert engine_kernels[f"shared_{element}"].check[1, 64](ints(1)) == []
