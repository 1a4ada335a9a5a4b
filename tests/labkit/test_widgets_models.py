"""The models behind the widgets: right by an independent oracle, and the same in Python and in JavaScript."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mlsys_labkit._base import units
from mlsys_labkit.widgets import base
from mlsys_labkit.widgets.memory_timeline import model as memory
from mlsys_labkit.widgets.pca import model as pca
from mlsys_labkit.widgets.roofline import model as roof
from mlsys_labkit.widgets.strides import model as strided
from tests.labkit import twins

WIDGETS = Path(base.__file__).parent
SOURCES = {
    "shared": WIDGETS / "shared/numbers.js",
    "strided": WIDGETS / "strides/model.js",
    "roof": WIDGETS / "roofline/model.js",
    "memory": WIDGETS / "memory_timeline/model.js",
    "pca": WIDGETS / "pca/model.js",
}
MODULES = {"shared": units, "strided": strided, "roof": roof, "memory": memory, "pca": pca}

# --- the calls whose answers must agree ------------------------------------------------------------------------------

RNG = np.random.default_rng(7)


def view(shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> strided.StridedView:
    return strided.StridedView(shape, strides, offset)


VIEWS = [
    *(view(shape, strided.contiguous(shape)) for shape in [(1,), (5,), (3, 4), (4, 1), (2, 3, 4), (1, 1, 1), (16, 16)]),
    view((4, 3), (1, 4)),
    view((1, 3), (99, 1)),
    view((3, 4), (0, 1)),
    view((3,), (-1,), 2),
    view((2, 5), (7, -1), 4),
    view((3, 3), (2, 1), 1),
    view((2, 2), (-9, 30), -3),
]
EVENTS = [
    [],
    [[0, 8, 0, 0]],
    [[0, 8, 0, 0], [1, 8, 1, 1], [0, -8, 0, 0], [2, 8, 1, 2], [1, -8, 1, 1]],
    [[0, 2, 0, 0], [1, 9, 1, 0], [2, 5, 0, 0], [3, 9, 0, 0]],
    [[0, 5, 1, 0], [0, -5, 1, 0], [0, 7, 0, 1], [1, 7, 0, 1]],
]
POINTS = [RNG.normal(size=(40, dims)) @ RNG.normal(size=(dims, dims)) for dims in (2, 3, 5)]
COVARIANCES = [np.cov(cloud.T, bias=True) for cloud in POINTS]
SIZES = [0.0, 1e-16, 1e-12, -3e-7, 1.5e-5, 0.0005, 0.00123, 0.25, 7.0, 999.4, 999.6, 1000.0, -4096.0, 12345.0, 1e6]
SIZES += [1225.0, 1.125e9, 3.35e12, 1e18, 9.99e20]  # the first two lie halfway between two texts


def _calls() -> list[twins.Call]:
    calls: list[twins.Call] = [("shared", "si", [size, unit]) for size in SIZES for unit in ("B", "s", "")]
    for one in VIEWS:
        calls += [("strided", name, [one]) for name in ("places", "isContiguous", "aliases", "transpose")]
        calls += [("strided", "outside", [one, 12]), ("strided", "broadcast", [one, 3])]
        calls += [("strided", "lines", [one, item, 64]) for item in (1, 4, 8)]
        for axis, step in itertools.product(range(len(one.shape)), (1, 2, 3, -1, -2)):
            start = 0 if step > 0 else one.shape[axis] - 1
            calls += [("strided", "cut", [one, axis, start, step]), ("strided", "flip", [one, axis])]
    machines = [(67e12, 3.35e12), (8.1e12, 320e9), (1e9, 1e9)]
    for (peak, bandwidth), power in itertools.product(machines, range(-2, 5)):
        calls.append(("roof", "ridge", [peak, bandwidth]))
        calls += [("roof", name, [10.0**power, peak, bandwidth]) for name in ("attainable", "bound")]
        calls += [("roof", "bound", [peak / bandwidth, peak, bandwidth])]
        calls.append(("roof", "leastSeconds", [10.0 ** (9 + power), 1e9, peak, bandwidth]))
    calls += [("roof", "matmul", [m, n, k, 2.0]) for m, n, k in itertools.product((1, 7, 4096), repeat=3)]
    for events in EVENTS:
        calls += [("memory", "live", [events, 2]), ("memory", "peak", [events])]
        calls += [("memory", "alive", [events, at]) for at in range(len(events))]
    for cloud, cov in zip(POINTS, COVARIANCES, strict=True):
        calls += [("pca", "covariance", [cloud.tolist()]), ("pca", "total", [cov]), ("pca", "principal", [cov])]
        units = [pca.direction(angle, tilt, len(cov)) for angle in (0, 33, 179) for tilt in (-40, 0) if len(cov) < 4]
        calls += [("pca", "kept", [cov, unit]) for unit in units]
    calls += [("pca", "direction", [angle, tilt, d]) for angle in (0, 90, 133) for tilt in (0, -90, 20) for d in (2, 3)]
    return [*calls, *(("pca", "tail", [[4.0, 2.0, 1.0], k]) for k in range(4))]


def test_the_javascript_models_give_the_same_answers_in_node() -> None:
    assert len(_calls()) > 400
    twins.compare(MODULES, _calls(), twins.in_node(SOURCES, _calls()))


@pytest.mark.browser
def test_the_javascript_models_give_the_same_answers_in_a_browser(browser: Any) -> None:
    page = browser.new_page()
    twins.compare(MODULES, _calls(), page.evaluate(twins.RUN, twins.job(SOURCES, _calls())))
    page.close()


# --- oracles: NumPy's views, theory, brute force ---------------------------------------------------------------------

shapes = st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple)


def _numpy(one: strided.StridedView) -> np.ndarray:
    """Return a NumPy view of 0, 1, 2, … with the same layout: its values are its offsets."""
    memory = np.arange(1000, dtype=np.int32)
    return np.lib.stride_tricks.as_strided(memory[one.offset :], one.shape, [step * 4 for step in one.strides])


def _of(array: np.ndarray) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return array.shape, tuple(step // array.itemsize for step in array.strides)


@given(shapes, st.data())
def test_view_operations_agree_with_numpy(shape: tuple[int, ...], data: st.DataObject) -> None:
    mine = strided.StridedView(shape, strided.contiguous(shape), 0)
    theirs = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
    for _ in range(data.draw(st.integers(0, 4))):
        operation = data.draw(st.sampled_from(["transpose", "flip", "cut", "broadcast"]))
        axis = data.draw(st.integers(0, len(mine.shape) - 1))
        along: list[Any] = [slice(None)] * theirs.ndim
        if operation == "transpose":
            mine, theirs = strided.transpose(mine), theirs.T
        elif operation == "flip":
            along[axis] = slice(None, None, -1)
            mine, theirs = strided.flip(mine, axis), theirs[tuple(along)]
        elif operation == "cut":
            start, step = (
                data.draw(st.integers(0, mine.shape[axis] - 1)),
                data.draw(st.sampled_from([-3, -2, -1, 1, 2, 3])),
            )
            along[axis] = slice(start, None, step)
            mine, theirs = strided.cut(mine, axis, start, step), theirs[tuple(along)]
        elif theirs.ndim < 4:
            mine, theirs = strided.broadcast(mine, 2), np.broadcast_to(theirs, (2, *theirs.shape))
    assert strided.places(mine) == theirs.ravel().tolist()  # the values are the places
    assert mine.shape == theirs.shape
    # NumPy is free to keep any stride on an axis of length 1.
    assert all(a == b for n, a, b in zip(mine.shape, mine.strides, _of(theirs)[1], strict=True) if n > 1)
    assert strided.is_contiguous(mine) == theirs.flags.c_contiguous
    assert strided.aliases(mine) == theirs.size - len(np.unique(theirs))


@given(shapes, st.lists(st.integers(0, 9), min_size=3, max_size=3), st.integers(0, 20), st.sampled_from([1, 2, 4, 8]))
def test_places_lines_and_bounds_of_any_strides(
    shape: tuple[int, ...], steps: list[int], offset: int, itemsize: int
) -> None:
    one = strided.StridedView(shape, tuple(steps[: len(shape)]), offset)
    walk = _numpy(one).ravel()
    assert strided.places(one) == walk.tolist()
    assert strided.outside(one, 12) == np.count_nonzero(walk >= 12)
    bytes_ = walk.astype(np.int64) * itemsize
    distinct, moves = strided.lines(one, itemsize, 64)
    assert distinct == len(np.unique(bytes_ >> 6))
    assert moves == np.count_nonzero(np.diff(bytes_ >> 6))


def test_the_stride_of_an_axis_of_length_one_does_not_matter() -> None:
    assert strided.is_contiguous(strided.StridedView((1, 3), (99, 1)))
    assert not strided.is_contiguous(strided.StridedView((2, 3), (99, 1)))


def test_tensors_alive_come_largest_first_then_oldest_first() -> None:
    assert [event[0] for event in memory.alive([[0, 2, 0, 0], [1, 9, 1, 0], [2, 5, 0, 0], [3, 9, 0, 0]], 3)] == [
        1,
        3,
        2,
        0,
    ]


def test_column_walk_of_a_row_major_matrix_changes_line_at_every_step() -> None:
    square = strided.StridedView((16, 16), (16, 1))  # 16 floats: one line a row
    assert strided.lines(square, 4) == (16, 15)
    assert strided.lines(strided.transpose(square), 4) == (16, 255)


def test_roofline_of_the_h100_datasheet() -> None:
    peak, bandwidth = 67e12, 3.35e12  # float32 and HBM3 of the SXM5 part
    assert roof.ridge(peak, bandwidth) == pytest.approx(20.0)
    assert roof.attainable(20.0, peak, bandwidth) == pytest.approx(peak)
    assert roof.bound(19.99, peak, bandwidth) == "memory"
    assert roof.bound(20.01, peak, bandwidth) == "compute"


def test_square_matmul_has_intensity_n_over_six_in_float32() -> None:
    flops, moved = roof.matmul(1024, 1024, 1024, 4)
    assert flops / moved == pytest.approx(1024 / 6)


@given(*[st.floats(1.0, 1e15) for _ in range(4)])
def test_least_time_and_attainable_speed_are_two_views_of_one_limit(f: float, b: float, p: float, w: float) -> None:
    assert f / roof.least_seconds(f, b, p, w) == pytest.approx(roof.attainable(f / b, p, w), rel=1e-9)


@given(st.lists(st.tuples(st.integers(1, 100), st.integers(0, 2), st.integers(0, 8)), max_size=12))
def test_live_bytes_are_the_sum_over_lifetimes(tensors: list[tuple[int, int, int]]) -> None:
    # Each tensor lives from its own moment for `span` moments; brute force asks every tensor at every event.
    moments = sorted(
        [(2 * born, 1, i) for i, (_, _, _) in enumerate(tensors) for born in [i]]
        + [(2 * (i + span) + 1, -1, i) for i, (_, _, span) in enumerate(tensors)]
    )
    events = [[i, sign * tensors[i][0], tensors[i][1], 0] for _, sign, i in moments]
    rows = memory.live(events, 3)
    for at, (now, _, _) in enumerate(moments):
        done = moments[: at + 1]
        held = [i for _, sign, i in done if sign > 0 and not any(s < 0 and j == i for _, s, j in done)]
        assert rows[at] == [sum(tensors[i][0] for i in held if tensors[i][1] == c) for c in range(3)], now
        assert sorted(event[0] for event in memory.alive(events, at)) == sorted(held)
    totals = [sum(row) for row in rows]
    assert memory.peak(events) == ((totals.index(max(totals)), max(totals)) if totals else (0, 0))


@pytest.mark.parametrize("cloud", POINTS[:2], ids=["plane", "space"])
@pytest.mark.parametrize("angle", [0, 25, 90, 151])
def test_kept_variance_and_reconstruction_error_are_measured_on_the_points(cloud: np.ndarray, angle: int) -> None:
    unit = np.array(pca.direction(angle, 35, cloud.shape[1]))
    centred = cloud - cloud.mean(axis=0)
    error = np.mean(np.sum((centred - np.outer(centred @ unit, unit)) ** 2, axis=1))
    cov = pca.covariance(cloud.tolist())
    assert pca.kept(cov, unit.tolist()) == pytest.approx(np.var(cloud @ unit))
    assert pca.total(cov) - pca.kept(cov, unit.tolist()) == pytest.approx(error)


@pytest.mark.parametrize("cloud", POINTS, ids=["2", "3", "5"])
def test_axes_and_tail_agree_with_the_singular_value_decomposition(cloud: np.ndarray) -> None:
    centred = cloud - cloud.mean(axis=0)
    left, singular, right = np.linalg.svd(centred, full_matrices=False)
    values, axes = pca.principal(pca.covariance(cloud.tolist()))
    assert values == pytest.approx((singular**2 / len(cloud)).tolist())
    assert np.abs(np.array(axes) @ right.T) == pytest.approx(np.eye(len(values)), abs=1e-8)
    for k in range(len(values) + 1):
        best = left[:, :k] * singular[:k] @ right[:k]
        assert pca.tail(values, k) == pytest.approx(np.sum((centred - best) ** 2) / len(cloud), abs=1e-9)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (3.35e12, "B", "3.35 TB"),
        (999.6, "B", "1 kB"),
        (0, "B", "0 B"),
        (-2048, "B", "-2.05 kB"),
        (0.25, "FLOP/B", "0.25 FLOP/B"),
        (2e-6, "s", "2 µs"),
        (Fraction(1, 3), "s", "333 ms"),
        (1234.5, "s", "1.23 ks"),
        (1.5e-5, "B", "1.5e-5 B"),
        (1125, "B", "1.13 kB"),
        (1e21, "B", "1000 EB"),
    ],
)
def test_si_text(value: float, unit: str, text: str) -> None:
    assert units.si(value, unit) == text
