from __future__ import annotations

import contextlib
import itertools
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsys_labkit import specs
from mlsys_labkit.device import Device
from mlsys_labkit.errors import LabkitError
from mlsys_labkit.roofline import Ceiling, Roofline, measure, store
from mlsys_labkit.roofline.labels import Board, Spot, spread
from mlsys_labkit.units import plain, si
from mlsys_labkit.work import Work, WorkError

H100 = Roofline.from_spec("h100-sxm")
PEAK, BANDWIDTH = 989.4e12, 3.35e12  # bfloat16 dense and HBM3 of the H100 SXM datasheet
CPU = Device(name="Some CPU", kind="cpu", cores=2.0)


def on_cpu(*extra: Ceiling) -> Roofline:
    return Roofline(
        CPU,
        (
            Ceiling("memory", "dram", 20e9, level="dram", origin="measured", ci_low=19e9, ci_high=21e9),
            Ceiling("memory", "l3", 60e9, level="l3", origin="measured", ci_low=59e9, ci_high=61e9),
            Ceiling("compute", "float32", 200e9, dtype="float32", origin="measured", ci_low=190e9, ci_high=210e9),
            *extra,
        ),
    )


def matmul(n: int = 4096, seconds: float | None = None, dtype: str = "bfloat16") -> Work:
    return Work(2 * n**3, 4 * n * n, 2 * n * n, seconds=seconds, dtype=dtype, name="matmul")


# ---------------------------------------------------------------------------------------------------- the roof


@pytest.mark.parametrize("key", specs.keys())
def test_a_datasheet_roof_is_dense_and_a_model(key: str) -> None:
    roofline, spec = Roofline.from_spec(key), specs.get(key)
    assert roofline.virtual
    assert {c.origin for c in roofline.ceilings} == {"datasheet"}
    assert roofline.dtypes() == tuple(spec.peaks)
    for dtype, sparse in spec.sparse_peaks.items():
        assert roofline.compute(dtype).value < 0.6 * sparse.value
    assert all("http" in f.url for f in spec.peaks.values())
    assert all(c.source for c in roofline.ceilings)


def test_ridge_and_attainable_are_the_textbook_ones() -> None:
    assert H100.ridge("bfloat16") == pytest.approx(PEAK / BANDWIDTH)
    assert H100.attainable(1.0, "bfloat16") == pytest.approx(BANDWIDTH)
    assert H100.attainable(1e6, "bfloat16") == PEAK
    assert H100.attainable(0.25, "float32") == pytest.approx(837.5e9)
    assert H100.attainable(1.0, "bfloat16", level="shared") == pytest.approx(33.45e12)


@given(st.floats(-4, 6), st.floats(-4, 6), st.sampled_from(["float64", "float32", "bfloat16", "float8"]))
def test_attainable_rises_to_the_peak_and_stays_under_both_limits(a: float, b: float, dtype: str) -> None:
    low, high = sorted((10**a, 10**b))
    assert H100.attainable(low, dtype) <= H100.attainable(high, dtype) <= H100.compute(dtype).value
    assert H100.attainable(low, dtype) <= BANDWIDTH * low * (1 + 1e-12)
    assert H100.attainable(low * H100.ridge(dtype) / low, dtype) == pytest.approx(H100.compute(dtype).value)


def test_measured_answers_where_both_are_known() -> None:
    measured = Ceiling("compute", "bfloat16", 794e12, dtype="bfloat16", origin="measured")
    both = Roofline(H100.device, (*H100.ceilings, measured))
    assert both.compute("bfloat16").value == 794e12
    assert both.compute("bfloat16", "datasheet").value == PEAK
    assert both.attainable(1e9, "bfloat16", origin="datasheet") == PEAK
    assert both.compute("float32").origin == "datasheet"


