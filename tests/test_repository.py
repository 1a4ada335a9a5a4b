"""Checks of the committed files: clean notebooks, no addresses of registries, sound workflow files."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest


def tracked(root: Path, *patterns: str) -> list[Path]:
    done = subprocess.run(["git", "ls-files", *patterns], cwd=root, capture_output=True, text=True, check=True)
    return [root / name for name in done.stdout.splitlines() if (root / name).exists()]


def test_notebooks_are_small_and_hold_no_outputs(root: Path) -> None:
    for path in tracked(root, "*.ipynb"):
        assert path.stat().st_size <= 200 * 1024, f"{path} is over 200 KiB"
        notebook = json.loads(path.read_text())
        assert "widgets" not in notebook["metadata"], f"{path} holds widget state"
        held = [cell["id"] for cell in notebook["cells"] if cell.get("outputs") or cell.get("execution_count")]
        assert not held, f"{path}: outputs in {held}"


def test_no_registry_or_machine_paths(root: Path) -> None:
    hosts = re.compile(r"(py" r"pi|files\.pythonhos" r"ted|registry\.npm" r"js)\.org|deb\.deb" r"ian")
    for path in tracked(root):
        if path.suffix in {".npz", ".png", ".safetensors", ".webp", ".woff2"}:
            continue
        found = hosts.search(path.read_text(errors="replace"))
        assert not found, f"{path} names a registry host: {found}"


def test_nothing_is_over_8_mb(root: Path) -> None:
    assert not [path for path in tracked(root) if path.stat().st_size > 8_000_000]


def test_constraints_are_names_and_versions(root: Path) -> None:
    for line in (root / "constraints.txt").read_text().splitlines():
        assert line.startswith("#") or re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9._]+", line), line


@pytest.mark.parametrize(
    "linter",
    [
        ["check-jsonschema", "--builtin-schema", "vendor.github-workflows"],
        ["zizmor", "--offline", "--no-progress", "--config", ".github/zizmor.yml"],
    ],
    ids=["schema", "security"],
)
def test_workflows_are_sound(root: Path, linter: list[str]) -> None:
    program = Path(sys.executable).parent / linter[0]
    workflows = [str(path) for path in tracked(root, ".github/workflows/*.yml")]
    assert workflows
    done = subprocess.run([program, *linter[1:], *workflows], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
