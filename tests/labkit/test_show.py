"""lk.show: a figure in JupyterLab, in a page with plotly.js, and in a page with nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import numpy as np
import plotly.graph_objects as go
import plotly.io as pio
import pytest

import mlsys_labkit as lk
from mlsys_labkit._frontends.figures import COLORS, INK, PLOTLY_MIME, bundle, figure_html, template
from mlsys_labkit.errors import LabkitError
from tests.conftest import python
from tests.labkit.test_widgets import Page, luminance

LABEL = "The second bar is four times the first."


@pytest.fixture
def figure() -> go.Figure:
    return go.Figure(go.Bar(x=["a", "b"], y=np.array([1.0, 4.0]), name="bytes"), layout={"title": {"text": "Traffic"}})


def test_bundle_holds_three_forms_and_plain_json(figure: go.Figure) -> None:
    made = bundle(figure, LABEL)
    assert set(made) == {PLOTLY_MIME, "text/html", "text/plain"}
    assert made["text/plain"] == LABEL
    assert json.loads(json.dumps(made[PLOTLY_MIME]))["data"][0]["type"] == "bar"


def test_html_never_carries_plotly_and_asks_nobody_for_it(figure: go.Figure) -> None:
    fragment = figure_html(figure, LABEL)
    assert len(fragment) < 6000
    assert "http" not in fragment


def test_table_says_a_few_values_in_full_and_many_as_a_range() -> None:
    long = go.Scatter(x=np.arange(100), y=np.append(np.arange(99.0), np.nan), name="<long>")
    grid = go.Heatmap(z=np.arange(12.0).reshape(3, 4))
    text = Page(figure_html(go.Figure([long, grid, go.Bar(x=["a", "b"], y=[1.5, 2.5])]))).text
    assert "<long>" in text
    for cell in ("0 to 99 (100 values)", "0 to 98 (100 values)", "0 to 11 (3×4 values)", "a, b", "1.5, 2.5"):
        assert cell in text
    assert "Figure: 3 series." in text


def test_names_cannot_break_out_of_the_page() -> None:
    evil = "</script><img src=x>"
    page = Page(figure_html(go.Figure(go.Bar(y=[1], name=evil)), summary=f'{evil}" onload="x'))
    assert [tag for tag, _ in page.tags].count("script") == 1
    assert not any(tag == "img" or "onload" in attributes for tag, attributes in page.tags)


def test_template_is_ours_unless_the_author_chose_one(figure: go.Figure) -> None:
    drawn = bundle(figure)[PLOTLY_MIME]["layout"]["template"]["layout"]
    assert drawn["paper_bgcolor"] == drawn["plot_bgcolor"] == "rgba(0,0,0,0)"
    assert drawn["font"]["color"] == INK
    assert "mlsys" in pio.templates
    figure.layout.template = "plotly_dark"
    chosen = bundle(figure)[PLOTLY_MIME]["layout"]["template"]["layout"]
    assert chosen["paper_bgcolor"] == pio.templates["plotly_dark"].layout.paper_bgcolor


def test_the_given_figure_is_left_alone(figure: go.Figure) -> None:
    before = figure.to_json()
    bundle(figure, LABEL)
    assert figure.to_json() == before
    assert pio.templates.default == "plotly"


@pytest.mark.parametrize("ground", ["#ffffff", "#111111"])
def test_every_colour_stands_out_on_white_and_on_the_dark_theme(ground: str) -> None:
    assert tuple(template().layout.colorway) == COLORS
    for colour in (*COLORS, INK):
        high, low = sorted([luminance(colour), luminance(ground)], reverse=True)
        assert (high + 0.05) / (low + 0.05) >= 3.0, colour


def test_anything_else_is_refused() -> None:
    with pytest.raises(LabkitError, match=r"go\.Figure, got list"):
        lk.show([1, 2])


def test_outside_a_notebook_the_summary_is_printed(figure: go.Figure, capsys: pytest.CaptureFixture[str]) -> None:
    lk.show(figure, LABEL)
    lk.show(figure)
    assert capsys.readouterr().out.splitlines() == [LABEL, "Traffic: 1 series."]


def test_in_a_notebook_the_bundle_is_displayed() -> None:
    code = (
        "from IPython.testing.globalipapp import start_ipython; start_ipython()\n"
        "from IPython.utils.capture import capture_output\n"
        "import plotly.graph_objects as go, mlsys_labkit as lk\n"
        "with capture_output() as seen: lk.show(go.Figure(go.Bar(y=[1])), 'One bar.')\n"
        "print(sorted(seen.outputs[0].data), seen.outputs[0].data['text/plain'])"
    )
    done = python(code)
    assert done.stdout.strip().endswith(f"['{PLOTLY_MIME}', 'text/html', 'text/plain'] One bar."), done.stderr


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    context = browser.new_context(offline=True, color_scheme="dark")
    yield context.new_page()
    context.close()


@pytest.mark.browser
@pytest.mark.parametrize("late", [False, True], ids=["plotly-first", "plotly-last"])
def test_draws_itself_where_the_page_has_plotly(page: Any, figure: go.Figure, late: bool) -> None:
    library = f"<script>{files('plotly').joinpath('package_data/plotly.min.js').read_text('utf-8')}</script>"
    body = f"<div style='color:rgb(200, 210, 220)'>{figure_html(figure, LABEL)}</div>"
    page.set_content(f"<!doctype html><title>t</title>{body + library if late else library + body}")
    page.locator(".bars .point").first.wait_for()
    assert page.locator(".bars .point").count() == 2
    assert page.locator("details[open]").count() == 0
    assert page.get_by_role("img", name=LABEL).is_visible()
    fill = page.locator(".gtitle").evaluate("node => getComputedStyle(node).fill")
    assert re.findall(r"\d+", fill)[:3] == ["200", "210", "220"]  # the ink of the page it stands in


@pytest.mark.browser
def test_is_a_table_where_the_page_has_none(page: Any, figure: go.Figure) -> None:
    page.set_content(f"<!doctype html><title>t</title>{figure_html(figure, LABEL)}")
    assert page.locator("figcaption").inner_text() == LABEL
    assert page.get_by_role("cell", name="1, 4").is_visible()
    assert not page.locator("figure > div").is_visible()