def test_no_precision_or_level_stands_in_for_another() -> None:
    with pytest.raises(LabkitError, match=r"no compute ceiling for 'float4'; it has .*bfloat16"):
        H100.attainable(1.0, "float4")
    with pytest.raises(LabkitError, match="no memory ceiling for 'l2'; it has dram, shared"):
        H100.ridge("float32", "l2")
    with pytest.raises(LabkitError, match="no measured compute ceiling"):
        H100.compute("float32", "measured")


# ------------------------------------------------------------------------------------------- a piece of work


def test_compute_bound_work() -> None:
    placed = H100.place(matmul(seconds=2 * 4096**3 / 650e12))
    assert placed.bound == "compute"
    assert placed.intensity == pytest.approx(4096 / 3)
    assert placed.fraction == pytest.approx(650e12 / PEAK)
    assert not placed.above_roof
    assert placed.verdict == (
        "matmul is compute bound at 1370 FLOP/B and reaches 66% of the roof: 650 TFLOP/s of 989 TFLOP/s of bfloat16 "
        "arithmetic (datasheet: model, not measured)."
    )


def test_memory_bound_work_is_told_in_bytes() -> None:
    placed = H100.place(Work(1e9, 8e9, 4e9, seconds=6e-3, name="add"))
    assert placed.bound == "memory"
    assert placed.fraction == pytest.approx(12e9 / 6e-3 / BANDWIDTH)
    assert placed.attainable_flops_per_second == pytest.approx(BANDWIDTH / 12)
    assert "2 TB/s of 3.35 TB/s of dram bandwidth" in placed.verdict


def test_work_without_seconds_gets_its_least_time() -> None:
    placed = H100.place(Work(0.0 + 1e9, 3.35e9, name="stream"))
    assert placed.fraction is None
    assert placed.achieved_flops_per_second is None
    assert "at most 1 TFLOP/s, at least 1 ms" in placed.verdict
    assert not placed.above_roof


def test_a_copy_has_no_flops_and_a_place() -> None:
    placed = H100.place(Work(0, 3.35e9, 3.35e9, seconds=4e-3, dtype="int32", name="copy"))
    assert placed.bound == "memory"
    assert placed.fraction == pytest.approx(0.5)
    assert placed.attainable_flops_per_second == 0
    nothing_moved = H100.place(Work(1e12, seconds=1.0, name="registers only"))
    assert nothing_moved.bound == "compute"
    assert "no bytes moved" in nothing_moved.verdict
    with pytest.raises(WorkError, match="no FLOPs and no bytes"):
        H100.place(Work())


@given(st.floats(3, 15), st.floats(3, 12), st.floats(0.01, 1.05))
def test_fraction_is_the_least_time_over_the_time(flops: float, moved: float, share: float) -> None:
    least = max(10**flops / PEAK, 10**moved / BANDWIDTH)  # the roofline model, written as time
    placed = H100.place(Work(10**flops, 10**moved, seconds=least / share, dtype="bfloat16"))
    assert placed.fraction == pytest.approx(share)
    assert not placed.above_roof
    assert placed.bound == ("memory" if 10**flops / 10**moved < PEAK / BANDWIDTH else "compute")


@given(st.floats(3, 15), st.floats(3, 12), st.floats(1.2, 1e4))
def test_faster_than_the_hardware_is_an_error_in_the_counting(flops: float, moved: float, share: float) -> None:
    least = max(10**flops / PEAK, 10**moved / BANDWIDTH)
    placed = H100.place(Work(10**flops, 10**moved, seconds=least / share, dtype="bfloat16"))
    assert placed.above_roof
    for suspect in ("above the roof", "error in the counting", "precision", "FLOP counting", "scope", "units"):
        assert suspect in placed.verdict
    assert "reaches" not in placed.verdict
    assert "\n" not in placed.verdict


def test_the_verdict_names_the_likeliest_suspect() -> None:
    tf32 = H100.place(matmul(seconds=2 * 4096**3 / 400e12, dtype="float32"))
    assert "did it run in tf32 or bfloat16?" in tf32.verdict
    cached = on_cpu().place(Work(1e9, 12e9, seconds=12e9 / 50e9, name="add"))
    assert cached.above_roof
    assert "did the bytes come from l3?" in cached.verdict
    assert "measure(refresh=True)" in cached.verdict
    assert not on_cpu().place(Work(1e9, 12e9, seconds=12e9 / 50e9), level="l3").above_roof


