"""Bars for every widget: figure first, four controls in sight, a verdict of one sentence beside it, legible labels."""

from __future__ import annotations

from typing import Any

import pytest

from tests.labkit import every_widget, widget_layout

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("width", [widget_layout.DESK, widget_layout.PHONE])
@pytest.mark.parametrize("folder", sorted(every_widget.folders()))
def test_widget_meets_the_bars_in_all_its_states(browser: Any, folder: str, width: int) -> None:
    for make in widget_layout.samples()[folder]:
        seen = widget_layout.measure(browser, make().html(), width)
        assert seen.misses() == [], seen
        assert len(seen.good_handles()) == len(seen.handles), seen.handles


def test_a_widget_that_misses_every_bar_is_found(browser: Any) -> None:
    """The figure comes after six controls, its labels are small and lie upon each other, and it says nothing."""
    label = "<text x=5 y=12>one label</text><text x=9 y=14>another</text>"
    svg = f"<svg width=300 height=900 style='font-size: 8px'>{label}</svg>"
    fragment = f"""<section class=lk>{"<button>b</button>" * 6}<div class=lk-stage>{svg}</div>
      <p class=lk-says>One. Two.</p><div class=lk-rest></div></section>"""
    misses = widget_layout.measure(browser, fragment, widget_layout.DESK).misses()
    assert misses == ["height", "controls", "text", "figure first", "one sentence", "overlaps"]
