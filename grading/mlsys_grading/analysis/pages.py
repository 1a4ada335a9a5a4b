"""The class report, the similar answers and one explained task, as pages that need nothing but themselves."""

from __future__ import annotations

from pathlib import Path

from mlsys_grading.analysis.explain import TaskExplanation
from mlsys_grading.analysis.report import ClassReport
from mlsys_grading.analysis.similarity import Similarities
from mlsys_grading.page.markdown import to_html
from mlsys_grading.page.render import render

MOST_PAIRS = 30
_HERE = Path(__file__).parent
_HOW = {
    "same code": "It is this wrong answer, but for names, comments and layout.",
    "same results": "It has the results of this wrong answer in every test.",
    "same failures": "It fails the tests that this wrong answer fails, with other results.",
}


def report_page(report: ClassReport) -> str:
    """Render the class report as HTML, light and dark, each picture beside a table of the same numbers."""
    tallest = max((one.students for one in report.histogram), default=0) or 1
    return render(_HERE / "report.html.j2", report=report, tallest=tallest)


def similarity_page(found: Similarities) -> str:
    """Render all pairs that stand out, and the strongest others, with matching lines marked side by side."""
    most = max(MOST_PAIRS, len(found.standing_out))
    shown = sorted(found.pairs, key=lambda pair: (not pair.stands_out, -pair.strength))[:most]
    most_bits = max((match.bits for pair in shown for match in pair.cells[:1]), default=0) or 1
    return render(_HERE / "similarity.html.j2", report=found, shown=shown, most_bits=most_bits)


def explanation_page(told: TaskExplanation) -> str:
    """Render one explained task. It quotes hidden tests, and is for instructors."""
    return render(_HERE / "explain.html.j2", told=told, asked=to_html(told.asked), how=_HOW)
