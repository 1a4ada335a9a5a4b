"""Names of points in plotly's roofline, drawn in a browser as the labs draw it: no roof crosses one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mlsys_labkit._frontends.figures import PLOTLY_MIME, bundle
from mlsys_labkit.roofline import Roofline
from mlsys_labkit.work import Work

pytestmark = pytest.mark.browser
WIDTHS = (560, 760, 1100)  # px of a cell's output: a small laptop to a wide screen
CROSSED = """() => {
    const roofs = [...document.querySelectorAll(".js-line")].map((path) => {
        const at = path.getScreenCTM(), length = path.getTotalLength();
        return Array.from({ length: 400 }, (_, i) => path.getPointAtLength((length * i) / 399).matrixTransform(at));
    });
    const texts = [...document.querySelectorAll(".textpoint text")];
    const boxes = texts.map((text) => text.getBoundingClientRect());
    const found = [];
    texts.forEach((text, i) => {
        const { left, right, top, bottom } = boxes[i];
        const inside = (p) => left < p.x && p.x < right && top < p.y && p.y < bottom;
        if (roofs.some((roof) => roof.some(inside))) found.push(text.textContent + " under a roof");
        if (boxes.some((b, j) => j < i && b.left < right && left < b.right && b.top < bottom && top < b.bottom))
            found.push(text.textContent + " over another name");
    });
    return found;
}"""


def batch_one() -> Any:
    """Return lab 06's picture: a layer with FP16 weights and with four-bit ones."""
    flops = 2.0 * 256 * 256
    full = Work(flops, 2 * 256 * 256 + 2 * 256, 4 * 256, name="FP16 weights")
    four = Work(flops, 256 * 128 + 2 * 256 * 4 + 3 * 2 * 256, 4 * 256, name="four-bit weights")
    return Roofline.from_spec("h100-sxm").plotly([full, four])


def decode() -> Any:
    """Return lab 08's picture: prefill, and decode in three batches, under two of the roofs."""
    intensities = {"prefill, 2,048 tokens": 1900.0, "decode, batch 1": 1.0, "decode, batch 16": 15.0}
    works = [Work(1e12 * at, 1e12, dtype="bfloat16", name=name) for name, at in intensities.items()]
    chart = Roofline.from_spec("h100-sxm").plotly(works, dtypes=["bfloat16"])
    chart.data = [line for line in chart.data if not line.name.startswith("shared")]
    return chart


def close() -> Any:
    """Return three timed works beside each other, one of them far below the roof."""
    works = [Work(1e9 * n, 1e9, seconds=n / (2e3 if n == 2 else 400), name=f"kernel {n}") for n in (1, 2, 3)]
    return Roofline.from_spec("a100-sxm-80gb").plotly(works)


FIGURES: dict[str, Callable[[], Any]] = {"lab06": batch_one, "lab08": decode, "close": close}


def page_of(chart: Any) -> str:
    """Return a page with the figure as ``lk.show`` displays it."""
    from plotly.graph_objects import Figure

    shown = Figure(bundle(chart)[PLOTLY_MIME], skip_invalid=True)
    return f"<!doctype html><body style='margin:0'>{shown.to_html(include_plotlyjs=True, full_html=False)}</body>"


def crossed(page: Any) -> list[str]:
    return list(page.evaluate(CROSSED))


@pytest.mark.parametrize("name", FIGURES)
def test_no_roof_crosses_a_name(browser: Any, name: str) -> None:
    pytest.importorskip("plotly")
    html = page_of(FIGURES[name]())
    found = {}
    for width in WIDTHS:
        page = browser.new_page(viewport={"width": width, "height": 520})
        page.set_content(html)
        page.wait_for_selector(".textpoint text")
        found[width] = crossed(page)
        page.close()
    assert found == {width: [] for width in WIDTHS}
