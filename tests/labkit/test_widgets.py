"""Widgets by the interfaces that a notebook uses: the factory, the MIME bundle, and HTML that reads without scripts."""

from __future__ import annotations

import json
import re
import sys
import types
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from mlsys_labkit import widgets
from mlsys_labkit._base import light_dark_colours, units
from mlsys_labkit.errors import LabkitError
from mlsys_labkit.specs import tables
from mlsys_labkit.widgets import base
from mlsys_labkit.work import Work
from tests.conftest import python
from tests.cuda import sample_profile as sample
from tests.triton import sample_compiled

LIMIT_BYTES = 30_000
EVENTS = [
    {"tensor": "w", "bytes": 4096, "category": "parameters", "line": "/home/me/lab.py:3", "name": "weight"},
    {"tensor": "a", "bytes": 8192, "category": "activations", "line": "/home/me/lab.py:9"},
    {"tensor": "a", "bytes": -8192, "category": "activations"},
]
CLOUD = np.random.default_rng(0).normal(size=(60, 2)) @ np.array([[2.0, 1.0], [0.0, 0.5]])
PROGRESS = [
    {"title": title, "state": state, "mark": mark, "words": words, "points": points, "of": 6, "hints": "1 of 3"}
    for title, state, mark, words, points in [
        ("Strides", "passes", "✓", "passes", 6),
        ("Transpose", "again", "↻", "passed before your last edit: run its checks again", 0),
        ("Slice", "tried", "…", "tried: slice_test fails", 2.5),
        ("Windows", "none", "○", "not started", 0),
    ]
]
SOURCE = tables.Citation("Horowitz, ISSCC 2014", "https://doi.org/10.1109/ISSCC.2014.6757323", "2014-02-09")
ENERGY = tables.Table(
    "Energy",
    {"energy": "J", "bits": "bit", "kind": "text"},
    tuple(
        tables.Row(name, {k: tables.Value(v, SOURCE) for k, v in values.items()}, frozenset(values))
        for name, values in [
            ("multiply, FP32", {"energy": 3.7e-12, "bits": 32.0, "kind": "arithmetic"}),
            ("cache of 8 kB", {"energy": 1e-11, "bits": 64.0, "kind": "movement"}),
            ("DRAM", {"energy": 1.3e-9, "bits": 64.0, "kind": "movement"}),
        ]
    ),
)
MAKERS: dict[str, Callable[[], Any]] = {
    "strides": lambda: widgets.strides((3, 4)),
    "roofline": lambda: widgets.roofline(["h100-sxm", "t4"], works=[Work(flops=2e6, bytes_read=8e6, name="dot")]),
    "memory": lambda: widgets.memory_timeline({"events": EVENTS}),
    "pca": lambda: widgets.pca(CLOUD),
    "hardware": lambda: widgets.hardware_explorer(tables.of_devices("float16", ["a100-sxm-80gb", "h100-sxm"])),
    "serving": lambda: widgets.serving_planner("llama-3-8b", "l4", gpus=1, bits=8, users=8),
    "cost": lambda: widgets.token_cost(),
    "scaling": lambda: widgets.scaling_laws(1e24, served=1e13),
    "training": lambda: widgets.training_planner("llama-3-8b", data=64, tensor=1, zero=3),
    "compilers": lambda: widgets.compiler_map("JAX", "CPU"),
    "accelerators": lambda: widgets.accelerator_map(),
    "energy": lambda: widgets.energy_ladder(ENERGY),
    "line": lambda: widgets.line_fit([0.0, 1.0, 2.0, 4.0], [1.0, 2.9, 5.2, 8.8]),
    "source": lambda: widgets.annotated_source(sample.profile(), [sample.finding()]),
    "warp": lambda: widgets.warp_access(sample.profile(), line=10),
    "tiles": lambda: widgets.tile_walk(100, 16, register=2),
    "occupancy": lambda: widgets.occupancy("sm_90", threads=256, registers=40, shared_bytes=8192),
    "stages": lambda: widgets.compiled_stages(sample_compiled.compiled()),
    "formats": lambda: widgets.number_formats(0.3, "fp8_e5m2"),
    "progress": lambda: widgets.progress_panel(
        "Lab 01", PROGRESS, "Next: task 2.", ["At work for 5 min."], ["News", "Much."]
    ),
    "prediction": lambda: widgets.prediction("Does x.T copy?", ["yes", "no"], 1, "Only the strides change.", "view"),
}
all_widgets = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())