def test_a_kernel_better_than_the_measured_ceiling_is_no_error_under_the_datasheet() -> None:
    measured = Ceiling("compute", "bfloat16", 700e12, dtype="bfloat16", origin="measured", ci_low=7e14, ci_high=7e14)
    both = Roofline(H100.device, (*H100.ceilings, measured))
    placed = both.place(matmul(seconds=2 * 4096**3 / 850e12))
    assert placed.fraction == pytest.approx(850 / 700)
    assert not placed.above_roof


# ------------------------------------------------------------------------------------------------ measuring


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
    Roofline.measure(5.0, device=device)  # a longer look was asked for
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
    monkeypatch.setattr(store.os, "replace", lambda *paths: (_ for _ in ()).throw(OSError("disk full")))
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
    """As much of torch as a GPU measurement touches."""

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


# -------------------------------------------------------------------------------------------------- drawing

SVG = "{http://www.w3.org/2000/svg}"
WORKS = (
    matmul(seconds=2 * 4096**3 / 650e12),
    Work(2 * 4096**2, 2 * 4096**2, 2 * 4096, seconds=2 * 4096**2 / 2.4e12, dtype="bfloat16", name="matvec"),
    Work(5e6, 4e6, 4e6, name="softmax"),
    matmul(1024, seconds=2 * 1024**3 / 140e12, dtype="float32"),
)


def parsed(roofline: Roofline, *works: Work, **options: Any) -> ElementTree.Element:
    return ElementTree.fromstring(roofline.svg(works, **options))


def texts(root: ElementTree.Element) -> list[str]:
    return [str(element.text) for element in root.iter(f"{SVG}text")]


def test_the_picture_has_a_name_and_reads_aloud() -> None:
    root = parsed(H100, *WORKS)
    assert root.get("role") == "img"
    title, desc = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert title is not None
    assert desc is not None
    assert root.get("aria-labelledby") == f"{title.get('id')} {desc.get('id')}"
    assert title.text == "Roofline of NVIDIA H100 SXM5 80 GB (model, not measured)"
    assert "Model, not measured." in str(desc.text)
    assert "bfloat16 989 TFLOP/s (datasheet)" in str(desc.text)
    assert "reaches 66% of the roof" in str(desc.text)


def test_virtual_says_model_and_measured_does_not() -> None:
    assert "model, not measured" in texts(parsed(H100))
    real = on_cpu()
    assert "not measured" not in real.svg(WORKS[2:3])
    assert "dasharray" not in real.svg().split("</style>")[1]
    css = [element.get("class") for element in parsed(real).iter(f"{SVG}line")]
    assert "compute measured" in css
    assert "memory datasheet" not in css
    assert "memory datasheet" in [element.get("class") for element in parsed(H100).iter(f"{SVG}line")]


def tick_scale(root: ElementTree.Element, axis: str, units: dict[str, float]) -> Any:
    """log10 of a value -> px, read off the two outermost labelled ticks."""
    ticks = []
    for element in root.iter(f"{SVG}text"):
        match = re.fullmatch(r"([\d.]+) ?([kMGTP]?)", str(element.text))
        on_axis = element.get("text-anchor") == ("middle" if axis == "x" else "end")
        if match and on_axis and element.get("class") == "soft":
            ticks.append((math.log10(float(match[1]) * units[match[2]]), float(str(element.get(axis)))))
    (a, pa), (b, pb) = min(ticks), max(ticks)
    return lambda log: pa + (log - a) / (b - a) * (pb - pa)


UNITS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}


