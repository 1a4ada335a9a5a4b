"""Axe's serious findings on a page, in light and dark.

All rules but those of colour see the whole page. A contrast takes axe longer than all else, and most texts of a page
look alike, with all that they lie on. So page_thin.js hides those of which there are enough before the rules of colour
run.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from tests.conftest import settle

AXE = (files("axe_playwright_python") / "axe.min.js").read_text("utf-8")
THIN = Path(__file__).with_name("page_thin.js").read_text("utf-8").strip().removesuffix(";")
COLOURS = ["color-contrast", "link-in-text-block"]
# Nodes that pass are not listed: that takes a third of axe's time.
RUN = """([exclude, given]) => axe.run({ exclude }, { ...given, resultTypes: ["violations"] })
  .then((result) => result.violations)"""
STILL = "document.getAnimations().every((one) => one.playState !== 'running')"


def serious(page: Any, exclude: Sequence[str] = ()) -> list[str]:
    """Return axe's serious and critical findings in a page that is drawn. The page loses most of its texts by it."""
    page.evaluate(AXE)
    page.evaluate(THIN)
    others = {"rules": {rule: {"enabled": False} for rule in COLOURS}}
    found = [("", page.evaluate(RUN, [list(exclude), others]))]
    for scheme in ("dark", "light"):
        in_scheme(page, scheme)
        page.evaluate("colours.look()")
    page.evaluate("colours.thin()")
    for scheme in ("light", "dark"):
        in_scheme(page, scheme)
        found.append((scheme, page.evaluate(RUN, [list(exclude), {"runOnly": COLOURS}])))
    return [
        f"{scheme} {each['id']} {node['html'][:160]}"
        for scheme, violations in found
        for each in violations
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]


def in_scheme(page: Any, scheme: str) -> None:
    """Show the page in ``scheme``, with its figures drawn anew and no colour on its way to another."""
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    settle(page)
    page.wait_for_function(STILL)