class Page(HTMLParser):
    """Every element of a fragment, the text outside scripts and styles, and the scripts."""

    def __init__(self, fragment: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text, self.scripts, self._inside = "", [], ""
        self.feed(fragment)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts.append(data)
        elif self._inside != "style":
            self.text += f" {data}"


def state(widget: Any) -> dict[str, Any]:
    """Return the fields as the fragment's script carries them."""
    return dict(json.loads(re.search(r'^widget\.mount\("[^"]+", (.*)\);$', widget.html(), re.MULTILINE).group(1)))


@all_widgets
def test_bundle_has_the_live_view_the_fragment_and_text(make: Callable[[], Any]) -> None:
    data, _ = make()._repr_mimebundle_()
    assert set(data) == {"application/vnd.jupyter.widget-view+json", "text/html", "text/plain"}
    assert data["text/plain"].startswith("<")


@all_widgets
def test_fragment_is_small_and_asks_for_nothing_from_the_network(make: Callable[[], Any]) -> None:
    widget = make()
    fragment = widget.html()
    carried = json.dumps(state(widget), separators=(",", ":"))
    assert len(fragment.encode()) - len(carried.encode()) < LIMIT_BYTES
    assert len(widget._esm.encode()) < LIMIT_BYTES
    assert set(re.findall(r"https?://[^\"'\s)]+", fragment)) <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"@import|\bfetch\(|\bsrc=|\bimport\s*\(|^import ", fragment, re.MULTILINE)


@all_widgets
def test_without_scripts_a_table_with_caption_and_headers_is_left(make: Callable[[], Any]) -> None:
    page = Page(make().html())
    names = [tag for tag, _ in page.tags]
    assert names.count("table") == names.count("caption") >= 1
    assert {attributes.get("scope") for tag, attributes in page.tags if tag == "th"} == {"col", "row"}
    for one in re.findall(r"<table>.*?</table>", make().html(), re.DOTALL):
        head, *rows = (len(re.findall(r"<t[hd][ >]", row)) for row in re.findall(r"<tr>.*?</tr>", one, re.DOTALL))
        assert set(rows) <= {head}, "each column has a heading"


def test_static_tables_hold_the_numbers() -> None:
    assert "0 4 8" in re.sub(r"\s+", " ", Page(widgets.strides((4, 3), strides=(1, 4)).html()).text)
    rooftop = Page(MAKERS["roofline"]().html()).text
    assert "3.35 TB/s" in rooftop
    assert "not measured" in rooftop
    timeline = Page(MAKERS["memory"]().html()).text
    assert "Largest tensors alive at the peak" in timeline
    mixed = widgets.memory_timeline({"events": [*EVENTS, {**EVENTS[1], "tensor": "b", "kind": "array"}]})
    words = " ".join(Page(mixed.html()).text.split())
    assert "Largest tensors and arrays alive at the peak tensor or array bytes" in words
    assert "The peak is 12.3 kB, at event 2 of 3." in timeline
    assert "lab.py:9" in timeline
    assert "/home/me" not in MAKERS["memory"]().html()  # a published page must not name the author's folders


def test_static_card_keeps_the_answer_to_itself() -> None:
    text = Page(MAKERS["prediction"]().html()).text
    assert "yes" in text
    assert "Only the strides change" not in text
    assert 'lk.predict("view", "a")' in text


def test_text_of_a_state_cannot_break_out_of_the_page() -> None:
    evil = "</script><img src=x onerror=alert(1)><!--<script>\u2028"
    widget = widgets.prediction(evil, [evil, "b"], 0, evil)
    page = Page(widget.html())
    assert sum(tag == "script" for tag, _ in page.tags) == 1
    assert not any(tag == "img" for tag, _ in page.tags)
    assert state(widget)["question"] == evil


def test_two_displays_of_one_widget_do_not_share_an_element() -> None:
    widget = widgets.strides()
    homes = [re.search(r'<div id="([^"]+)"', widget.html()).group(1) for _ in range(2)]
    assert len(set(homes)) == 2


def test_a_live_widget_keeps_and_exports_what_the_reader_changed() -> None:
    card = MAKERS["prediction"]()
    seen: list[Any] = []
    card.observe(lambda change: seen.append(change["new"]), names="choice")
    assert card.choice is None
    card.set_state({"choice": 0})  # what the front end sends when the reader commits
    assert (card.choice, seen, state(card)["choice"]) == (0, [0], 0)


@all_widgets
def test_without_anywidget_the_object_still_has_living_html(
    make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "find_spec", lambda name: None)
    widget = make()
    assert not hasattr(widget, "_repr_mimebundle_")
    assert '<script type="module">' in widget._repr_html_()
    assert repr(widget) == repr(widget)


