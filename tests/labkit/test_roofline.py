"""The roof of a machine, and where a piece of work stands under it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st

from mlsys_labkit import specs
from mlsys_labkit._base.units import plain, si
from mlsys_labkit.errors import LabkitError
from mlsys_labkit.roofline import Ceiling, Roofline
from mlsys_labkit.work import Work, WorkError
from tests.labkit.rooflines import BANDWIDTH, H100, PEAK, matmul, on_cpu


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


def test_roofline_refuses_a_missing_precision_or_level() -> None:
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


def test_verdict_of_memory_bound_work_is_in_bytes() -> None:
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


def test_place_of_a_copy_has_no_flops() -> None:
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
