"""Faults that axe finds among a hundred texts alike, of which page_thin.js leaves a few."""

from __future__ import annotations

from typing import Any

import pytest

from tests.labkit.page_axe import serious

pytestmark = pytest.mark.browser
ROWS = "<table>" + "<tr><td><i></i>text that is read</td></tr>" * 100 + "</table>"
BOTH = ["dark color-contrast", "light color-contrast"]
BEHIND = "td { position: relative } tr:nth-child(90) i { position: absolute; inset: 0; background: #444; z-index: -1 }"
TEXT = "td { color: #555; position: relative; z-index: 1 }"
UNDER = f"{TEXT} b {{ transform: translateY(-200px); display: block; height: 99px; background: #777 }}"
LINKS = "<p>text that is read <a href=x>with a link</a> in it</p>" * 50
BORDER = "a { color: #333; text-decoration: none; border-bottom: 1px solid } p:nth-of-type(40) a { border-bottom: 0 }"
LINK = ["dark link-in-text-block", "light link-in-text-block"]
# In a stripe; in one scheme; in the text itself; in what lies under it, or was moved there; in a link; in what has no
# colour.
FAULTS = [
    ("", "", []),
    ("tr:nth-child(20n) { background: #777 } td { color: #444 }", "", BOTH),
    ("@media (prefers-color-scheme: dark) { tr:nth-child(77) { background: #222 } }", "", BOTH[:1]),
    ("tr:nth-child(50) td { font-size: 9px; color: #999 }", "", BOTH),
    (BEHIND, "", BOTH),
    (UNDER, "<b></b>", BOTH),
    (f"p {{ color: #222 }} {BORDER}", LINKS, LINK),
    ("", "<svg role=img><g></g></svg>", [" svg-img-alt"]),
]


@pytest.mark.parametrize(("css", "more", "wanted"), FAULTS)
def test_a_fault_among_texts_alike_is_found(browser: Any, css: str, more: str, wanted: list[str]) -> None:
    page = browser.new_page()
    page.set_content(f"<!doctype html><html lang=en><title>t</title><style>{css}</style><main>{ROWS}{more}</main>")
    assert sorted({" ".join(each.split(" ")[:2]) for each in serious(page)}) == wanted
    page.close()
