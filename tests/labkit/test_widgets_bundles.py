"""The committed bundles of the widgets: made from the present sources, and equal to what esbuild makes again."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

from mlsys_labkit.widgets import base

WIDGETS = Path(base.__file__).parent
SOURCES = sorted(
    path.relative_to(WIDGETS).as_posix()
    for path in [*WIDGETS.glob("*/*.js"), *WIDGETS.glob("*/*.css")]
    if path.parent.name != "bundles"
)


def test_bundles_were_made_from_the_present_sources() -> None:
    digests = (WIDGETS / "bundles/sources.sha256").read_text().splitlines()
    bundled = {path: digest for digest, _, path in (line.partition("  ") for line in digests)}
    present = {path: hashlib.sha256((WIDGETS / path).read_bytes()).hexdigest() for path in SOURCES}
    assert bundled == present, "run npm run bundle and commit the result"


def test_every_widget_has_its_bundle_and_no_other_is_there() -> None:
    kinds = {Path(path).parent.name for path in SOURCES if path.endswith("/view.js")}
    shared = {"shared_style.css", "shared_parts.css", "shared_unpack.js", "shared_unpack_mount.js", "sources.sha256"}
    expected = {f"{kind}.{kind_of}" for kind in kinds for kind_of in ("js", "css")} | shared
    assert {path.name for path in (WIDGETS / "bundles").iterdir()} == expected


def test_esbuild_makes_the_same_bundles_again(root: Path) -> None:
    if shutil.which("node") is None or not (root / "node_modules/esbuild").is_dir():
        pytest.skip("needs node and the packages of package.json; run make lint-js")
    done = subprocess.run(["node", ".javascript/bundle.js", "--check"], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", [path for path in SOURCES if not path.startswith("bundles/")])
def test_no_source_line_is_over_120_characters(path: str) -> None:
    long = [number for number, line in enumerate((WIDGETS / path).read_text().splitlines(), 1) if len(line) > 120]
    assert long == []
