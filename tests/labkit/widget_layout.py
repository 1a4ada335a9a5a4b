"""Measurements of every widget as a reader sees it, at the widths of a chapter's column and of a phone.

    python -m tests.labkit.widget_layout [NAME ...]

prints one line for each kind of widget and says which bars it misses. Each kind is measured with all its samples, and
the worst value counts. Labels are compared in every state that one control can reach alone: all options of a list, the
ends and the middle of a slider and of a handle, a tick, a button.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlsys_labkit import widgets
from mlsys_labkit.work import Work
from tests.conftest import chromium, settle
from tests.labkit import every_widget

DESK, PHONE = 1280, 390
COLUMN = {DESK: 736, PHONE: 358}  # pixels of a chapter's text at these widths of the window
MOST_HIGH, SCREEN, MOST_CONTROLS, LEAST_TEXT, HAND = 760, 844, 4, 11, 24


def script(name: str) -> str:
    """Return a script for ``page.evaluate`` that gets the walk through all controls as its second argument."""
    body, walk = (
        Path(__file__).with_name(f"{each}.js").read_text("utf-8").strip().removesuffix(";")
        for each in (name, "widget_walk")
    )
    return f"(first) => ({body})(first, {walk})"


MEASURE = script("widget_layout")


@dataclass(frozen=True)
class Seen:
    """One sample of a widget at one width of the window, as a browser draws it."""

    width: int
    height: float
    controls: int
    smallest: tuple[float, str]
    first: bool
    span: float
    verdict: bool
    sentences: int
    said: str
    handles: list[dict[str, Any]]
    overlaps: dict[str, Any]

    def misses(self) -> list[str]:
        """Return the bars that the sample misses at this width."""
        tests = {
            "height": self.width == PHONE or self.height <= MOST_HIGH,
            "span": self.width == DESK or self.span <= SCREEN,
            "controls": self.controls <= MOST_CONTROLS,
            "text": self.smallest[0] >= LEAST_TEXT - 0.05,
            "figure first": self.first,
            "verdict": self.verdict or self.said == "",  # a prediction has none before it is made
            "one sentence": self.sentences == 1 or self.said == "",
            "overlaps": self.overlaps["count"] == 0,
        }
        return [name for name, met in tests.items() if not met]

    def good_handles(self) -> list[str]:
        """Return the labels of the handles that are large enough, are told in words and move with an arrow key."""
        return [one["label"] for one in self.handles if all(value for name, value in one.items() if name != "label")]


def measure(browser: Any, fragment: str, width: int) -> Seen:
    """Draw a widget's HTML in a column of a page and measure it."""
    page = browser.new_page(viewport={"width": width, "height": 900})
    column = f"<main style='width: {COLUMN[width]}px; margin: auto'>{fragment}</main>"
    page.set_content(f"<!doctype html><html lang=en><title>t</title><body style='margin: 0'>{column}")
    page.wait_for_selector("section.lk")
    settle(page)
    found = page.locator("section.lk").evaluate(MEASURE)
    page.close()
    return Seen(width=width, **{**found, "smallest": tuple(found["smallest"])})


def ladder() -> Any:
    """Return chapter 7's roofline: in bfloat16 its slowest kernel lies where the axis has its numbers."""
    passes = {"naive": (33, 0.5), "column": (4.5, 5), "coalesced": (2, 7.5), "tiled": (2, 8), "square": (0.5, 30)}
    works = [
        Work(flops=1e12, bytes_read=2e12 * per_step, seconds=1 / speed, name=name)
        for name, (per_step, speed) in passes.items()
    ]
    return widgets.roofline(["h100-sxm"], works, dtype="float32", level="shared")


def samples() -> dict[str, list[Any]]:
    """Return the makers of all samples by kind."""
    found: dict[str, list[Any]] = {"roofline": [ladder]}
    for make in every_widget.every().values():
        found.setdefault(every_widget.folder_of(make), []).append(make)
    return found


def show(folder: str, seen: Iterable[Seen]) -> str:
    """Return a line of the table."""
    seen = list(seen)
    desk, phone = ([one for one in seen if one.width == width] for width in (DESK, PHONE))
    smallest = [min(one.smallest[0] for one in part) for part in (desk, phone)]
    misses = sorted({f"{name}@{one.width}" for one in seen for name in one.misses()})
    handles = max((one.good_handles() for one in seen), key=len)
    return (
        f"{folder:<20} {max(one.height for one in desk):>5.0f} {max(one.span for one in phone):>6.0f} "
        f"{max(one.controls for one in seen):>4} {smallest[0]:>5.1f} {smallest[1]:>5.1f} "
        f"{_every(one.first for one in seen):>5} {_every(one.verdict for one in seen):>7} "
        f"{max(one.sentences for one in seen):>4} {max(one.overlaps['count'] for one in seen):>4} "
        f"{len(handles):>3}  {', '.join(misses) or 'meets all'}"
    )


def _every(tests: Iterable[bool]) -> str:
    return "yes" if all(tests) else "no"


def main(names: list[str]) -> None:
    print(f"{'':<20}  high   span  ctl  text phone first verdict sent over hnd  misses")
    with chromium() as browser:
        for folder, makers in sorted(samples().items()):
            if not names or folder in names:
                seen = [measure(browser, make().html(), width) for make in makers for width in (DESK, PHONE)]
                print(show(folder, seen), flush=True)
                for one in seen if names else []:
                    print(f"    {one}")


if __name__ == "__main__":
    main(sys.argv[1:])
