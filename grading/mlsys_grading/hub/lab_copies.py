"""Copies of labs on the Hub: in the course, in its exchange and in people's homes, none of which has the chapters."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from pathlib import Path

from mlsys_grading.release.chapters import served_chapters


def copy_lab(lab: Path, target: Path, chapters: str) -> None:
    """Copy the folder of a lab to ``target``, with links to the chapters at the address ``chapters`` ("": none)."""

    def copy(source: str, to: str) -> str:
        shutil.copyfile(source, to)
        if to.endswith(".ipynb"):
            with suppress(ValueError, KeyError, TypeError):  # no notebook: it stays as it is
                _link_chapters(Path(to), chapters)
        return to

    shutil.copytree(lab, target, ignore=shutil.ignore_patterns("__pycache__", ".*"), copy_function=copy)


def _link_chapters(path: Path, chapters: str) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            cell["source"] = served_chapters("".join(cell["source"]), chapters).splitlines(keepends=True)
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
