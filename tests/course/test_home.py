"""The home page: a figure that moves, a card for each chapter with its number and minutes, the labs as a path."""

from __future__ import annotations

import re
from typing import Any

import pytest
from bs4 import BeautifulSoup

from mlsys_grading.lab import read_labs
from tests.conftest import ROOT
from tests.course.chapters import NAMES
from tests.course.conftest import Site

pytestmark = [pytest.mark.xdist_group("site"), pytest.mark.timeout(1200)]


def home(site: Site) -> BeautifulSoup:
    return BeautifulSoup((site.folder / "index.html").read_text("utf-8"), "html.parser").select_one("article")


def test_home_has_a_card_for_each_chapter(site: Site) -> None:
    cards = home(site).select(".card")
    assert [card["data-page"] for card in cards] == NAMES
    titles = [card.h3.get_text() for card in cards]
    assert [title.split(" · ")[0] for title in titles] == [str(number) for number in range(14)]
    assert all(card.select_one("svg[aria-hidden] rect, svg[aria-hidden] path") for card in cards)
    minutes = [int(re.search(r"(\d+) minutes", card.get_text())[1]) for card in cards]  # type: ignore[index]
    assert min(minutes) >= 15


def test_titles_in_the_sidebar_are_those_of_the_chapters(site: Site) -> None:
    page = BeautifulSoup((site.folder / "index.html").read_text("utf-8"), "html.parser")
    listed = {link["href"]: link.get_text() for link in page.select(".sidebar-tree a.reference")}
    cards = {card.h3.a["href"]: card.h3.get_text() for card in home(site).select(".card")}
    assert {href: text for href, text in listed.items() if href in cards} == cards


def test_home_lists_the_labs_with_their_points(site: Site) -> None:
    labs = sorted(read_labs(ROOT), key=lambda lab: lab.name)
    steps = home(site).select(".lab-path li")
    assert [step.a["href"] for step in steps] == [f"labs.html#{lab.name[:5]}" for lab in labs]
    points = [int(re.search(r"(\d+) points", step.get_text())[1]) for step in steps]  # type: ignore[index]
    assert points == [sum(task.points for task in lab.tasks) for lab in labs]


@pytest.mark.parametrize("name", NAMES)
def test_chapter_says_its_number_its_minutes_and_its_labs(site: Site, name: str) -> None:
    page = BeautifulSoup((site.folder / f"chapters/{name}.html").read_text("utf-8"), "html.parser")
    assert page.select_one("h1 .number").get_text() == str(int(name[:2]))
    line = page.select_one("p.as-notebook")
    assert re.match(r"\d+ minutes · ", line.get_text())
    assert [link["href"] for link in line.select(".lab-button")]
    neighbours = [link.get_text(" ", strip=True) for link in page.select(".related-pages a")]
    assert any(f"{int(name[:2]) + 1} · " in text for text in neighbours) or name == NAMES[-1]


@pytest.mark.browser
def test_a_chapter_read_to_its_end_is_marked_on_the_home_page(site: Site, browser: Any) -> None:
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.goto((site.folder / "chapters/05_roofline.html").as_uri())
    page.locator("#takeaways").scroll_into_view_if_needed()
    page.wait_for_function("localStorage.getItem('mlsys-labkit-read')?.includes('05_roofline')")
    page.goto((site.folder / "index.html").as_uri())
    done = page.eval_on_selector_all(".card:has(.done:not([hidden]))", "cards => cards.map(card => card.dataset.page)")
    assert done == ["05_roofline"]
    context.close()


@pytest.mark.browser
def test_figure_and_buttons_are_on_the_first_screen(site: Site, browser: Any) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto((site.folder / "index.html").as_uri())
    page.wait_for_function("!document.querySelector('.lk-static')")
    for selector in (".buttons", "section.lk svg"):
        box = page.locator(selector).first.bounding_box()
        assert 0 < box["y"] < 700, selector
    page.close()