def test_lines_and_points_stand_where_the_ticks_say() -> None:
    root = parsed(H100, *WORKS[:1])
    x, y = tick_scale(root, "x", UNITS), tick_scale(root, "y", UNITS)
    levels = [float(str(e.get("y1"))) for e in root.iter(f"{SVG}line") if str(e.get("class")).startswith("compute")]
    assert any(
        abs(level - (y(math.log10(PEAK)) - 4)) < 0.5 for level in levels
    )  # a tick's text sits 4 px under its line
    ridges = [
        (float(str(e.get("cx"))), float(str(e.get("cy"))))
        for e in root.iter(f"{SVG}circle")
        if e.get("class") == "ridge"
    ]
    assert any(
        abs(cx - x(math.log10(PEAK / BANDWIDTH))) < 0.5 and abs(cy - (y(math.log10(PEAK)) - 4)) < 0.5
        for cx, cy in ridges
    )
    point = next(e for e in root.iter(f"{SVG}circle") if e.get("class") == "ran" and e.get("r") == "6")
    assert float(str(point.get("cx"))) == pytest.approx(x(math.log10(4096 / 3)), abs=0.5)
    assert float(str(point.get("cy"))) == pytest.approx(y(math.log10(650e12)) - 4, abs=0.5)
    assert "ridge 295" in texts(root)


def test_a_gpu_without_bfloat16_shows_its_float16() -> None:
    assert "float16 65 TFLOP/s" in texts(parsed(Roofline.from_spec("t4")))
    assert not any("float16 989" in text and "bfloat16" not in text for text in texts(parsed(H100)))
    assert "float16 989 TFLOP/s" in texts(parsed(H100, dtypes=["float16"]))
    assert any("tf32 495 TFLOP/s" in text for text in texts(parsed(H100, matmul(dtype="tf32"))))


def test_above_the_roof_is_marked_as_wrong() -> None:
    root = parsed(H100, *WORKS)
    assert [e for e in root.iter(f"{SVG}path") if e.get("class") == "wrong"]
    assert "matmul: above the roof" in texts(root)
    assert not [e for e in parsed(H100, *WORKS[:3]).iter(f"{SVG}path") if e.get("class") == "wrong"]


@pytest.mark.parametrize("key", specs.keys())
def test_level_labels_do_not_cover_each_other(key: str) -> None:
    roofline = Roofline.from_spec(key)
    flops = [1e9, 2e9, 8e9]
    works = [Work(f, 1e9, seconds=f / roofline.attainable(f / 1e9) * 1.5, name=f"kernel {f:g}") for f in flops]
    boxes = []
    for element in parsed(roofline, *works).iter(f"{SVG}text"):
        if element.get("transform"):
            continue
        width = 5.6 * len(str(element.text))  # a little less than a 12 px sans serif needs
        left = float(str(element.get("x"))) - {"middle": width / 2, "end": width}.get(
            str(element.get("text-anchor")), 0
        )
        boxes.append((left, left + width, float(str(element.get("y"))), element.text))
    for i, (left, right, base, text) in enumerate(boxes):
        for other_left, other_right, other_base, other in boxes[:i]:
            apart = right <= other_left or other_right <= left or abs(base - other_base) >= 11
            assert apart, f"{text!r} covers {other!r}"


def test_names_cannot_break_out_of_the_picture() -> None:
    nasty = '</text><script>alert("x")</script>&'
    root = parsed(H100, Work(1e9, 1e9, seconds=1.0, name=nasty))
    assert any(nasty in text for text in texts(root))
    assert not list(root.iter(f"{SVG}script"))


def test_two_pictures_in_one_page_do_not_share_ids_and_builds_are_equal() -> None:
    assert H100.svg(WORKS) == H100.svg(WORKS)
    ids = [re.findall(r' id="([^"]+)"', picture) for picture in (H100.svg(), H100.svg(WORKS), on_cpu().svg())]
    assert len({name for names in ids for name in names}) == 6
    assert H100._repr_html_() == H100._repr_svg_() == H100.svg()
    assert len(H100.svg(WORKS)) < 30_000


