"""The report's pages: complete without network or kernel, light and dark, narrow and wide."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import nbformat
import pytest

from mlsys_grading.report import index_page, lab_page, write
from mlsys_grading.report.junit import to_junit
from mlsys_grading.report.result import CellTime, Failure, NotebookResult, RunResult, notebook_from_json, to_json
from mlsys_labkit._frontends.page.mathml import to_mathml

MATHML = "{http://www.w3.org/1998/Math/MathML}"
NASTY = "<script>alert(1)</script> & \x1b[31m\x00\ud800 ü"
TEXT = r"""# Title & more

Inline $x_1 < y$ and $$\frac{a}{b}$$ and money: \$5.

\begin{align} a &= b \\ c &= d \end{align}

`code with $dollars$`

| a | $b$ |
| - | - |
| 1 | $\sigma^2$ |
"""


def notebook(*outputs_of_cells: list[dict]) -> nbformat.NotebookNode:
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(TEXT)])
    for outputs in outputs_of_cells:
        cell = nbformat.v4.new_code_cell("x = 1 < 2  # a comment")
        cell.outputs = [nbformat.from_dict(output) for output in outputs]
        cell.execution_count = 1
        book.cells.append(cell)
    return book


def result(**changes: object) -> NotebookResult:
    return NotebookResult(**{"name": "lab", "title": "Title", "status": "passed", "fingerprint": "f"} | changes)


def render(tmp_path: Path, book: nbformat.NotebookNode, one: NotebookResult | None = None) -> str:
    nbformat.write(book, tmp_path / "lab.ipynb")
    return lab_page.render(tmp_path / "lab.ipynb", tmp_path / "lab.ipynb", one or result())


def data(kind: str, bundle: dict) -> dict:
    extra = {"execution_count": 1} if kind == "execute_result" else {}
    return {"output_type": kind, "data": bundle, "metadata": {}, **extra}


def run(*notebooks: NotebookResult, **changes: object) -> RunResult:
    machine = {
        "processor": "A CPU",
        "usable_cores": 4.0,
        "memory_limit_bytes": 2**34,
        "system": "Linux",
        "load_1min": 0.1,
    }
    values = {"started": "2030-01-02T03:04:05+00:00", "seconds": 4.0, "jobs": 2, "threads_per_kernel": 2}
    return RunResult(notebooks, **values | {"smoke": True, "seed": 0, "machine": machine} | changes)


def test_formulas_become_mathml_and_code_stays_code(tmp_path):
    page = render(tmp_path, notebook())
    assert page.count("<math") == 5
    assert "<mfrac" in page
    assert "code with $dollars$" in page
    assert "$5" in page
    assert "\\begin" not in page


@pytest.mark.parametrize(
    ("latex", "tag"),
    [
        (r"\frac{1}{2}", "mfrac"),
        (r"\sqrt{n}", "msqrt"),
        (r"A^\top", "msup"),
        (r"\sum_{i=1}^n x_i", "munderover"),
        (r"\begin{bmatrix} 1 & 2 \\ 3 & 4 \end{bmatrix}", "mtable"),
    ],
)
def test_a_formula_is_well_formed_and_has_its_structure(latex, tag):
    element = ElementTree.fromstring(to_mathml(latex, block=True))
    assert element.get("display") == "block"
    assert element.find(f".//{MATHML}{tag}") is not None


def test_a_formula_nobody_can_read_is_shown_as_it_is():
    assert to_mathml(r"\frac") == r'<code class="math-source">\frac</code>'
    assert "<script>" not in to_mathml("<script>")


def test_every_lab_formula_converts(root):
    """No lab may fall back to source, because a student would then read LaTeX."""
    formula = re.compile(r"\$\$(.+?)\$\$|(?<![\\$\w`])\$([^\s$][^$\n]*?)\$", re.DOTALL)
    sources = sorted((root / "solutions").glob("lab*/lab*.py"))
    assert sources
    bad = []
    for source in sources:
        markdown = "\n".join(line[2:] for line in source.read_text("utf-8").splitlines() if line.startswith("# "))
        for match in formula.finditer(markdown):
            latex = match.group(1) or match.group(2)
            if "math-source" in to_mathml(latex):
                bad.append(f"{source.name}: {latex}")
    assert bad == []


def test_html_that_lives_without_a_kernel_wins_over_a_widget_view(tmp_path):
    bundle = {
        "application/vnd.jupyter.widget-view+json": {"model_id": "1", "version_major": 2, "version_minor": 0},
        "text/html": "<b>alive</b>",
        "text/plain": "Widget()",
    }
    page = render(tmp_path, notebook([data("display_data", bundle)], [data("execute_result", bundle)]))
    assert page.count("<b>alive</b>") == 2
    assert "Widget()" not in page


def test_every_kind_of_output_is_shown(tmp_path):
    outputs = [
        {"output_type": "stream", "name": "stdout", "text": "to stdout <b>\n"},
        {"output_type": "stream", "name": "stderr", "text": "to stderr\n"},
        data("execute_result", {"text/plain": "[1, 2] <3>"}),
        data("display_data", {"image/svg+xml": "<svg id='s'></svg>", "text/plain": "no"}),
        data("display_data", {"image/png": "AAAA", "text/plain": "a 'plot'"}),
        data("display_data", {"text/markdown": "**bold** $x$", "text/plain": "no"}),
        data("display_data", {"text/latex": "$$\\sqrt{2}$$", "text/plain": "no"}),
        {"output_type": "error", "ename": "E", "evalue": "v", "traceback": ["\x1b[31mE\x1b[0m: <v>"]},
    ]
    page = render(tmp_path, notebook(outputs))
    for text in (
        "to stdout &lt;b&gt;",
        "to stderr",
        "[1, 2] &lt;3&gt;",
        "<svg id=",
        "base64,AAAA",
        "<strong>bold",
        "msqrt",
    ):
        assert text in page, text
    assert re.search(r'<span class="ansi-red-fg">E</span>: &lt;v&gt;', page)


def test_a_failed_cell_is_marked_and_papermills_banner_is_gone(tmp_path):
    book = notebook([], [])
    parameters = nbformat.v4.new_code_cell("seed = 1", metadata={"tags": ["injected-parameters"]})
    banner = nbformat.v4.new_markdown_cell(
        "An Exception was encountered", metadata={"tags": ["papermill-error-cell-tag"]}
    )
    book.cells[2:2] = [parameters]
    book.cells[0:0] = [banner]
    failure = Failure("exception", NASTY.replace("\ud800", ""), cell=3, grade_id="t", line=1, source_line="f(<x>)")
    one = result(status="failed", failure=failure, cells=(CellTime(2, 0.25), CellTime(3, 1.5)))
    page = render(tmp_path, book, one)
    assert "An Exception was encountered" not in page
    assert "<script>alert" not in page
    # Source cells: title 1, code 2, code 3; the injected one has no number and shifts none.
    assert re.findall(r'<section class="cell( failed)?"(?: id="cell-(\d)")?', page) == [
        ("", "2"),
        ("", ""),
        (" failed", "3"),
    ]
    assert "1.50 s" in page


def test_a_page_is_small_and_asks_the_network_for_nothing(tmp_path):
    page = render(tmp_path, notebook([data("display_data", {"text/html": "<i>x</i>"})]))
    assert len(page.encode()) < 40_000
    assert not re.search(r"""(?:src|href)=["'](?:https?:)?//|@import|url\(""", page)
    assert "plotly" not in page


