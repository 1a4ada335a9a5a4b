"""The class report and the similar answers as pages that need nothing but themselves."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mlsys_grading.analysis.report import ClassReport
from mlsys_grading.analysis.similarity import Similarities
from mlsys_grading.gradebook.feedback import render

MOST_PAIRS = 30
_HERE = Path(__file__).parent
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


def report_page(report: ClassReport) -> str:
    """Render the class report as HTML, light and dark, each picture beside a table of the same numbers."""
    tallest = max((one.students for one in report.histogram), default=0) or 1
    return _render("report.html.j2", report=report, tallest=tallest)


def similarity_page(found: Similarities) -> str:
    """Render all pairs that stand out, and the strongest others, with matching lines marked side by side."""
    most = max(MOST_PAIRS, len(found.standing_out))
    shown = sorted(found.pairs, key=lambda pair: (not pair.stands_out, -pair.strength))[:most]
    return _render("similarity.html.j2", report=found, shown=shown)


def _render(template: str, **values: Any) -> str:
    page = render(_HERE / template, _HERE / "page.css", **values)
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", page)
