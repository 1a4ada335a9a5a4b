"""Tests of the labs that the Hub hands out: the same notebooks, but for their links to chapters."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from mlsys_grading.hub.lab_copies import copy_lab
from tests.hub.hub_process import ROOT

LABS = sorted(path.name for path in (ROOT / "labs").glob("lab*"))


@pytest.mark.parametrize("lab", LABS)
@pytest.mark.parametrize("chapters", ["", "https://ada.example.edu/text/"])
def test_a_copy_differs_in_links_to_chapters_alone(tmp_path: Path, lab: str, chapters: str) -> None:
    copy_lab(ROOT / "labs" / lab, tmp_path / lab, chapters)
    ours, copied = (nbformat.read(folder / lab / f"{lab}.ipynb", as_version=4) for folder in (ROOT / "labs", tmp_path))
    nbformat.validate(copied)
    changed = [(a, b) for a, b in zip(ours.cells, copied.cells, strict=True) if a != b]
    assert changed, "each lab names a chapter"
    for before, after in changed:
        assert before.cell_type == "markdown"
        assert before.source.count("](../../course/") > 0
        assert after.source.count("](../../course/") == 0
        assert after.source.count(f"]({chapters}") >= before.source.count("](../../course/") if chapters else True
        words = before.source.split("](../../course/")[0].rpartition("[")
        assert after.source.startswith(words[0]), "the text before the first link stays"
        assert words[2] in after.source


def test_a_file_that_is_no_notebook_is_copied_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab/broken.ipynb").write_bytes(b'{"cells": 7\xff')
    copy_lab(tmp_path / "lab", tmp_path / "copy", "")
    assert (tmp_path / "copy/broken.ipynb").read_bytes() == b'{"cells": 7\xff'