def test_widgets_need_numpy_alone() -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['anywidget', 'ipywidgets', 'traitlets', 'plotly', 'torch']))\n"
        "from mlsys_labkit import widgets; print(len(widgets.strides((2, 2))._repr_html_()))"
    )
    done = python(code)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 5000


def test_colab_gets_its_widget_manager() -> None:
    code = (
        "import sys, types\n"
        "calls = []\n"
        "google, colab, output = (types.ModuleType(n) for n in ('google', 'google.colab', 'google.colab.output'))\n"
        "output.enable_custom_widget_manager = lambda: calls.append(1)\n"
        "google.colab, colab.output = colab, output\n"
        "sys.modules.update({'google': google, 'google.colab': colab, 'google.colab.output': output})\n"
        "from mlsys_labkit import widgets; widgets.strides((2, 2)); print(calls)"
    )
    done = python(code)
    assert done.stdout.strip() == "[1]", done.stderr


# --- arguments -------------------------------------------------------------------------------------------------------


def test_strides_default_to_contiguous_and_memory_reaches_behind_the_offset() -> None:
    carried = state(widgets.strides((2, 3), offset=5))
    assert (carried["strides"], carried["size"]) == ([3, 1], 11)


def test_roofline_offers_every_datasheet_and_starts_with_the_device_asked_for() -> None:
    from mlsys_labkit import specs

    carried = state(widgets.roofline(device="t4"))
    assert {machine["key"] for machine in carried["machines"]} == set(specs.keys())
    assert carried["machines"][carried["first"]]["key"] == "t4"
    first = carried["machines"][carried["first"]]
    assert first["peaks"]["float32"] == specs.get("t4").peak("float32")
    assert first["bandwidths"]["dram"] == specs.get("t4").bandwidth("dram")


def test_measured_and_datasheet_ceilings_become_two_machines() -> None:
    def ceiling(kind: str, value: float, origin: str) -> types.SimpleNamespace:
        names = {"dtype": "float32", "level": None} if kind == "compute" else {"dtype": None, "level": "dram"}
        return types.SimpleNamespace(kind=kind, value=value, origin=origin, label="", **names)

    both = [ceiling(k, v, o) for k, v, o in [("compute", 9e11, "measured"), ("memory", 4e10, "measured")]]
    both += [ceiling("compute", 1e12, "datasheet"), ceiling("memory", 5e10, "datasheet")]
    mine = types.SimpleNamespace(device=types.SimpleNamespace(name="my laptop"), ceilings=both)
    carried = state(widgets.roofline([mine]))
    assert [(machine["origin"], machine["peaks"]) for machine in carried["machines"]] == [
        ("measured", {"float32": 9e11}),
        ("datasheet", {"float32": 1e12}),
    ]
    assert (carried["first"], carried["second"]) == (0, 1)


def test_rooflines_and_devices_of_the_kit_are_understood() -> None:
    import mlsys_labkit as lk
    from mlsys_labkit import device

    by_key, by_roofline, by_device = (
        state(widgets.roofline([one]))["machines"][0]
        for one in ("h100-sxm", lk.Roofline.from_spec("h100-sxm"), device.virtual("h100-sxm"))
    )
    assert by_key == by_device
    assert {**by_key, "name": "", "key": ""} == {**by_roofline, "name": "", "key": ""}


def test_a_real_trace_is_drawn_with_its_own_peak() -> None:
    import mlsys_labkit as lk

    def work() -> None:
        first = np.ones(5000)
        second = first + np.ones(0).sum()
        del first
        np.ones(100)[:] = second[:100]

    trace = lk.trace_memory(work)
    widget = widgets.memory_timeline(trace)
    text = Page(widget.html()).text
    assert f"The peak is {units.si(trace.peak_bytes, 'B')}" in text
    assert "test_widgets.py:" in text
    assert "Largest arrays alive at the peak" in text
    by_event = np.sum([trace.timeline()[name] for name in widget.categories], axis=0)
    assert widget.cursor <= int(by_event.argmax())  # events of zero bytes are left out
    assert sum(event[1] for event in widget.events) == by_event[-1]


def test_a_work_with_seconds_is_placed_where_it_was_measured() -> None:
    timed = Work(flops=2e9, bytes_read=1e6, seconds=0.5, name="mm")
    carried = state(widgets.roofline(["t4"], works=[timed, Work(flops=8.0, bytes_read=4.0)]))
    assert [work["achieved"] for work in carried["works"]] == [4e9, None]
    assert (carried["flops"], carried["bytes"]) == (8.0, 4.0), "the movable point starts at the last work"
    assert (state(widgets.roofline(["t4"]))["flops"], state(widgets.roofline(["t4"]))["bytes"]) == (1e9, 1e9)


