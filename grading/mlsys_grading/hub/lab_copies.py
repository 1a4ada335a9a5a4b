"""Copies of labs on the Hub: in the course, in its exchange and in people's homes, none of which has the chapters."""

from __future__ import annotations

import shutil
from pathlib import Path

from mlsys_grading.release.chapters import served_chapters


def copy_lab(lab: Path, target: Path, chapters: str) -> None:
    """Copy the folder of a lab to ``target``, with links to the chapters at the address ``chapters`` ("": none)."""

    def copy(source: str, to: str) -> str:
        shutil.copyfile(source, to)
        if to.endswith(".ipynb"):
            text = Path(to).read_text(encoding="utf-8", errors="surrogateescape")
            Path(to).write_text(served_chapters(text, chapters), encoding="utf-8", errors="surrogateescape")
        return to

    shutil.copytree(lab, target, ignore=shutil.ignore_patterns("__pycache__", ".*"), copy_function=copy)
