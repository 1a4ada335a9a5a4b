"""The models behind the CUDA views: right by theory and brute force, and the same in Python and in JavaScript."""

from __future__ import annotations

import ctypes
import itertools
import shutil
import subprocess
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

import mlsys_labkit.cuda as cuda_package
from mlsys_labkit.cuda.nvidia.occupancy import LIMITS, occupancy
from mlsys_labkit.widgets import base
from mlsys_labkit.widgets.annotated_source import model as source
from mlsys_labkit.widgets.tile_walk import model as tiles
from mlsys_labkit.widgets.warp_access import PRESETS, model as warp
from tests.labkit import twins

WIDGETS = Path(base.__file__).parent


def resident(limits: dict[str, Any], threads: int, registers: int, shared_bytes: int) -> dict[str, Any]:
    """Return the result of the kit's calculator in the form that its JavaScript twin returns."""
    found = occupancy(limits["name"], threads, registers, shared_bytes)
    allowed = dict(found.blocks_allowed)
    return {"blocks": found.blocks_per_sm, "warps": found.warps, "allowed": allowed, "limits": list(found.limits)}


MODULES = {"source": source, "warp": warp, "tiles": tiles, "occupancy": SimpleNamespace(occupancy=resident)}
SOURCES = {
    "source": WIDGETS / "annotated_source/model.js",
    "warp": WIDGETS / "warp_access/model.js",
    "tiles": WIDGETS / "tile_walk/model.js",
    "occupancy": WIDGETS / "occupancy/model.js",
}
REQUESTS = {
    "coalesced": [4 * lane for lane in range(32)],
    "shifted": [4 * lane + 4 for lane in range(32)],
    "column": [128 * lane for lane in range(32)],
    "padded": [132 * lane for lane in range(32)],
    "broadcast": [64] * 32,
    "pairs": [16 * (lane // 2) for lane in range(32)],
    "pairs two apart": [16 * (lane & ~2) if lane != 5 else None for lane in range(32)],
    "before the buffer": [4 * lane - 20 for lane in range(32)],
    "half idle": [16 * lane if lane % 2 else None for lane in range(32)],
    "all idle": [None] * 32,
}
FORMULAS = [
    "lane",
    "(lane ^ i) * 4 + lane / 8",
    "lane * k + i",
    "-lane % 3 - -2",
    "1 << lane",
    "lane >> 1 | 5 & 3 ^ i",
    "7 - 2 - 1",
    "2 + 3 * 4",
    "100 / 7 / 2",
    "(0 - 7) / 2",
    "(0 - 7) % 2",
    "lane - 40 >> 2",
    "1 | 2 ^ 3 & 4 << 1",
    "",
    "(",
    "lane +",
    "lane lane",
    "lane)",
    "x + 1",
    "lane ** 2",
    "1 / (lane - 3)",
    "lane << 32",
    "99999 * 99999",
    "1 << (0 - 1)",
    "lane; i",
    "2.5",
    "9" * 81,
    "2147483647 + 1",
    "lane é",
    "()",
    "4 5",
    "toString",
    "_ + 1",
]
COUNTS = [
    [7, "global", "load", 4, 10, 320, 320, 0, 40, 0, 32],
    [7, "global", "load", 8, 30, 960, 240, 0, 240, 0, 8],
    [7, "shared", "store", 4, 10, 320, 0, 20, 0, 10, 2],
    [3, "shared", "load", 4, 10, 320, 0, 10, 0, 10, 1],
    [9, "global", "atomic", 4, 0, 0, 0, 0, 0, 0, 0],
]
SHARED = (0, 1, 1024, 8192, 49_152, 101_000, 166_912, 232_448, 232_449)
STEPS = [[9, 64], [3, 320], [7, 1280]]


def _calls() -> list[twins.Call]:
    calls: list[twins.Call] = []
    for lanes, size in itertools.product(REQUESTS.values(), (1, 2, 4, 8, 12, 16, 32)):
        names = ("sectors", "distinctBytes", "idealSectors", "efficiency", "wavefronts")
        calls += [("warp", name, [lanes, size]) for name in names]
        calls += [("warp", "wavefronts", [lanes, size, True]), ("warp", "sameAddress", [lanes])]
        calls += [("warp", "wavefronts", [lanes, size, False, True]), ("warp", "phaseLanes", [lanes, size, True])]
        calls += [("warp", "bankDepths", [lanes, size, which]) for which in range(32 // warp.phase_lanes(lanes, size))]
    texts = [*FORMULAS, *(values[1] for values in PRESETS.values())]
    calls += [("warp", "places", [text, {"i": i, "k": k}]) for text in texts for i, k in ((0, 1), (3, 5))]
    for n, tile in itertools.product((1, 7, 64, 1000), (1, 2, 16, 64, 128)):
        calls += [("tiles", name, [n, tile, 4]) for name in ("loadedBytes", "globalBytes", "intensity")]
        last = tiles.steps(n, tile) - 1
        calls += [("tiles", "steps", [n, tile]), ("tiles", "walk", [n, tile, 0, last])]
        calls += [("tiles", "walk", [n, tile, (last + 1) * last, 0])]
    for tile, register in itertools.product((1, 8, 128), (1, 2, 8)):
        calls += [("tiles", "threads", [tile, register]), ("tiles", "sharedLoadsPerFma", [tile, register])]
        calls += [("tiles", "sharedBytes", [tile, 4])]
    for metric in ("sectors", "wavefronts", "requests", "steps"):
        rows = source.heat(COUNTS, STEPS, metric)
        calls += [("source", "heat", [COUNTS, STEPS, metric]), ("source", "hottest", [rows])]
    for arch, limits in LIMITS.items():
        row = {**asdict(limits), "name": arch}
        grid = itertools.product((1, 32, 100, 256, 768, 1024, 1056), (0, 16, 33, 64, 168, 255, 256), SHARED)
        calls += [("occupancy", "occupancy", [row, *point]) for point in grid]
    return [*calls, ("source", "hottest", [[]]), *(("source", "excess", [count]) for count in COUNTS)]


def test_the_javascript_models_give_the_same_answers() -> None:
    calls = _calls()
    assert len(calls) > 400
    twins.compare(MODULES, calls, twins.in_node(SOURCES, calls))


# --- theory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "size", "sectors"),
    [
        ("lane", 4, 4),  # 32 x 4 B side by side
        ("lane", 1, 1),
        ("lane", 2, 2),
        ("lane", 8, 8),
        ("lane", 16, 16),  # float4: 512 B
        ("lane + 1", 4, 5),  # shifted by one float: one sector more
        ("0", 4, 1),  # broadcast
        ("lane * 2", 4, 8),
        ("lane * 4", 4, 16),  # one field of a struct of four floats
        ("lane * 8", 4, 32),  # from a stride of 32 B on, a sector a lane
        ("lane * 1024", 4, 32),
        ("lane / 16 * 1024 + lane % 16", 4, 4),  # a 16 x 16 block: two rows of 64 B
    ],
)
def test_sectors_of_a_request_equal_theory(pattern: str, size: int, sectors: int) -> None:
    lanes = [size * place for place in warp.places(pattern, {})]
    assert len(warp.sectors(lanes, size)) == sectors


@pytest.mark.parametrize(
    ("pattern", "size", "wavefronts"),
    [
        ("lane", 4, [1]),
        ("0", 4, [1]),  # one word for all lanes is a broadcast
        ("lane / 2", 4, [1]),
        ("lane * 2", 4, [2]),
        ("lane * 32", 4, [32]),  # column of a 32 x 32 tile
        ("lane * 33", 4, [1]),  # padded
        ("lane * 32 + (lane ^ 5)", 4, [1]),  # swizzled
        ("lane", 1, [1]),  # four lanes a word
        ("lane", 8, [1, 1]),  # double: two half-warps
        ("lane * 2", 8, [2, 2]),
        ("lane", 16, [1, 1, 1, 1]),  # float4: four quarter-warps
        ("lane * 32", 16, [8, 8, 8, 8]),
    ],
)
def test_wavefronts_of_a_request_equal_theory(pattern: str, size: int, wavefronts: list[int]) -> None:
    lanes = [size * place for place in warp.places(pattern, {})]
    assert warp.wavefronts(lanes, size) == wavefronts


# --- the simulator's own counting ------------------------------------------------------------------------------------

HARNESS = """
#include "request_cost.h"
extern "C" void cost(uint32_t mask, uint32_t bytes, bool atomic, bool loads, const uint64_t* addresses, uint32_t* out) {
    const lk::WarpAccess access{mask, bytes, atomic, loads, addresses};
    const lk::GlobalCost global = lk::global_cost(access);
    const lk::SharedCost shared = lk::shared_cost(access);
    const uint32_t all[] = {global.sectors, global.ideal_sectors, global.same_address,
                            shared.wavefronts, shared.ideal_wavefronts, shared.worst};
    for (int i = 0; i < 6; i++) out[i] = all[i];
}
"""


def offsets(least: int) -> st.SearchStrategy[list[int | None]]:
    return st.lists(st.one_of(st.none(), st.integers(least, 3000)), min_size=32, max_size=32)


@pytest.fixture(scope="module")
def simulator_cost(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Compile the simulator's C++ that computes the cost of a request, callable with offsets as the model is."""
    if shutil.which("g++") is None:
        pytest.skip("needs g++ to compile the simulator's counting")
    folder = tmp_path_factory.mktemp("cost")
    (folder / "harness.cpp").write_text(HARNESS)
    runtime = Path(cuda_package.__path__[0]) / "kernel/native/runtime"
    parts = [folder / "harness.cpp", runtime / "request_cost.cpp"]
    command = ["g++", "-std=c++17", "-O1", "-shared", "-fPIC", f"-I{runtime}", *map(str, parts), "-o", "cost.so"]
    subprocess.run(command, cwd=folder, check=True)
    cost = ctypes.CDLL(str(folder / "cost.so")).cost

    def call(lanes: list[int | None], size: int, op: str) -> list[int]:
        mask = sum(1 << lane for lane, at in enumerate(lanes) if at is not None)
        addresses = (ctypes.c_uint64 * 32)(*[4096 + (at or 0) for at in lanes])
        found = (ctypes.c_uint32 * 6)()
        cost(mask, size, ctypes.c_bool(op == "atomic"), ctypes.c_bool(op == "load"), addresses, found)
        return list(found)

    return call


@given(
    offsets(0),
    st.sampled_from([1, 2, 4, 8, 16]),
    st.sampled_from([1, 2, 4, 32]),
    st.sampled_from(["load", "store", "atomic"]),
    st.sampled_from([0, 1, 2, 3]),  # the lanes that differ by these bits have one address
)
def test_a_request_costs_what_the_simulator_counts(
    simulator_cost: Any, places: list[int | None], size: int, stride: int, op: str, shared: int
) -> None:
    places = [places[lane & ~shared] for lane in range(32)]
    lanes = [None if place is None else place // stride * stride * size for place in places]
    assume(any(at is not None for at in lanes))
    waves = warp.wavefronts(lanes, size, op == "atomic", op == "load")
    assert simulator_cost(lanes, size, op) == [
        len(warp.sectors(lanes, size)),
        warp.ideal_sectors(lanes, size),
        warp.same_address(lanes),
        sum(waves),
        sum(wave > 0 for wave in waves),
        max(waves),
    ]


def test_atomics_on_one_address_take_turns() -> None:
    assert warp.wavefronts([0] * 32, 4, atomic=True) == [32]
    assert warp.wavefronts([0] * 32, 4) == [1]
    assert warp.same_address([8, None, 8, 4]) == 2
    assert warp.same_address([None]) == 0


@given(
    st.lists(st.one_of(st.none(), st.integers(-300, 3000)), min_size=32, max_size=32), st.sampled_from([1, 2, 4, 8, 16])
)
def test_any_request_agrees_with_counting_byte_by_byte(places: list[int | None], size: int) -> None:
    lanes = [None if place is None else place * size for place in places]
    touched = {at + byte for at in lanes if at is not None for byte in range(size)}
    assert warp.sectors(lanes, size) == sorted({byte // 32 for byte in touched})
    assert warp.distinct_bytes(lanes, size) == len(touched)
    assert 32 * warp.ideal_sectors(lanes, size) < len(touched) + 32
    width = {8: 16, 16: 8}.get(size, 32)
    for which, depth in enumerate(warp.wavefronts(lanes, size)):
        part = [at for at in lanes[which * width : (which + 1) * width] if at is not None]
        words = {(at + byte) // 4 for at in part for byte in range(size)}
        assert depth == max(np.bincount([word % 32 for word in words], minlength=1)) if words else depth == 0


numbers = st.integers(0, 50).map(str)
formulas = st.recursive(
    st.one_of(numbers, st.sampled_from(["lane", "i", "k"])),
    lambda part: st.one_of(
        st.tuples(part, st.sampled_from(["+", "-", "*", "&", "^", "|"]), part).map(" ".join),
        part.map("({})".format),
    ),
    max_leaves=8,
)


@given(formulas, st.integers(0, 31), st.integers(0, 9))
def test_a_formula_agrees_with_python_where_c_and_python_mean_the_same(text: str, lane: int, i: int) -> None:
    names = {"lane": lane, "i": i, "k": 3}
    expected = eval(text, {}, names)  # our own text; these operators bind in C as they do in Python
    assume(len(text) <= warp.LONGEST_FORMULA)
    try:
        assert warp.evaluate(text, names) == expected
    except ValueError as error:  # a part of it may leave the range of int, and nothing else may go wrong
        if "range of int" not in str(error):
            raise


def test_division_rounds_towards_zero_as_in_c() -> None:
    assert [warp.evaluate(text, {}) for text in ("(0-7) / 2", "(0-7) % 2", "7 / (0-2)", "7 % (0-2)")] == [-3, -1, -3, 1]


@pytest.mark.parametrize(("n", "tile"), [(8, 1), (8, 4), (10, 4), (7, 16)])
def test_loaded_bytes_are_the_sum_over_the_walk_of_every_block(n: int, tile: int) -> None:
    steps = tiles.steps(n, tile)
    walks = [tiles.walk(n, tile, block, step) for block in range(steps**2) for step in range(steps)]
    elements = sum((p.bottom - p.top) * (p.right - p.left) for a, b, _ in walks for p in (a, b))
    assert tiles.loaded_bytes(n, tile, 4) == 4 * elements
    rng = np.random.default_rng(0)
    left, right = rng.integers(0, 9, (2, n, n))
    product = np.zeros((n, n), int)
    for a, b, c in walks:  # and the walk computes the product
        product[c.top : c.bottom, c.left : c.right] += (
            left[a.top : a.bottom, a.left : a.right] @ right[b.top : b.bottom, b.left : b.right]
        )
    assert (product == left @ right).all()


@pytest.mark.parametrize("tile", [1, 16, 32, 128])
def test_tiling_formula(tile: int) -> None:
    n = 1024
    assert tiles.loaded_bytes(n, tile, 4) == 2 * n**3 / tile * 4
    assert tiles.intensity(n, tile, 4) == pytest.approx(2 * n**3 / (8 * n**3 / tile + 4 * n * n))


def test_heat_is_a_mean_over_the_requests_of_a_line_in_its_own_space() -> None:
    assert source.heat(COUNTS, STEPS, "sectors") == [[7, (320 + 240) / 40, (40 + 240) / 40, 40]]
    assert source.heat(COUNTS, STEPS, "wavefronts") == [[3, 1, 1, 10], [7, 2, 1, 10]]
    assert source.heat(COUNTS, STEPS, "requests") == [[3, 10, 10, 1], [7, 50, 50, 1]]
    assert source.hottest(source.heat(COUNTS, STEPS, "wavefronts")) == 7
    assert source.excess(COUNTS[0]) == 8


def test_the_hottest_line_is_the_one_that_moves_most_too_much() -> None:
    once = [2, "global", "store", 4, 1, 32, 32, 0, 4, 0, 32]  # 28 sectors too many, once
    often = [5, "global", "load", 4, 100, 3200, 800, 0, 400, 0, 8]  # 4 too many, a hundred times
    assert source.hottest(source.heat([once, often], [], "sectors")) == 5
    assert source.most_excess([once, often], "sectors") == 400


def test_presets_teach_what_they_say() -> None:
    seen: dict[str, Any] = {}
    for key, (_, text, size, space, k) in PRESETS.items():
        lanes = [size * place for place in warp.places(text, {"i": 2, "k": k})]
        seen[key] = len(warp.sectors(lanes, size)) if space == "global" else sum(warp.wavefronts(lanes, size))
    sectors = {"coalesced": 4, "shifted": 5, "strided": 8, "aos": 16, "float4": 16, "broadcast": 1}
    assert seen == {**sectors, "row": 1, "column": 32, "padded": 1, "swizzled": 1}