def test_pca_shows_many_dimensions_on_the_leading_axes_and_says_so() -> None:
    points = np.random.default_rng(1).normal(size=(500, 6)) * np.array([5, 4, 3, 0.1, 0.1, 0.1])
    carried = state(widgets.pca(points))
    assert np.shape(carried["points"]) == (300, 3)
    assert "6 axes" in carried["note"]
    assert "300 of 500 points" in carried["note"]
    assert carried["spectrum"] == pytest.approx(np.linalg.eigvalsh(np.cov(points.T, bias=True))[::-1], rel=1e-4)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: widgets.strides(np.ones((3, 4))), "got ndarray; pass x.shape"),
        (lambda: widgets.strides((3, 0)), "at least 1"),
        (lambda: widgets.strides((2, 2, 2, 2)), "1 to 3 axes"),
        (lambda: widgets.strides((2, 2), strides=(1,)), "2 strides"),
        (lambda: widgets.strides((2,), itemsize=3), "itemsize"),
        (lambda: widgets.roofline([]), "at least one device"),
        (lambda: widgets.roofline([types.SimpleNamespace(spec=None)]), "no datasheet"),
        (lambda: widgets.roofline(["t4"], dtype="float4"), "float4"),
        (lambda: widgets.memory_timeline({"events": []}), "allocates"),
        (lambda: widgets.memory_timeline(42), "MemoryTrace"),
        (lambda: widgets.memory_timeline({"events": [{"bytes": 3}]}), "tensor, bytes and category"),
        (lambda: widgets.pca([[1.0, 2.0]]), "shape (1, 2)"),
        (lambda: widgets.pca([[1.0, np.nan], [0.0, 1.0]]), "finite"),
        (lambda: widgets.pca([[1.0, 2.0], [0.0, 1.0]], spectrum=[1.0, 2.0]), "largest first"),
        (lambda: widgets.annotated_source(42), "pass the profile"),
        (lambda: widgets.annotated_source(sample.profile(), heat="speed"), "wavefronts"),
        (lambda: widgets.annotated_source(sample.profile(), line=99), "lines 1 to 11"),
        (lambda: widgets.warp_access(line=3), "pass the profile too"),
        (lambda: widgets.warp_access(42), "pass the profile"),
        (lambda: widgets.warp_access(sample.profile(), line=4), "lines with requests: 6, 10"),
        (lambda: widgets.warp_access(sample.profile(samples=())), "recorded no request"),
        (lambda: widgets.warp_access(pattern="recorded"), "not known"),
        (lambda: widgets.warp_access(formula="lane +"), "ends too soon"),
        (lambda: widgets.warp_access(bytes_per_lane=3), "bytes_per_lane"),
        (lambda: widgets.tile_walk(0), "n from 1"),
        (lambda: widgets.tile_walk(64, 5), "tile in"),
        (lambda: widgets.tile_walk(64, 4, register=8), "at most the tile of 4"),
        (lambda: widgets.occupancy("sm_20"), "sm_90"),
        (lambda: widgets.occupancy(threads=0), "1 to 1024 threads"),
        (lambda: widgets.occupancy(shared_bytes=10**6), "shared_bytes"),
        (lambda: widgets.prediction("q", ["a"], 0, ""), "at least 2"),
        (lambda: widgets.prediction("q", ["a", "b"], 2, ""), "index"),
    ],
)
def test_a_wrong_argument_is_one_line_that_says_what_was_expected(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(LabkitError) as caught:
        make()
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


# --- colours ---------------------------------------------------------------------------------------------------------


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("side", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("name", ["ink", "soft", "blue", "orange", "green", "purple", "red", "olive", "indigo", "grey"])
def test_every_text_colour_reaches_wcag_aa_on_paper_and_wash(name: str, side: int) -> None:
    shown = {key: light_dark_colours.COLOURS[key][side] for key in (name, "paper", "wash")}
    for ground in ("paper", "wash"):
        high, low = sorted([luminance(shown[name]), luminance(shown[ground])], reverse=True)
        assert (high + 0.05) / (low + 0.05) >= 4.5, (name, ground)


def test_modules_do_not_load_the_widget_stack() -> None:
    code = (
        "import mlsys_labkit.widgets, sys; print([m for m in ('anywidget', 'traitlets', 'plotly') if m in sys.modules])"
    )
    assert python(code).stdout.strip() == "[]"
    assert "anywidget" in sys.modules or base.find_spec("anywidget") is not None
