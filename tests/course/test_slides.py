"""The decks: a slide for each figure of a chapter with the text beside it, in a browser that has no network."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import jupytext
import pytest
from bs4 import BeautifulSoup, Tag

from tests.conftest import ROOT, settle
from tests.course.conftest import Site

pytestmark = [pytest.mark.xdist_group("site"), pytest.mark.timeout(1200)]
DECKS = ["00_find_f", "04_machines", "06_cuda", "10_training", "11_serving"]
PLACE = "Reveal.getIndices().h"
FIGURE = ".body :is(.lk, .lk-static, .lk-drawing)"
# A section that stays in the chapter.
LEFT_OUT = ("words", "references")
# A sentence of the page that speaks of another place in it.
ELSEWHERE = re.compile(
    r"\b(figure|drawing|table|cell|code) (below|above)\b|\b(next|previous) (cell|paragraph)\b|below:$"
)
LOOK = """() => {
    const slide = Reveal.getCurrentSlide(), style = getComputedStyle(slide);
    const { left, top, width, height } = slide.getBoundingClientRect();
    return {
        box: [left, top, width, height],
        beyond: [slide, ...slide.querySelectorAll(".body > *")].flatMap((part) => {
            // A widget's part clips it; where it ends says whether it fits.
            const figure = part.querySelector(":scope > .sized"), room = part.getBoundingClientRect();
            const inner = figure ? figure.getClientRects()[0] : null;
            const over = inner
                ? [inner.right - room.right, inner.bottom - room.bottom]
                : [part.scrollWidth - part.clientWidth, part.scrollHeight - part.clientHeight];
            return Math.max(...over) > 1.5 ? [`${part.className}: ${over.map(Math.round)}`] : [];
        }),
        opacity: style.opacity,
        text: slide.innerText.trim().length,
        figures: [...slide.querySelectorAll(".lk")].map((e) => e.querySelectorAll("svg *, button, li, pre").length),
    };
}"""


def headings(name: str) -> list[str]:
    """Return the headings of a chapter, read from its source."""
    notebook = jupytext.read(ROOT / f"course/chapters/{name}.md", fmt="md:myst")
    prose = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    return re.findall(r"^#{1,3} (.+)$", prose, re.MULTILINE)


def soup(site: Site, page: str) -> BeautifulSoup:
    return BeautifulSoup((site.folder / f"{page}.html").read_text("utf-8"), "html.parser")


def words(text: str) -> str:
    return " ".join(text.split())


def test_deck_list_is_complete(site: Site) -> None:
    assert [name.removeprefix("slides/") for name in site.pages if name.startswith("slides/")] == DECKS
    assert {f"../slides/{name}.html" for name in DECKS} <= set(site.pages["instructor/index"].links)


def slides(site: Site, name: str) -> list[Tag]:
    return soup(site, f"slides/{name}").select(".slides > section")


@pytest.mark.parametrize("name", DECKS)
def test_every_section_has_a_slide(site: Site, name: str) -> None:
    ids = [slide["id"] for slide in slides(site, name)]
    assert len(set(ids)) == len(ids)
    assert not {*ids} & {*LEFT_OUT}
    first = [slide for slide in slides(site, name) if not slide["id"].endswith("-more")]
    assert len(first) == len(headings(name)) - len(LEFT_OUT)
    assert all(slide.select_one("h2.again") for slide in slides(site, name) if slide not in first)


@pytest.mark.parametrize("name", DECKS)
def test_every_figure_has_a_slide_in_the_chapters_order(site: Site, name: str) -> None:
    on_page = [
        (found := output.select_one("[aria-label]")) and found["aria-label"]
        for output in soup(site, f"chapters/{name}").select("article section > .cell .output.text_html")
        if not output.find_parent(id=re.compile("exercises$"))
    ]
    shown = [[found["aria-label"] for found in slide.select(FIGURE)] for slide in slides(site, name)]
    assert len(on_page) >= 5
    assert [label for labels in shown for label in labels] == on_page
    assert max(map(len, shown)) == 1


def test_slides_are_figures(site: Site) -> None:
    held = {name: [slide.select_one(FIGURE) is not None for slide in slides(site, name)] for name in DECKS}
    assert {name: share for name, has in held.items() if (share := sum(has) / len(has)) < 0.25} == {}
    every = [has for deck in held.values() for has in deck]
    assert sum(every) / len(every) >= 0.4


@pytest.mark.parametrize("name", DECKS)
def test_what_a_sentence_points_to_is_on_its_slide(site: Site, name: str) -> None:
    for slide in slides(site, name):
        said = [words(told.get_text()) for told in slide.select(".body > .said > p, .body > p")]
        assert not [text for text in said if ELSEWHERE.search(text)], slide["id"]
        if slide.select_one(".body.list"):
            assert not [text for text in said if re.search(r"\bthe (table|figure|drawing|cell)\b", text)], slide["id"]
        if not slide.select_one(".shown"):
            assert not [text for text in said if text.endswith((":", ","))], slide["id"]


@pytest.mark.parametrize("name", DECKS)
def test_the_prose_is_in_the_notes(site: Site, name: str) -> None:
    notes = words(" ".join(note.get_text() for note in soup(site, f"slides/{name}").select("aside.notes")))
    prose = soup(site, f"chapters/{name}").select("article section > p")
    assert len(prose) > 10
    lost = [
        text
        for told in prose
        if "as-notebook" not in told.get("class", ())
        and told.parent.get("id") not in LEFT_OUT
        and (text := words(told.get_text())) not in notes
    ]
    assert not lost, lost[:3]
    assert [slide["id"] for slide in slides(site, name) if not words(slide.select_one("aside.notes").get_text())] == []


@pytest.mark.parametrize("name", DECKS)
def test_tables_formulas_and_lists_are_on_the_slides(site: Site, name: str) -> None:
    page, deck = soup(site, f"chapters/{name}"), soup(site, f"slides/{name}")
    shown = words(" ".join(body.get_text() for body in deck.select(".body")))
    for what in ("section > .table-wrapper tr", "section > div.math", "section > ul > li", "section > ol > li"):
        on_page = [each for each in page.select(f"article {what}") if not each.find_parent(id=LEFT_OUT)]
        # The items of a long list are their first sentences.
        texts = [re.split(r"(?<=[.?!]) ", words(each.get_text()))[0] for each in on_page]
        assert not [text for text in texts if text not in shown], what


# --- in a browser ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shows(browser: Any, site: Site) -> Iterator[Any]:
    """Yield a function that opens a deck without a network; errors of the page are in the page's ``trouble``."""
    contexts = []

    def show(name: str, scheme: str = "light") -> Any:
        context = browser.new_context(viewport={"width": 1280, "height": 720}, color_scheme=scheme, offline=True)
        contexts.append(context)
        page, trouble = context.new_page(), []
        page.on("console", lambda said: trouble.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on(
            "request",
            lambda asked: (
                None if asked.url.startswith(("file:", "data:", "blob:", "about:")) else trouble.append(asked.url)
            ),
        )
        page.goto((site.folder / f"slides/{name}.html").as_uri())
        page.wait_for_function("Reveal.isReady() && !document.querySelector('.lk-static')")
        page.evaluate("document.fonts.ready.then(() => null)")
        return page, trouble

    yield show
    for context in contexts:
        context.close()


def turn(page: Any, key: str, to: int) -> None:
    page.keyboard.press(key)
    page.wait_for_function(f"{PLACE} === {to}")


@pytest.mark.browser
@pytest.mark.parametrize("name", DECKS)
def test_the_keyboard_goes_through_a_deck_that_fits(shows: Any, site: Site, name: str) -> None:
    page, trouble = shows(name)
    number_of_slides = len(slides(site, name))
    assert page.evaluate("Reveal.getTotalSlides()") == number_of_slides
    for number in range(number_of_slides):
        if number:
            turn(page, "ArrowRight", number)
        settle(page)
        seen = page.evaluate(LOOK)
        assert seen["box"] == [0, 0, 1280, 720], number
        assert seen["beyond"] == [], number
        assert seen["opacity"] == "1", number
        assert seen["text"] > 0, number
        assert all(seen["figures"]), number
    turn(page, "Home", 0)
    assert not trouble, trouble[:5]


@pytest.mark.browser
def test_arrows_in_a_figure_are_the_figures(shows: Any) -> None:
    page, trouble = shows("10_training")
    at = page.evaluate("Reveal.getSlides().findIndex((slide) => slide.querySelector('.lk input[type=range]'))")
    page.evaluate(f"Reveal.slide({at})")
    settle(page)
    slider = page.locator(f".slides > section:nth-child({at + 1}) input[type=range]").first
    slider.focus()
    before = slider.input_value()
    page.keyboard.press("ArrowRight")
    assert slider.input_value() != before
    assert page.evaluate(PLACE) == at
    turn(page, "PageDown", at + 1)
    turn(page, "PageUp", at)
    slider.focus()
    page.keyboard.press("Escape")
    assert not page.evaluate("Reveal.isOverview()")
    turn(page, "ArrowRight", at + 1)
    assert not trouble


@pytest.mark.browser
def test_a_figures_pointer_is_where_its_picture_is(shows: Any) -> None:
    page, _ = shows("00_find_f")
    page.set_viewport_size({"width": 1920, "height": 1080})
    at = page.evaluate("Reveal.getSlides().findIndex((slide) => slide.querySelector('.lk svg'))")
    page.evaluate(f"Reveal.slide({at})")
    settle(page)  # the slide's figures draw themselves anew at its width
    assert float(page.evaluate("Reveal.getCurrentSlide().querySelector('.sized').dataset.scale")) > 1.1
    box = page.locator(f".slides > section:nth-child({at + 1}) .lk svg.lk-map").bounding_box()
    x, y = box["x"] + 0.3 * box["width"], box["y"] + 0.4 * box["height"]
    page.mouse.click(x, y)
    near = """([x, y]) => [...Reveal.getCurrentSlide().querySelectorAll(".lk-grip")].some((grip) => {
        const [{ left, top, width, height }] = grip.getClientRects();
        return Math.hypot(left + width / 2 - x, top + height / 2 - y) < 4;
    })"""
    page.wait_for_function(near, arg=[x, y])


@pytest.mark.browser
def test_the_speaker_has_the_notes_in_a_window(shows: Any) -> None:
    page, trouble = shows("00_find_f")
    with page.expect_popup() as opened:
        page.keyboard.press("s")
    speaker = opened.value
    speaker.wait_for_function(
        "document.querySelector('.speaker-controls-notes .value')?.innerText.includes('answers this question')"
    )
    assert not trouble


@pytest.mark.browser
@pytest.mark.parametrize(("name", "scheme"), [*((name, "light") for name in DECKS), ("10_training", "dark")])
def test_axe_finds_nothing_serious_on_slides_of_each_kind(shows: Any, name: str, scheme: str) -> None:
    page, _ = shows(name, scheme)
    page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text("utf-8"))
    kinds = ("h1", ".table-wrapper", ".lk svg", ".cell_input", "dl")
    found = "kinds => kinds.map((kind) => Reveal.getSlides().findIndex((slide) => slide.querySelector(kind)))"
    places = {place for place in page.evaluate(found, list(kinds)) if place >= 0}
    assert len(places) >= 4
    serious = []
    for place in sorted(places):
        page.evaluate(f"Reveal.slide({place})")
        serious += [
            f"{place}: {each['id']} {each['nodes'][0]['html'][:160]}"
            for each in page.evaluate("axe.run(Reveal.getCurrentSlide()).then((result) => result.violations)")
            if each["impact"] in ("serious", "critical")
        ]
    assert not serious, "\n".join(serious)
