"""The course's tables: each loads, names its sources, and agrees with the others, with the kit and with arithmetic."""

from __future__ import annotations

import math
import re
import tomllib
from datetime import date

import pytest

import mlsys_labkit as lk
from mlsys_labkit.specs import tables
from mlsys_labkit.specs.tables import Table
from tests.conftest import ROOT

DATA = sorted((ROOT / "course/data").glob("*.toml"))
NAMES = ["accelerators", "clusters", "edge", "energy", "gpus", "models", "prices", "supernodes", "top500"]
PRIMARY = (  # vendors, papers and standards, public bodies, and projects that publish their own data
    *("nvidia.com", "amd.com", "intel.com", "apple.com", "micron.com", "tenstorrent.com", "hailo.ai", "lightmatter.co"),
    *("cerebras.ai", "graphcore.ai", "groq.com", "cloud.google.com", "blog.google", "aws.amazon.com", "ai.meta.com"),
    *("awsdocs-neuron.readthedocs-hosted.com", "arxiv.org", "doi.org", "top500.org", "epoch.ai"),
    "prnewswire.com",  # releases of the firms themselves
    *("github.com/NVIDIA/", "github.com/meta-llama/"),
)
ENCYCLOPAEDIAS = ("wiki", "grokipedia", "pedia.", "movatter", "dbpedia", "britannica", "kiwix", "encyclop", "wikimili")
RANGES = {  # unit -> the least and the most that is believable for anything between a microcontroller and a hall
    "year": (2000, 2027),
    "FLOP/s": (1e11, 1e20),
    "op/s": (1e13, 1e18),
    "B/s": (1e10, 1e17),
    "W": (1, 1e10),
    "B": (1e5, 1e16),
    "USD": (100, 1e6),
    "USD/h": (0.05, 50),
    "J": (1e-14, 1e-8),
    "bit": (4, 64),
    "FLOP": (1e20, 1e27),
    "h": (1e3, 1e9),
    "H100": (1e3, 1e7),
    "W/(TFLOP/s)": (0.1, 10),
}


def table(name: str) -> Table:
    return tables.load(ROOT / f"course/data/{name}.toml")


def number(data: Table, row: str, column: str) -> float:
    value = data[row].values[column].value
    assert isinstance(value, float)
    return value


def growth(data: Table, column: str) -> float:
    """Return the doublings per year: a least-squares fit of log2 over the rows that have a value."""
    points = [
        (number(data, row.name, "year"), math.log2(number(data, row.name, column)))
        for row in data
        if column in row.values
    ]
    x, y = (sum(axis) / len(points) for axis in zip(*points, strict=True))
    return float(sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points))


def test_all_data_tables_exist() -> None:
    assert [path.stem for path in DATA] == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_value_has_a_source_with_an_address_and_a_day_and_is_of_its_unit(name: str) -> None:
    data = table(name)
    assert len(data.rows) >= 6
    for row in data:
        assert row.values, row.name
        for column, value in row.values.items():
            place = f"{name}, {row.name}, {column}"
            assert len(value.source.title) > 5, place
            assert re.match(r"https?://[\w.-]+/", value.source.url), place
            assert date(2000, 1, 1) <= date.fromisoformat(value.source.date) <= date(2026, 11, 30), place
            unit = data.columns[column]
            assert unit in RANGES or unit in ("1", "text"), unit
            if unit in RANGES:
                least, most = RANGES[unit]
                assert isinstance(value.value, float), place
                assert least <= value.value <= most, place
            elif unit == "1":
                assert isinstance(value.value, float), place
                assert value.value >= 1, place


def sources() -> list[tuple[str, str, str]]:
    """Return file and key, address, and reason for being secondary of each source of the course and of the kit."""
    files = [*DATA, ROOT / "mlsys_labkit/specs/hardware.toml"]
    return [
        (f"{path.stem}, {key}", fields["url"], fields.get("secondary", ""))
        for path in files
        for key, fields in tomllib.loads(path.read_text("utf-8"))["sources"].items()
    ]


def is_of(url: str, hosts: tuple[str, ...]) -> bool:
    host, _, path = url.split("://", 1)[1].partition("/")
    return any(f"{host}/{path}".startswith(each) if "/" in each else f".{host}".endswith(f".{each}") for each in hosts)


@pytest.mark.parametrize(("place", "url", "secondary"), sources())
def test_no_source_is_an_encyclopaedia_or_a_copy_of_one(place: str, url: str, secondary: str) -> None:
    for part in ENCYCLOPAEDIAS:
        assert part not in url.lower(), f"{place}: {url}; take the source that the encyclopaedia cites"


