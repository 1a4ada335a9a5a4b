"""Pictures of a roofline: SVG and plotly, their names, ticks, labels and themes."""

from __future__ import annotations

import itertools
import json
import math
import re
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mlsys_labkit import specs
from mlsys_labkit._base.light_dark_colours import COLOURS
from mlsys_labkit.errors import LabkitError
from mlsys_labkit.roofline import Roofline
from mlsys_labkit.roofline.labels import LabelBoard, Spot, spread
from mlsys_labkit.work import Work
from tests.labkit.rooflines import BANDWIDTH, H100, PEAK, matmul, on_cpu

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
    """Return a function log10 of a value -> px, computed from the two outermost labelled ticks."""
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
    assert [trace.marker.line.width for trace in points] == [0, 0, 2, 0], "an open symbol is only its line"
    assert {chart.layout.xaxis.ticks, chart.layout.yaxis.ticks} == {"outside"}, "labels meet in the corner"
    assert "above the roof" in points[3].hovertext
    assert {trace.line.dash for trace in on_cpu().plotly().data} == {"solid"}
    json.loads(chart.to_json())


@given(st.lists(st.floats(0, 100), min_size=1, max_size=6))
def test_spread_keeps_order_gap_and_bounds(wanted: list[float]) -> None:
    placed = spread(sorted(wanted), 15, 0, 100)
    assert all(b - a >= 15 - 1e-9 for a, b in itertools.pairwise(placed))
    assert max(placed) <= 100 + 1e-9
    if len(wanted) == 1:
        assert placed == wanted


def test_a_label_takes_the_first_free_spot() -> None:
    board = LabelBoard(0, 0, 200, 200)
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
    assert COLOURS["roofline-above-roof"].figure in beyond._repr_html_()
