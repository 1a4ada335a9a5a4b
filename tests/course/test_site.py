"""The built site: nothing is missing, nothing leads nowhere, nothing comes from elsewhere, all of it can be read."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag

import jupytext
import nbformat
import pytest
from bs4 import BeautifulSoup

from mlsys_grading.lab import read_labs
from mlsys_grading.release.git import files_of
from mlsys_grading.release.hidden import hidden_lines
from mlsys_grading.release.search import search
from tests.conftest import ROOT
from tests.course.chapters import COURSE, NAMES as CHAPTERS, rows
from tests.course.conftest import Site
from tests.labkit.page_axe import serious

pytestmark = [pytest.mark.xdist_group("site"), pytest.mark.timeout(1200)]
MOST_BYTES = 1_500_000
LONG = 4000  # words; a longer chapter says the result of each of its sections
_LABEL = re.compile(r"\([\w-]+\)=")
AT_THE_END = {"Exercises", "Words", "Takeaways", "References"}


# --- what stands in it ------------------------------------------------------------------------------------------------


def test_there_are_fourteen_chapters() -> None:
    assert [name[:2] for name in CHAPTERS] == [f"{number:02}" for number in range(14)]


def test_every_row_of_the_coverage_has_its_place_in_the_site(site: Site) -> None:
    lost = []
    for row in rows():
        assert ("anchor" in row) != ("reason" in row), row
        if "anchor" in row:
            page, anchor = row["anchor"].split("#")
            if page not in site.pages or anchor not in site.pages[page].ids:
                lost.append(row["anchor"])
    assert not lost, sorted(set(lost))


def test_the_tasks_of_the_coverage_and_of_the_exercises_are_tasks_of_the_labs() -> None:
    tasks = {task.name for lab in read_labs(ROOT) for task in lab.tasks}
    named = {task for row in rows() for task in row.get("tasks", ())}
    for name in CHAPTERS:
        exercises = (COURSE / f"chapters/{name}.md").read_text("utf-8").split("## Exercises")[1].split("\n## ")[0]
        named |= {
            task
            for line in re.findall(r"tasks? ((?:`\w+`(?:, | and )?)+)", exercises)
            for task in re.findall(r"`(\w+)`", line)
        }
    assert named <= tasks, sorted(named - tasks)


def test_sources_of_the_coverage_have_rows() -> None:
    data = tomllib.loads((COURSE / "coverage.toml").read_text("utf-8"))
    assert set(data["sources"]) == {row["source"] for row in data["row"]}
    assert len({(row["source"], row["title"]) for row in data["row"]}) == len(data["row"])


@pytest.mark.parametrize("name", CHAPTERS)
def test_chapter_has_all_required_parts(name: str) -> None:
    notebook = jupytext.read(COURSE / f"chapters/{name}.md", fmt="md:myst")
    prose = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert len(prose.split()) >= 1500
    if len(prose.split()) > LONG:
        assert not _without_summary(prose), "sections of a long chapter that do not end in a paragraph **In short.**"
    for heading in ("## Exercises", "## Words", "## Takeaways", "## References"):
        assert heading in prose
    drawn = re.findall(r"lk\.widgets\.(\w+)\(", "\n".join(cell.source for cell in code))
    assert "prediction" in drawn
    assert len([kind for kind in drawn if kind not in ("prediction", "answer")]) >= 2, "two figures that move"
    shown = [cell for cell in code if not {"remove-input", "remove-cell"} & set(cell.metadata.get("tags", ()))]
    assert len(shown) >= 2, "worked numbers in cells that a reader sees"
    assert len(re.findall(r"^\d+\. .*(?:https?://|edition|chapter|Kybernetika|Cambridge)", prose, re.MULTILINE)) >= 4, (
        "references"
    )
    assert not re.search(r"\b(TODO|TBD|FIXME|lorem|placeholder)\b", prose, re.IGNORECASE)


def _without_summary(prose: str) -> list[str]:
    """List the sections whose last paragraph does not begin with "In short."."""
    sections = [part.strip().split("\n\n") for part in re.split(r"^## ", prose, flags=re.MULTILINE)[1:]]
    last = {
        section[0].splitlines()[0]: [part for part in section if not _LABEL.fullmatch(part)][-1] for section in sections
    }
    return [name for name, end in last.items() if name not in AT_THE_END and not end.startswith("**In short.**")]


def test_long_chapter_without_summaries_is_found() -> None:
    prose = "# T\n\n(a)=\n## A\n\nText.\n\n**In short.** Yes.\n\n(b)=\n\n## B\n\nText.\n\n## Exercises\n\n1. x"
    assert _without_summary(prose) == ["B"]


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_chapter_opens_as_a_notebook(site: Site, name: str) -> None:
    notebook = nbformat.read(site.folder / f"notebooks/{name}.ipynb", as_version=4)
    nbformat.validate(notebook)
    assert notebook.metadata.kernelspec.name == "python3"
    assert not [cell for cell in notebook.cells if cell.get("outputs")]
    assert f"../notebooks/{name}.ipynb" in site.pages[f"chapters/{name}"].links


def test_no_page_holds_a_hidden_line(site: Site) -> None:
    hidden = hidden_lines(read_labs(ROOT))
    assert len(hidden) > 1000
    texts = [(name, (ROOT / name).read_bytes()) for name in files_of(ROOT) if name.startswith("course/")]
    texts += [(name, page.text.encode()) for name, page in site.pages.items()]
    assert not search(texts, hidden)


@pytest.mark.parametrize("name", CHAPTERS)
def test_each_citation_leads_to_its_reference(site: Site, name: str) -> None:
    page = BeautifulSoup((site.folder / f"chapters/{name}.html").read_text("utf-8"), "html.parser").article
    listed = page.select("#references ol > li")
    links = page.select("a[href^='#reference-']")
    assert {int(link.text) for link in links}, "none"
    for link in links:
        item = listed[int(link.text) - 1]
        assert (link["href"], link["title"]) == (f"#{item['id']}", item.get_text(strip=False).strip())
    for other in page.select("a, code, pre, math, .cell, #references"):
        other.decompose()
    assert not re.findall(r"\[\d+(?:, \d+)*\]", page.get_text())


def test_spelling() -> None:
    paths = [str(path) for path in [*COURSE.rglob("*.md"), *COURSE.rglob("*.toml")]]
    names = "leary,nd,patter"
    done = subprocess.run(
        [Path(sys.executable).with_name("codespell"), "-L", names, *paths], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


# --- where it leads --------------------------------------------------------------------------------------------------


def test_internal_links_and_anchors_lead_somewhere(site: Site) -> None:
    lost = []
    for name, page in site.pages.items():
        for link in page.links:
            address, anchor = urldefrag(unquote(link))
            if re.match(r"[a-z]+:", link):
                continue
            target = (page.path.parent / address.split("?")[0]).resolve() if address else page.path
            if not target.exists():
                lost.append(f"{name}: {link}")
            elif anchor and target.suffix == ".html":
                to = str(target.relative_to(site.folder.resolve()).with_suffix(""))
                if anchor not in site.pages[to].ids:
                    lost.append(f"{name}: {link}")
    assert not lost, lost[:20]


def test_pages_are_light_and_their_pictures_are_told(site: Site) -> None:
    for name, page in site.pages.items():
        local = {
            (page.path.parent / urldefrag(link)[0].split("?")[0]).resolve()
            for link in page.resources
            if ":" not in link
        }
        weight = page.size + sum(path.stat().st_size for path in local)
        assert weight <= MOST_BYTES, f"{name} weighs {weight:,} bytes"
        assert not [link for link in page.resources if re.match(r"(https?:)?//", link)], name
        assert all(picture.get("alt") and "/" not in str(picture["alt"]) for picture in page.pictures), name


# --- in a browser ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def offline(browser: Any) -> Iterator[Any]:
    """Yield a browser context that can load nothing but files."""
    context = browser.new_context(viewport={"width": 1200, "height": 900}, offline=True)
    yield context
    context.close()


@pytest.mark.browser
def test_every_page_draws_all_its_figures_without_a_network(site: Site, offline: Any) -> None:
    trouble: list[str] = []
    for name, page_of in site.pages.items():
        page = offline.new_page()
        page.on(
            "console",
            lambda message, name=name: trouble.append(f"{name}: {message.text}") if message.type == "error" else None,
        )
        page.on("pageerror", lambda error, name=name: trouble.append(f"{name}: {error}"))
        page.on(
            "request",
            lambda request, name=name: (
                None
                if request.url.startswith(("file:", "data:", "blob:"))
                else trouble.append(f"{name}: asks for {request.url}")
            ),
        )
        page.goto(page_of.path.as_uri())
        page.wait_for_function("!document.querySelector('.lk-static')")
        drawn = page.evaluate("[...document.querySelectorAll('section.lk')].map(e => e.querySelectorAll('*').length)")
        if name.startswith("chapters/"):
            assert len(drawn) >= 3, f"{name}: a prediction and two figures"
        assert min(drawn, default=8) >= 8, name
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 1, f"{name} is {wide} px wider than its window"
        page.close()
    assert not trouble, trouble[:10]


@pytest.mark.browser
def test_axe_finds_nothing_serious(site: Site, browser: Any) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 900}, offline=True)
    found: list[str] = []
    for name, page_of in site.pages.items():
        page = context.new_page()
        page.goto(page_of.path.as_uri())
        page.wait_for_function("!document.querySelector('.lk-static')")
        found += [f"{name}: {each}" for each in serious(page)]
        page.close()
    context.close()
    assert not found, "\n".join(found[:15])


@pytest.mark.browser
def test_search_finds_without_a_server(site: Site, offline: Any) -> None:
    from playwright.sync_api import expect

    page = offline.new_page()
    page.goto((site.folder / "search.html").as_uri() + "?q=bubble")
    expect(page.locator("#search-results")).to_contain_text("Many GPUs: training")  # Sphinx lists one at a time
    page.close()


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 1300, 1400])
def test_the_contents_of_a_page_stand_beside_it(site: Site, browser: Any, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 800})
    page.goto((site.folder / "chapters/04_machines.html").as_uri())
    text, contents = (page.locator(part).bounding_box() for part in ("article", ".toc-tree"))
    assert text["width"] >= 700
    assert text["x"] + text["width"] <= contents["x"]
    assert contents["x"] + contents["width"] <= width
    assert page.evaluate("document.documentElement.scrollWidth") == width
    page.close()