def test_plotly_is_copied_once_and_only_for_pages_that_need_it(tmp_path):
    plot = {"application/vnd.plotly.v1+json": {"data": []}, "text/html": "<i>plot</i>"}
    for name, book in (("plot", notebook([data("display_data", plot)])), ("text", notebook())):
        (tmp_path / "notebooks").mkdir(exist_ok=True)
        (tmp_path / "notebooks" / f"{name}.html").write_text(render(tmp_path, book))
    assert 'src="../assets/plotly.min.js"' in (tmp_path / "notebooks" / "plot.html").read_text()
    assert "plotly.min.js" not in (tmp_path / "notebooks" / "text.html").read_text()
    write.fill(tmp_path, run(result()), None, "none")
    assert (tmp_path / "assets" / "plotly.min.js").stat().st_size > 1_000_000
    (tmp_path / "notebooks" / "plot.html").unlink()
    (tmp_path / "assets" / "plotly.min.js").unlink()
    write.fill(tmp_path, run(result()), None, "none")
    assert not (tmp_path / "assets" / "plotly.min.js").exists()


def test_a_torn_notebook_falls_back_to_its_source(tmp_path):
    nbformat.write(notebook(), tmp_path / "source.ipynb")
    (tmp_path / "executed.ipynb").write_text('{"cells": [')
    assert "Title &amp; more" in lab_page.render(tmp_path / "executed.ipynb", tmp_path / "source.ipynb", result())
    assert "<main" in lab_page.render(tmp_path / "executed.ipynb", tmp_path / "gone.ipynb", result())


