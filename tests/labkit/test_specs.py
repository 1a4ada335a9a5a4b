"""Invariants that catch the mistakes published device tables really made: sparse for dense, halved or doubled rates,
fall-through dtypes, prefix-matched names."""

from __future__ import annotations

import datetime

import pytest

from mlsys_labkit import specs
from mlsys_labkit.errors import LabkitError
from mlsys_labkit.specs import DTYPES, DeviceSpec, Figure, UnknownDeviceError, UnknownDtypeError

KEYS = specs.keys()
ALL = [specs.get(key) for key in KEYS]
BY_KEY = pytest.mark.parametrize("spec", ALL, ids=lambda spec: spec.key)


def figures(spec: DeviceSpec) -> list[Figure]:
    sections = (spec.facts, spec.peaks, spec.sparse_peaks, spec.bandwidths)
    return [figure for section in sections for figure in section.values()]


def test_the_table_holds_the_devices_students_meet() -> None:
    wanted = {
        "v100-sxm2-16gb",
        "t4",
        "a10",
        "a100-sxm-40gb",
        "a100-sxm-80gb",
        "l4",
        "l40s",
        "h100-sxm",
        "h100-pcie",
        "h200",
        "b200",
        "rtx3090",
        "rtx4090",
        "rtx5090",
        "mi300x",
        "epyc-9654",
        "xeon-8480",
        "apple-m2",
    }
    assert wanted <= set(specs.keys())


@BY_KEY
def test_every_datasheet_links_to_its_vendor(spec: DeviceSpec) -> None:
    host = spec.document_url.split("/")[2]
    assert host.endswith(f".{spec.vendor.lower()}.com")
    assert spec.document


@BY_KEY
def test_every_number_says_where_it_was_read_and_under_which_condition(spec: DeviceSpec) -> None:
    assert {"sms", "clock"} <= spec.facts.keys()
    for figure in figures(spec):
        assert figure.value > 0
        assert figure.unit in {"SM", "Hz", "B", "W", "B/s", "FLOP/s"}
        assert figure.source
        assert figure.url.startswith("https://")
        assert figure.condition
        assert datetime.date.fromisoformat(figure.date) <= datetime.date.today()


@BY_KEY
def test_sms_times_clock_times_flop_per_clock_reproduces_each_peak(spec: DeviceSpec) -> None:
    for dtype, figure in spec.peaks.items():
        assert figure.flop_per_clock is not None
        product = spec.sms * (figure.clock_hz or spec.clock_hz) * figure.flop_per_clock
        assert figure.value == pytest.approx(product, rel=0.02), dtype


@BY_KEY
def test_an_sm_does_a_power_of_two_of_flop_a_clock(spec: DeviceSpec) -> None:
    for figure in spec.peaks.values():
        rate = int(figure.flop_per_clock or 0)
        assert rate > 0
        assert rate & (rate - 1) == 0


@BY_KEY
def test_sparse_is_twice_dense_and_never_a_ceiling(spec: DeviceSpec) -> None:
    assert spec.sparse_peaks.keys() <= spec.peaks.keys()
    for dtype, sparse in spec.sparse_peaks.items():
        assert sparse.value == pytest.approx(2 * spec.peak(dtype), rel=0.02)
        assert "sparsity" in sparse.condition
        assert spec.peak(dtype) != sparse.value
    for figure in spec.peaks.values():
        assert "2:4" not in figure.condition


@BY_KEY
def test_halving_the_width_doubles_the_rate(spec: DeviceSpec) -> None:
    if "float8" in spec.peaks:
        assert spec.peak("float8") == pytest.approx(2 * spec.peak("bfloat16"), rel=0.02)
    if "float4" in spec.peaks:
        assert spec.peak("float4") >= 2 * spec.peak("float8") * 0.98
    if {"tf32", "bfloat16"} <= spec.peaks.keys():
        assert spec.peak("bfloat16") == pytest.approx(2 * spec.peak("tf32"), rel=0.02)
    if {"bfloat16", "float16"} <= spec.peaks.keys():
        assert spec.peak("bfloat16") == spec.peak("float16")


@BY_KEY
def test_unknown_dtype_raises_and_lists_what_there_is(spec: DeviceSpec) -> None:
    for dtype in ("fp32", "float", "half", "FLOAT32", "float32_cuda", ""):
        with pytest.raises(UnknownDtypeError, match="float32") as caught:
            spec.peak(dtype)
        assert "\n" not in str(caught.value)
    assert spec.peaks.keys() <= set(DTYPES)
    with pytest.raises(LabkitError, match="dram"):
        spec.bandwidth("l9")


def test_no_precision_falls_through_to_another() -> None:
    for key, dtype in (
        ("v100-sxm2-16gb", "bfloat16"),
        ("t4", "tf32"),
        ("a100-sxm-80gb", "float8"),
        ("h100-sxm", "float4"),
    ):
        with pytest.raises(UnknownDtypeError):
            specs.get(key).peak(dtype)


