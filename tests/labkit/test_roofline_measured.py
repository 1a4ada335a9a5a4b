"""Rooflines measured on this machine: rates, the cache, and what cannot be measured."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from mlsys_labkit import specs
from mlsys_labkit.device import Device
from mlsys_labkit.errors import LabkitError
from mlsys_labkit.roofline import Roofline, measure, store
from tests.labkit.rooflines import H100, on_cpu


class FakeKernels:
    """A machine of known speed: amounts are stated, and the fake bench says how long they take."""

    device = "cpu"
    version = "fake 1"

    @contextlib.contextmanager
    def ready(self) -> Iterator[None]:
        yield

    def working_sets(self) -> dict[str, int]:
        return {"dram": 3000, "l3": 300, "l2": 30}

    def dtypes(self) -> tuple[str, ...]:
        return ("float32",)

    def triad(self, size: int) -> measure.Probe:
        return measure.Probe(lambda: None, {3000: 2e9, 300: 2.2e9, 30: 8e9}[size], f"triad {size}")

    def matmul(self, dtype: str, n: int) -> measure.Probe:
        return measure.Probe(lambda: None, 2.0 * n**3, f"mm {n}")


def test_rates_are_amounts_over_the_median_with_the_interval_turned_round(monkeypatch: pytest.MonkeyPatch) -> None:
    timing = SimpleNamespace(median=0.5, ci_low=0.4, ci_high=0.8, n=11, verdict="stable")
    monkeypatch.setattr(measure, "bench", lambda *args, **options: timing)
    monkeypatch.setattr(measure, "clock_for", lambda *args, **options: SimpleNamespace(time=lambda call, calls: 1.0))
    found = {c.label: c for c in measure.measure(FakeKernels(), 1.0)}
    assert found["dram"].value == 4e9
    assert (found["dram"].ci_low, found["dram"].ci_high) == (2.5e9, 5e9)
    assert "l3" not in found, "10 % faster than DRAM is not a cache"
    assert found["l2"].value == 16e9
    assert found["float32"].value == pytest.approx(4 * 256**3)
    assert {c.origin for c in found.values()} == {"measured"}
    assert found["dram"].source == "triad 3000, median of 11, stable"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(store, "directory", lambda: tmp_path / "cache")
    return tmp_path / "cache"


def test_this_machine_is_measured_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(name="Test CPU", kind="cpu", cores=2.0)
    first = Roofline.measure(0.3, device=device)
    assert not first.virtual
    assert {"dram"} <= set(first.levels()) <= {"dram", "l3", "l2"}
    assert {"float32", "float64"} <= set(first.dtypes())
    for ceiling in first.ceilings:
        assert ceiling.origin == "measured"
        assert ceiling.ci_low is not None
        assert ceiling.ci_high is not None
        assert 0 < ceiling.ci_low <= ceiling.value <= ceiling.ci_high < 1e15
    assert len(list(cache.iterdir())) == 1

    runs = []
    monkeypatch.setattr(measure, "measure", lambda kernels, seconds: runs.append(seconds) or first.ceilings[:1])
    assert Roofline.measure(0.3, device=device) == first
    assert Roofline.measure(0.3, device=device, smoke=True) == first
    assert runs == []
    Roofline.measure(0.3, device=device, refresh=True)
    Roofline.measure(5.0, device=device)  # a longer measurement was requested
    Roofline.measure(0.1, device=Device(name="Other CPU", kind="cpu"))
    assert runs == [0.3, 5.0, 0.1]


def test_torch_gets_its_threads_back(cache: Path) -> None:
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()

    def crash() -> None:
        with measure.CpuKernels(2.0).ready():
            assert torch.get_num_threads() == 1
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        crash()
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"schema": 0}', '{"schema": 1, "key": "k", "seconds": 9, "ceilings": [{}]}']
)
def test_a_damaged_cache_is_measured_again(cache: Path, text: str) -> None:
    ceilings = on_cpu().ceilings
    store.save("k", 1.0, ceilings)
    assert store.load("k", 1.0) == ceilings
    assert store.load("k", 1.5) == ()
    assert store.load("other", 1.0) == ()
    next(cache.iterdir()).write_text(text)
    assert store.load("k", 1.0) == ()


def test_a_cache_that_cannot_be_written_costs_nothing_but_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr(store, "directory", lambda: tmp_path / "file")
    store.save("k", 1.0, on_cpu().ceilings)
    assert store.load("k", 1.0) == ()
    monkeypatch.setattr(store, "directory", lambda: tmp_path)
    monkeypatch.setattr("os.replace", Mock(side_effect=OSError("disk full")))
    store.save("k", 1.0, on_cpu().ceilings)
    assert [path.name for path in tmp_path.iterdir()] == ["file"], "nothing half-written"


@pytest.mark.parametrize("has_torch", [True, False])
def test_cpu_kernels_state_what_they_do(has_torch: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "_installed", lambda module: has_torch and module == "torch")
    kernels = measure.CpuKernels(2.7)
    assert kernels.threads == 2
    assert next(iter(kernels.working_sets())) == "dram"
    with kernels.ready():
        adds = []
        monkeypatch.setattr(measure.np, "add", lambda a, b, out: adds.append(a.nbytes + b.nbytes + out.nbytes))
        probe = kernels.triad(12 * 2**20)
        probe.call()
        assert sum(adds) == probe.amount == 12 * 2**20
        adds.clear()
        small = kernels.triad(12 * 2**10)
        small.call()
        assert sum(adds) == small.amount > 100 * 12 * 2**10
        product = kernels.matmul("float32", 64)
        product.call()
        assert product.amount == 2 * 64**3 * (2 if has_torch else 1)


class FakeCuda:
    """A fake with as much of torch as a GPU measurement uses."""

    float32, bfloat16, float16, float64 = "float32", "bfloat16", "float16", "float64"
    __version__ = "2.13.0+cu130"

    def __init__(self, major: int = 9) -> None:
        self.precision, self.calls = "medium", 0
        self.cuda = SimpleNamespace(
            is_available=lambda: True,
            current_device=lambda: 0,
            get_device_properties=lambda index: SimpleNamespace(major=major, L2_cache_size=50 * 2**20),
            mem_get_info=lambda: (70 * 2**30, 80 * 2**30),
            empty_cache=lambda: None,
            Stream=lambda: SimpleNamespace(wait_stream=lambda other: None),
            current_stream=lambda: SimpleNamespace(wait_stream=lambda other: None),
            stream=lambda side: contextlib.nullcontext(),
            graph=lambda graph: contextlib.nullcontext(),
            CUDAGraph=lambda: SimpleNamespace(replay=lambda: None),
        )

    def ones(self, n: int, device: str) -> Any:
        return SimpleNamespace(numel=lambda: n)

    def randn(self, *shape: int, device: str) -> Any:
        return SimpleNamespace(to=lambda kind: kind)

    def empty_like(self, a: Any) -> Any:
        return a

    def add(self, a: Any, b: Any, alpha: float, out: Any) -> None:
        self.calls += 1

    def get_float32_matmul_precision(self) -> str:
        return self.precision

    def set_float32_matmul_precision(self, precision: str) -> None:
        self.precision = precision


def test_cuda_kernels_keep_tf32_apart_and_replay_small_kernels() -> None:
    torch = FakeCuda()
    kernels = measure.CudaKernels(torch)
    assert kernels.dtypes() == ("float32", "tf32", "bfloat16", "float16", "float64")
    assert measure.CudaKernels(FakeCuda(major=7)).dtypes() == ("float32", "float16", "float64")
    sets = kernels.working_sets()
    assert sets["l2"] < 50 * 2**20 < sets["dram"] / 4
    with kernels.ready():
        kernels.matmul("float32", 64)
        assert torch.precision == "highest"
        assert kernels.matmul("tf32", 64).amount == 2 * 64**3
        assert torch.precision == "high"
        assert kernels.triad(3 * 2**28).amount == 3 * 2**28
        torch.calls = 0
        assert kernels.triad(12 * 2**20).amount == 50 * 12 * 2**20
        assert torch.calls == 51  # once to warm up, 50 into the graph
    assert torch.precision == "medium"


def test_what_cannot_be_measured_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABKIT_DEVICE", "h100-sxm")
    with pytest.raises(LabkitError, match=r"model, not measured\) cannot be measured; unset LABKIT_DEVICE"):
        Roofline.measure()
    assert Roofline.of() == H100
    torch = FakeCuda()
    torch.cuda.is_available = lambda: False
    with pytest.raises(LabkitError, match="torch cannot use this GPU; install a CUDA build"):
        measure.CudaKernels(torch)


def test_a_real_device_keeps_its_datasheet_beside_the_measurement(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "measure", lambda kernels, seconds: on_cpu().ceilings)
    spec = specs.get("epyc-9654")
    roofline = Roofline.of(Device(name=spec.names[0], kind="cpu", spec=spec, cores=4))
    assert {c.origin for c in roofline.ceilings} == {"datasheet", "measured"}
    assert roofline.compute("float32").origin == "measured"
    assert "(socket)" in roofline.compute("float32", "datasheet").label
