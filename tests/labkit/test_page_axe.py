"""Faults that axe finds among a hundred texts alike, of which page_thin.js leaves a few."""

from __future__ import annotations

from typing import Any

import pytest

from tests.labkit.page_axe import serious

pytestmark = pytest.mark.browser
ROWS = "<table>" + "<tr><td><i></i>text that is read</td></tr>" * 100 + "</table>"
BOTH = ["dark color-contrast", "light color-contrast"]
BEHIND = "td { position: relative } tr:nth-child(90) i { position: absolute; inset: 0; background: #444; z-index: -1 }"
# In a stripe; in one scheme; in the text itself; in what lies under it; and in what has no colour.
FAULTS = [
    ("", "", []),
    ("tr:nth-child(20n) { background: #777 } td { color: #444 }", "", BOTH),
    ("@media (prefers-color-scheme: dark) { tr:nth-child(77) { background: #222 } }", "", BOTH[:1]),
    ("tr:nth-child(50) td { font-size: 9px; color: #999 }", "", BOTH),
    (BEHIND, "", BOTH),
    ("", "<svg role=img><g></g></svg>", [" svg-img-alt"]),
]


@pytest.mark.parametrize(("css", "more", "wanted"), FAULTS)
def test_a_fault_among_texts_alike_is_found(browser: Any, css: str, more: str, wanted: list[str]) -> None:
    page = browser.new_page()
    page.set_content(f"<!doctype html><html lang=en><title>t</title><style>{css}</style><main>{ROWS}{more}</main>")
    assert sorted({" ".join(each.split(" ")[:2]) for each in serious(page)}) == wanted
    page.close()