def test_both_themes_and_no_background() -> None:
    style = H100.svg().split("</style>")[0]
    assert "light-dark(" in style
    assert "var(--jp-" in style
    assert "currentColor" in style
    assert not list(parsed(H100).iter(f"{SVG}rect"))


@pytest.mark.parametrize("view", ["svg", "plotly"])
def test_a_copy_is_left_out_and_unknown_dtypes_are_refused(view: str) -> None:
    draw = getattr(H100, view)
    draw([Work(0, 1e9, name="copy")])
    with pytest.raises(LabkitError, match="no compute ceiling for 'int64'"):
        draw([Work(1e9, 1e9, dtype="int64")])


def test_plotly_draws_the_same_facts() -> None:
    pytest.importorskip("plotly")
    chart = H100.plotly(WORKS)
    assert chart.layout.title.text == "NVIDIA H100 SXM5 80 GB (model, not measured)"
    assert (chart.layout.xaxis.type, chart.layout.yaxis.type) == ("log", "log")
    lines = {trace.name: trace for trace in chart.data if trace.mode == "lines"}
    dram = lines["dram 3.35 TB/s, datasheet"]
    assert dram.line.dash == "dash"
    assert np.divide(dram.y, dram.x) == pytest.approx(BANDWIDTH)
    assert tuple(lines["bfloat16 989 TFLOP/s, datasheet"].y) == (PEAK, PEAK)
    points = [trace for trace in chart.data if trace.mode == "markers+text"]
    assert [trace.marker.symbol for trace in points] == ["circle", "circle", "diamond-open", "x"]
    assert "above the roof" in points[3].hovertext
    assert {trace.line.dash for trace in on_cpu().plotly().data} == {"solid"}
    json.loads(chart.to_json())


# ----------------------------------------------------------------------------------------- numbers and labels


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (989.4e12, "989 TFLOP/s"),
        (999.7e9, "1 TFLOP/s"),
        (3.35e12, "3.35 TFLOP/s"),
        (0, "0 FLOP/s"),
        (12.0, "12 FLOP/s"),
    ],
)
def test_si(value: float, text: str) -> None:
    assert si(value, "FLOP/s") == text


@given(st.floats(1e-8, 1e19))
def test_si_keeps_the_value(value: float) -> None:
    number, unit = si(value, "B").split(" ")
    scale = {"n": 1e-9, "µ": 1e-6, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18, "": 1.0}
    assert float(number) * scale[unit.removesuffix("B")] == pytest.approx(value, rel=6e-3)
    assert plain(math.inf) == "∞"


@given(st.lists(st.floats(0, 100), min_size=1, max_size=6))
def test_spread_keeps_order_gap_and_bounds(wanted: list[float]) -> None:
    placed = spread(sorted(wanted), 15, 0, 100)
    assert all(b - a >= 15 - 1e-9 for a, b in itertools.pairwise(placed))
    assert max(placed) <= 100 + 1e-9
    if len(wanted) == 1:
        assert placed == wanted


def test_a_label_takes_the_first_free_spot() -> None:
    board = Board(0, 0, 200, 200)
    board.block_line(0, 50, 200, 50)
    on_line, free, outside = Spot(20, 54), Spot(20, 100), Spot(-90, 150)
    assert board.put("label", [outside, on_line, free]) is free
    assert board.put("label", [free, Spot(20, 140)]).y == 140, "a label is an obstacle for the next"
    assert board.put("label", [on_line]) is on_line, "rather on a line than not at all"


def test_a_notebook_shows_a_placement_as_its_sentence() -> None:
    placement = H100.place(Work(name="a<b", flops=1.0, bytes_read=1.0, dtype="bfloat16"))
    assert "a&lt;b is memory bound at 1 FLOP/B" in placement._repr_html_()
    beyond = H100.place(Work(flops=1e15, bytes_read=1.0, dtype="bfloat16", seconds=0.5))
    assert "above the roof" in beyond._repr_html_()
    assert "#c2543d" in beyond._repr_html_()
