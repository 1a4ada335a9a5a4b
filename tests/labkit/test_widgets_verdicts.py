"""Verdicts of all widgets, in all chapters and labs and in the samples, against oracles other than their own models.

The states of the chapters and labs cost 30 CPU seconds, because their cells run kernels and engines; the walk through
3,500 states in Chromium costs 20.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.labkit import every_widget, shown_widgets, widget_verdicts
from tests.labkit.shown_widgets import DOCUMENTS, Shown

pytestmark = pytest.mark.browser
CALL = re.compile(r"\blk\.(?:widgets\.(?!answer\b)\w+|predict)\(")
# A mistake in a bundle, which the comparison has to find: (kind, text, its replacement).
MISTAKES = [
    ("roofline", '"memory":"compute"', '"compute":"memory"'),
    ("roofline", "ridge ${", "peak ${"),
    ("warp_access", "-way bank conflict: ", "-way conflict, coalesced: "),
    ("memory_bars", '"parameters","gradients"', '"gradients","parameters"'),
    ("strides", "Not contiguous", "Contiguous"),
]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> list[Shown]:
    """Return what the documents show; a process of its own runs their cells."""
    out = tmp_path_factory.mktemp("shown") / "shown.json"
    done = subprocess.run(
        [sys.executable, "-m", "tests.labkit.shown_widgets", str(out)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [Shown(**one) for one in json.loads(out.read_text("utf-8"))]


@pytest.fixture(scope="module")
def page(browser: Any) -> Iterator[Any]:
    page = browser.new_page()
    page.set_content(widget_verdicts.PAGE)
    yield page
    page.close()


def states(folder: str, shown: list[Shown]) -> list[dict[str, Any]]:
    """Return the different states in which the samples and the documents show a kind."""
    samples = map(every_widget.shown_by, every_widget.every().values())
    found = [dict(state) for kind, state in samples if kind.folder == folder]
    found += [dict(one.state) for one in shown if one.folder == folder]
    return list({json.dumps(state, sort_keys=True): state for state in found}.values())


def test_every_call_in_a_chapter_or_lab_shows_its_widget(shown: list[Shown]) -> None:
    for path in DOCUMENTS:
        places = {one.place for one in shown if one.document == str(path.relative_to(ROOT))}
        assert set(shown_widgets.calls(path)) <= places, path


def test_no_call_is_missed_in_the_sources() -> None:
    """Text search counts as many calls as the syntax trees have; students' notebooks have none beyond the solutions."""
    for path in DOCUMENTS:
        lines = [line for line in path.read_text("utf-8").splitlines() if not line.startswith("#")]
        found = sum(len(CALL.findall(re.sub(r'"[^"]*"', '""', line))) for line in lines)
        assert len(shown_widgets.calls(path)) == found, path
    for path in sorted((ROOT / "labs").glob("*/*.ipynb")):
        source = ROOT / "solutions" / path.parent.name / f"{path.stem}.py"
        cells = json.loads(path.read_text("utf-8"))["cells"]
        text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
        assert not Counter(CALL.findall(text)) - Counter(CALL.findall(source.read_text("utf-8"))), path


def test_every_kind_has_an_oracle_or_a_reason() -> None:
    known = widget_verdicts.oracles().keys()
    assert known | widget_verdicts.NO_CLAIM.keys() == every_widget.folders()
    assert not known & widget_verdicts.NO_CLAIM.keys()


@pytest.mark.parametrize("folder", sorted(every_widget.folders() - widget_verdicts.NO_CLAIM.keys()))
def test_verdicts_agree_with_the_oracle(page: Any, shown: list[Shown], folder: str) -> None:
    seen = widget_verdicts.walk(page, folder, states(folder, shown))
    assert widget_verdicts.misses(folder, seen) == []


@pytest.mark.parametrize(("folder", "text", "wrong"), MISTAKES)
def test_a_mistake_in_a_view_is_found(page: Any, folder: str, text: str, wrong: str) -> None:
    assert text in every_widget.by_folder()[folder][0].esm
    seen = widget_verdicts.walk(page, folder, states(folder, [])[:1], (text, wrong))
    assert widget_verdicts.misses(folder, seen) != []