@pytest.mark.parametrize(
    ("statuses", "words"),
    [
        (["passed"], "The lab passes"),
        (["passed", "passed"], "All 2 labs pass"),
        (["passed", "failed"], "1 of 2 labs passes"),
        (["passed", "passed", "not run"], "2 of 3 labs pass"),
        (["failed"], "0 of 1 lab pass"),
    ],
)
def test_headline(statuses, words):
    assert index_page.headline(run(*(result(status=status) for status in statuses))) == words


def test_front_page_escapes_what_notebooks_say_and_tells_what_was_not_measured():
    failure = Failure("exception", NASTY, cell=2, traceback=NASTY, source_line=NASTY)
    one = result(title=NASTY, status="failed", failure=failure, page="notebooks/lab.html")
    page = index_page.render(run(one), None, "No roofline: why")
    assert "<script>alert" not in page
    assert "not measured" in page
    assert "No roofline: why" in page


def test_junit_survives_what_xml_cannot_hold():
    failure = Failure("exception", NASTY, cell=2, traceback=NASTY, exception="E")
    notebooks = [
        result(name="bad", status="failed", failure=failure),
        result(name="late", status="not run"),
        result(name="odd", status="failed", failure=Failure("unreadable", "no")),
        result(name="good"),
    ]
    suite = ElementTree.fromstring(to_junit(run(*notebooks)).encode()).find("testsuite")
    assert [suite.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["4", "1", "1", "1"]
    assert "alert(1)" in suite.find("testcase/failure").text


def test_json_round_trip():
    failure = Failure("cell timeout", "m", cell=2)
    one = result(status="failed", failure=failure, cells=(CellTime(2, 0.5, "g"),), peak_bytes=3)
    [back] = json.loads(json.dumps(to_json(run(one))))["notebooks"]
    assert notebook_from_json(back) == one


@pytest.mark.parametrize("text", ["", "{}", '{"notebooks": [{"name": 1}]}', '{"notebooks": 3}', "[]"])
def test_an_old_report_of_another_kind_is_no_report(tmp_path, text):
    (tmp_path / write.DATA).write_text(text)
    assert write.read_notebooks(tmp_path) == {}


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_pages_in_a_browser(browser, tmp_path, scheme, width):
    failure = Failure("exception", "ValueError: " + "long " * 40, cell=2, grade_id="t" * 60, traceback="x" * 300)
    ones = [
        result(
            name="lab00_" + "n" * 40, page="notebooks/lab.html", seconds=2.0, cells=(CellTime(2, 1.0),), peak_bytes=9**9
        ),
        result(name="lab01", status="failed", failure=failure, page="notebooks/lab.html", seconds=1.0),
    ]
    (tmp_path / "notebooks").mkdir()
    plot = {"application/vnd.plotly.v1+json": {"data": []}, "text/html": "<i id='p'>plot</i>"}
    page = render(tmp_path, notebook([data("display_data", plot)]), ones[1])
    (tmp_path / "notebooks" / "lab.html").write_text(page)
    write.fill(tmp_path, run(*ones), "<svg width='900' height='20'></svg>", "caption")
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 800})
    asked, problems = [], []
    context.on("request", lambda request: asked.append(request.url))
    tab = context.new_page()
    tab.on("pageerror", lambda error: problems.append(str(error)))
    tab.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    for name in ("index.html", "notebooks/lab.html"):
        tab.goto((tmp_path / name).as_uri())
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
        dark = tab.evaluate(LUMINANCE) < 0.5
        assert dark == (scheme == "dark")
        tab.get_by_role("button", name="Switch to the").click()
        assert (tab.evaluate(LUMINANCE) < 0.5) != dark
        tab.evaluate("localStorage.clear()")
    assert tab.evaluate("typeof Plotly") == "object"
    assert problems == []
    assert all(url.startswith(("file:", "data:")) for url in asked)
    context.close()


LUMINANCE = """() => {
  const canvas = document.createElement("canvas").getContext("2d");
  canvas.fillStyle = getComputedStyle(document.body).backgroundColor;
  canvas.fillRect(0, 0, 1, 1);
  const [r, g, b] = canvas.getImageData(0, 0, 1, 1).data;
  return (r + g + b) / 765;
}"""