@pytest.mark.parametrize(("place", "url", "secondary"), sources())
def test_a_source_is_primary_or_says_why_not(place: str, url: str, secondary: str) -> None:
    if is_of(url, PRIMARY):
        assert not secondary, f"{place}: a primary source needs no reason"
    else:
        assert len(secondary) > 20, (
            f"{place}: {url} is no primary host; name one, or say in `secondary` why there is none"
        )


@pytest.mark.parametrize(
    ("url", "primary"),
    [
        ("https://www.nvidia.com/en-us/data-center/h100/", True),
        ("https://github.com/NVIDIA/cccl/blob/main/x.h", True),
        ("https://github.com/somebody/notes", False),
        ("https://notnvidia.com/h100", False),
        ("https://nvidia.com.example.org/h100", False),
    ],
)
def test_primary_hosts_are_compared_whole(url: str, primary: bool) -> None:
    assert is_of(url, PRIMARY) == primary


def test_rates_say_of_which_format_and_memories_of_which_kind() -> None:
    for name, column in (
        ("gpus", "peak"),
        ("accelerators", "peak"),
        ("supernodes", "peak"),
        ("supernodes", "peak_fp4"),
    ):
        for row in table(name):
            if column in row.values:
                assert re.search(r"FP(4|8|16|32)|BF16|INT8|16-bit", row.values[column].condition), (name, row.name)


def test_generations_of_gpus_follow_one_another() -> None:
    gpus = table("gpus")
    years = [number(gpus, row.name, "year") for row in gpus]
    assert years == sorted(years)
    assert years[0] == 2004
    assert years[-1] == 2025
    made = [number(gpus, row.name, "transistors") for row in gpus if "transistors" in row.values]
    flagships = [number(gpus, n, "transistors") for n in gpus.column("transistors") if "RTX" not in n]
    assert flagships == sorted(flagships)
    assert 500 < max(made) / min(made) < 1000


def test_arithmetic_grows_faster_than_the_way_to_memory() -> None:
    gpus = table("gpus")
    peak, bandwidth = growth(gpus, "peak"), growth(gpus, "bandwidth")
    assert peak > 1.5 * bandwidth > 0
    assert 1 <= 1 / peak <= 2 < 1 / bandwidth <= 4, "years to double"
    first, last = "GeForce 8800 GTX (Tesla)", "B200 SXM (Blackwell)"
    balance = [number(gpus, name, "peak") / number(gpus, name, "bandwidth") for name in (first, last)]
    assert balance[0] == 4
    assert 250 < balance[1] < 300


@pytest.mark.parametrize(
    ("row", "key"),
    [
        ("Tesla V100 SXM2 (Volta)", "v100-sxm2-16gb"),
        ("A100 SXM4 80 GB (Ampere)", "a100-sxm-80gb"),
        ("H100 SXM5 (Hopper)", "h100-sxm"),
        ("GeForce RTX 4090 (Ada)", "rtx4090"),
        ("B200 SXM (Blackwell)", "b200"),
        ("GeForce RTX 5090 (Blackwell)", "rtx5090"),
    ],
)
def test_tables_agree_with_the_kits_specs(row: str, key: str) -> None:
    gpus, device = table("gpus"), lk.specs.get(key)
    assert number(gpus, row, "peak") == device.peak("float16")
    assert number(gpus, row, "bandwidth") == device.bandwidth()
    assert number(gpus, row, "memory") == device.facts["memory"].value
    assert number(gpus, row, "power") == device.facts["tdp"].value
    assert number(gpus, row, "year") == device.year
    per_sm = 64 if key in ("v100-sxm2-16gb", "a100-sxm-80gb") else 128  # CUDA programming guide, FP32 results a clock
    assert number(gpus, row, "lanes") == per_sm * device.facts["sms"].value


def test_old_rates_are_lanes_times_two_times_a_clock_that_such_chips_had() -> None:
    gpus = table("gpus")
    for name, clock in (
        ("GeForce 8800 GTX (Tesla)", 1.35),
        ("Tesla M2090 (Fermi)", 1.301),
        ("Tesla K40 (Kepler)", 0.745),
    ):
        assert number(gpus, name, "peak") == pytest.approx(2 * number(gpus, name, "lanes") * clock * 1e9, rel=1e-3)


