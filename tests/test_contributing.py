"""CONTRIBUTING.md and the READMEs name files that exist."""

from __future__ import annotations

import re

import pytest

from tests.conftest import ROOT

FOLDERS = ("", "grading/mlsys_grading/", "mlsys_labkit/cuda/", "mlsys_labkit/", "grading/mlsys_grading/gradebook/")
PATH = re.compile(r"`((?:[\w.-]+/)*[\w.-]+(?:/|\.(?:py|toml|md|js|css|yaml)))`")
EXAMPLES = {"view.js", "model.js", "style.css", "command.py"}


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "README.md", "benchmarks/README.md"])
def test_named_files_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    named = {path for path in PATH.findall(text) if "labNN" not in path and "NAME" not in path} - EXAMPLES
    assert len(named) > 5, "the pattern finds paths"
    wanted = sorted(path for path in named if not path.startswith("build/"))  # build/ is what the commands write
    missing = [path for path in wanted if not any((ROOT / folder / path).exists() for folder in FOLDERS)]
    assert missing == []