@BY_KEY
def test_shared_memory_moves_128_bytes_a_clock_and_sm(spec: DeviceSpec) -> None:
    if "shared" in spec.bandwidths:
        assert spec.bandwidth("shared") == pytest.approx(spec.sms * spec.clock_hz * 128, rel=0.005)


@pytest.mark.parametrize(
    ("key", "dtype", "tera"),
    [  # datasheet values that well-known projects got wrong
        ("b200", "bfloat16", 2250),
        ("b200", "float8", 4500),
        ("a100-sxm-80gb", "bfloat16", 312),
        ("h100-sxm", "bfloat16", 989),
        ("h100-pcie", "bfloat16", 756),
        ("l40s", "float8", 733),
        ("rtx4090", "float16", 165),
        ("mi300x", "float16", 1307),
        ("v100-sxm2-16gb", "float16", 125),
        ("t4", "float16", 65),
        ("h100-sxm", "float32", 67),
    ],
)
def test_peaks_are_the_dense_fp32_accumulate_ones(key: str, dtype: str, tera: float) -> None:
    assert specs.get(key).peak(dtype) / 1e12 == pytest.approx(tera, rel=0.005)


@pytest.mark.parametrize(
    ("key", "giga"),
    [
        ("h100-sxm", 3350),
        ("h100-pcie", 2000),
        ("h200", 4800),
        ("a100-sxm-40gb", 1555),
        ("a100-sxm-80gb", 2039),
        ("rtx4090", 1008),
    ],
)
def test_bandwidth_is_that_of_the_sku(key: str, giga: float) -> None:
    assert specs.get(key).bandwidth() / 1e9 == giga


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA B200", "b200"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA A10", "a10"),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm-40gb"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"),
        ("A100-SXM4-40GB", "a100-sxm-40gb"),
        ("Tesla T4", "t4"),
        ("Tesla V100-SXM2-16GB", "v100-sxm2-16gb"),
        ("Tesla V100-SXM2-32GB", "v100-sxm2-32gb"),
        ("NVIDIA GeForce RTX 3090", "rtx3090"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("nvidia  geforce rtx 4090 ", "rtx4090"),
        ("NVIDIA GeForce RTX 5090", "rtx5090"),
        ("AMD Instinct MI300X", "mi300x"),
        ("AMD EPYC 9654 96-Core Processor", "epyc-9654"),
        ("Intel(R) Xeon(R) Platinum 8480+", "xeon-8480"),
    ],
)
def test_names_as_the_driver_prints_them(name: str, key: str) -> None:
    assert specs.resolve(name) == key


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA A10G",
        "NVIDIA A100-PCIE-40GB",
        "NVIDIA A100 80GB PCIe",
        "NVIDIA H100 NVL",
        "NVIDIA H100",
        "NVIDIA H200 NVL",
        "NVIDIA GH200 480GB",
        "NVIDIA GB200",
        "NVIDIA L40",
        "NVIDIA L20",
        "NVIDIA A100-SXM4-80GB MIG 1g.10gb",
        "NVIDIA H100 80GB HBM3 MIG 3g.40gb",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 3090 Ti",
        "NVIDIA GeForce RTX 5090 Laptop GPU",
        "Tesla V100-PCIE-16GB",
        "Tesla V100-SXM3-32GB",
        "NVIDIA RTX 6000 Ada Generation",
        "AMD Instinct MI300X VF",
        "AMD EPYC 9654P 96-Core Processor",
        "Intel(R) Xeon(R) Platinum 8480CL",
        "Apple M2",
        "Apple M1",
        "",
        "h100-sxm",
        "GPU",
    ],
)
def test_other_skus_slices_and_laptops_are_unknown(name: str) -> None:
    assert specs.resolve(name) is None


def test_unknown_key_lists_near_matches() -> None:
    with pytest.raises(UnknownDeviceError, match="h100-sxm, h100-pcie") as caught:
        specs.get("h100")
    assert str(caught.value).startswith("no device spec 'h100'; did you mean")
    assert isinstance(caught.value, LabkitError)
    with pytest.raises(UnknownDeviceError, match=r"known keys: .*t4"):
        specs.get("zzzzzz")


def test_inheritance_changes_only_what_it_states() -> None:
    h100, h200 = specs.get("h100-sxm"), specs.get("h200")
    assert h200.peak("bfloat16") == h100.peak("bfloat16")
    assert h200.memory_bytes == 141 * 2**30
    assert (h200.l2_bytes, h100.l2_bytes) == (60 * 2**20, 50 * 2**20)
    assert h100.memory_bytes == 80 * 2**30
    assert h200.names == ("NVIDIA H200",)
    assert h200.sms == h100.sms == 132
    assert h100.l2_bytes == 52_428_800  # what the driver reports
    assert specs.get("b200").l2_bytes == 132_644_864


def test_the_table_cannot_be_changed_by_a_reader() -> None:
    with pytest.raises(TypeError):
        specs.get("t4").peaks["float32"] = None  # type: ignore[index]