@pytest.mark.parametrize(("system", "chip"), [("GB200 NVL72", "GB200, one GPU"), ("CloudMatrix 384", "Ascend 910C")])
def test_supernode_figures_are_sums_of_its_chips(system: str, chip: str) -> None:
    nodes = table("supernodes")
    for column in ("peak", "memory", "bandwidth", "scale_up"):
        times = number(nodes, system, column) / number(nodes, chip, column)
        assert times == pytest.approx(number(nodes, system, "chips"), rel=0.03), column


@pytest.mark.parametrize(
    ("system", "chip"), [("TPU7x pod (Ironwood)", "Google TPU v7 (Ironwood)"), ("Trn3 UltraServer", "AWS Trainium3")]
)
def test_supernode_figures_are_its_chips_times_their_number(system: str, chip: str) -> None:
    nodes, chips = table("supernodes"), table("accelerators")
    for column in ("peak", "memory", "bandwidth"):
        times = number(nodes, system, column) / number(chips, chip, column)
        assert times == pytest.approx(number(nodes, system, "chips"), rel=0.03), column


def test_the_same_chip_is_the_same_in_two_tables() -> None:
    one, other = table("supernodes")["Ascend 910C"], table("accelerators")["Huawei Ascend 910C"]
    for column in ("peak", "memory", "bandwidth"):
        assert one.values[column].value == other.values[column].value
    gpu, device = table("accelerators")["AMD Instinct MI300X"], lk.specs.get("mi300x")
    assert gpu.values["peak"].value == device.peak("bfloat16")
    assert gpu.values["power"].value == 750


def test_top500_is_in_order_and_no_machine_beats_its_peak() -> None:
    top = table("top500")
    assert [number(top, row.name, "rank") for row in top if row.rank] == list(range(1, 8))
    reached = list(top.column("rmax").values())
    assert reached == sorted(reached, key=float, reverse=True)
    for row in top:
        if "rpeak" in row.values:
            assert 0.5 < number(top, row.name, "rmax") / number(top, row.name, "rpeak") < 0.9
        if "power" in row.values:
            assert 1e10 < number(top, row.name, "rmax") / number(top, row.name, "power") < 7e10
    # the list's own figure for its first machine, in GFLOP/s a watt
    efficiency = number(top, "El Capitan", "rmax") / number(top, "El Capitan", "power")
    assert efficiency / 1e9 == pytest.approx(60.9, rel=2e-3)


def test_training_is_about_six_operations_a_parameter_and_token() -> None:
    models = table("models")
    for row in models:
        assert number(models, row.name, "active") <= number(models, row.name, "parameters")
        if {"training", "tokens"} <= set(row.values):
            estimate = 6 * number(models, row.name, "active") * number(models, row.name, "tokens")
            assert 0.9 < number(models, row.name, "training") / estimate < 2, row.name


def test_moving_costs_more_than_computing_and_the_further_the_more() -> None:
    energy = table("energy")
    arithmetic = [row for row in energy if row.values["kind"].value == "arithmetic"]
    assert max(number(energy, row.name, "energy") for row in arithmetic) < number(energy, "cache of 8 kB", "energy")
    ladder = [
        number(energy, name, "energy") for name in ("cache of 8 kB", "cache of 32 kB", "cache of 1 MB", "DRAM, 2014")
    ]
    assert ladder == sorted(ladder)
    multiply_add = sum(number(energy, name, "energy") for name in ("multiply, FP32", "add, FP32"))
    per_word = number(energy, "DRAM, 2014", "energy") * 32 / number(energy, "DRAM, 2014", "bits")
    assert 100 <= per_word / multiply_add <= 1000  # the rule of thumb, for words of 32 bits
    # a multiplier's energy goes with the square of its width: INT32 against INT8
    assert 4**1.5 < number(energy, "multiply, INT32", "energy") / number(energy, "multiply, INT8", "energy") < 4**2.5


def test_memory_gap_from_gpu_to_microcontroller() -> None:
    edge = table("edge")
    assert number(edge, "NVIDIA V100", "memory") / number(edge, "iPhone 11", "memory") == 4
    assert 10_000 < number(edge, "iPhone 11", "memory") / number(edge, "STM32F746", "memory") < 13_000  # printed: 3,100
    assert number(edge, "MobileNetV2, INT8", "memory") > 5 * number(edge, "STM32F746", "memory")


def test_prices_are_purchase_or_rent_and_rents_vary() -> None:
    prices = table("prices")
    assert all(set(row.values) in ({"rent"}, {"price"}) for row in prices)
    h100 = [
        number(prices, row.name, "rent") for row in prices if "H100" in row.name and row.rent and "2023" not in row.name
    ]
    assert 3 < max(h100) / min(h100) < 10
    assert all(len(row.rent.condition) > 5 for row in prices if row.rent)
