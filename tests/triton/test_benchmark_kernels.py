"""Tests of benchmarks/triton_kernels.py without a GPU: its message, and everything except the timing."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from mlsys_labkit.triton_trace.compile.compiled import compile_for  # noqa: E402

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"

SMALL_WIDE = [{"ROWS": 4, "WORDS": words, "AHEAD": 3, "num_warps": 1} for words in (8, 16)]


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("triton_kernels")


def no_clock(call: Callable[[], object], name: str, seconds: float) -> Any:
    """Run the function to be timed once, and report the peer as twice as slow."""
    call()
    median = 2.0 if name.endswith("peer") else 1.0
    return SimpleNamespace(median=median, ci_low=median, ci_high=median, verdict="steady")


def test_benchmark_without_gpu_reports_it_and_writes_nothing() -> None:
    path = BENCHMARKS / "results/triton_kernels.json"
    before = path.stat().st_mtime_ns if path.exists() else None
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "triton_kernels.py")],
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "not measured: no NVIDIA GPU here\n", "")
    assert (path.stat().st_mtime_ns if path.exists() else None) == before


def test_benchmark_kernels_compile_for_sm_90_and_fit(benchmark: Any, tmp_path: Path) -> None:
    home = benchmark.load(tmp_path, benchmark.source())

    def of(dtype: Any, *shape: int) -> Any:
        return torch.empty(shape, dtype=dtype, device="meta")

    half, x = of(torch.float16, 4096, 4096), of(torch.float16, 8192, 4096)
    layer = of(torch.uint8, 8192, 4096), of(torch.float16, 8192, 64), of(torch.float16, 8192), of(torch.float32, 8192)
    config = benchmark.PERSISTENT[0]
    walked = compile_for(
        home.matmul_persistent, "sm_90", *benchmark.described(half, half, half, config), 4096, 4096, 4096, **config
    )
    product = compile_for(home.matmul_grouped, "sm_90", half, half, half, 4096, 4096, 4096, **benchmark.MATMUL[0])
    rows = compile_for(home.softmax, "sm_90", x, x, 4096, 4096, 4096, BLOCK=4096, **benchmark.SOFTMAX[1])
    narrow = compile_for(home.w4a16, "sm_90", *layer, 8192, IN=8192, GROUP=128, **benchmark.W4A16[8])
    words = of(torch.int32, 8192, 1024), *layer[1:]
    wide = [
        compile_for(home.w4a16_wide, "sm_90", *words, 8192, IN=8192, GROUP=128, **one) for one in benchmark.WIDE[:2]
    ]
    assert "ld.global.v4.b32" in wide[0].ptx  # 16 bytes a thread
    assert "cp.async" in wide[1].ptx
    assert all("wgmma" in one.ptx for one in (walked, product))
    assert "cp.async.bulk.tensor" in walked.ptx  # the TMA unit computes the addresses
    assert [one.spills for one in (walked, product, rows, narrow, *wide)] == [0] * 6
    assert walked.shared_bytes <= 227 * 1024
    for config in benchmark.MATMUL:  # an H100 gives a block 227 KiB: CUDA C++ Programming Guide, compute capability 9.0
        assert config["num_stages"] * (config["BM"] + config["BN"]) * config["BK"] * 2 <= 227 * 1024


def test_benchmark_launches_pass_their_checks_on_small_shapes(
    benchmark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = benchmark.load(tmp_path, benchmark.source())
    for name in ("MATMUL", "PERSISTENT", "SOFTMAX", "W4A16"):
        setattr(benchmark, name, getattr(benchmark, name)[:2])
    monkeypatch.setattr(benchmark, "WIDE", SMALL_WIDE)
    product = benchmark.matmul(home, no_clock, "cpu", 80)
    assert product["percent_of_peer"] == product["grouped"]["percent_of_peer"] == 200
    layer = benchmark.w4a16(home, no_clock, "cpu", 38, 128, 64)
    assert layer["times_as_fast"] == layer["narrow"]["times_as_fast"] == 2
    for dtype, size in ((torch.float32, 4), (torch.float16, 2)):  # so many bytes read and as many written, in a second
        result = benchmark.softmax(
            home, no_clock, dtype, "cpu", (10, 100), lambda n: {"slow": n / 2e9, "fast": n / 1e9}
        )
        assert result["gb_per_s"] == pytest.approx(2 * 1000 * size / 1e9)
        assert result["percent_of_copy"] == pytest.approx(200)


def test_copies_are_timed_at_each_size_and_kind(benchmark: Any) -> None:
    def clock(seconds: float) -> Callable[..., Any]:
        return lambda call, name, spent: call() is None or SimpleNamespace(median=seconds)

    rates = benchmark.copy_rates(3 << 20, "cpu", {"in a graph": clock(2.0), "launched": clock(1.0)}, (1 << 20, 3 << 20))
    assert rates == {
        "copy of 1 MiB, in a graph": (1 << 20) / 1e9,
        "copy of 1 MiB, launched": (2 << 20) / 1e9,
        "copy of 3 MiB, in a graph": (3 << 20) / 1e9,
        "copy of 3 MiB, launched": (6 << 20) / 1e9,
    }


@pytest.mark.parametrize(("right", "wrong"), [("(codes >> 4)", "(codes >> 5)"), ("low >> 8", "low >> 4")])
def test_benchmark_does_not_time_a_wrong_result(
    benchmark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, right: str, wrong: str
) -> None:
    monkeypatch.setattr(benchmark, "WIDE", SMALL_WIDE)
    text = benchmark.source()
    assert text.count(right) == 1
    home = benchmark.load(tmp_path, text.replace(right, wrong))
    with pytest.raises(AssertionError, match="not close"):
        benchmark.w4a16(home, no_clock, "cpu", 36, 128, 64)
