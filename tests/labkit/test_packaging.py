"""Wheel and sdist, of the checkout and of the students' tree: they hold the kit and no solutions."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from mlsys_grading.lab import read_labs
from mlsys_grading.release.hidden import hidden_lines
from mlsys_grading.release.search import search
from tests.grading.release_tree import released

pytestmark = [pytest.mark.places, pytest.mark.xdist_group("packaging")]


def build(source: Path, out: Path, *arguments: str) -> Path:
    """Make distributions as a maintainer does."""
    command = [sys.executable, "-m", "build", "--no-isolation", *arguments, "--outdir", str(out), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.fixture(scope="module", params=["checkout", "students"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, root: Path) -> Path:
    source = root if request.param == "checkout" else released(tmp_path_factory.mktemp("students"))
    return build(source, tmp_path_factory.mktemp("dist"))


def contents(built: Path) -> dict[str, dict[str, bytes]]:
    (wheel,) = built.glob("*.whl")
    (sdist,) = built.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = {name: archive.read(name) for name in archive.namelist()}
    with tarfile.open(sdist) as archive:
        files = [member for member in archive.getmembers() if member.isfile()]
        in_sdist = {member.name.partition("/")[2]: archive.extractfile(member).read() for member in files}
    return {"wheel": in_wheel, "sdist": in_sdist}


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_archives_hold_the_kit_and_no_grader(built: Path, kind: str) -> None:
    files = contents(built)[kind]
    assert any(name.endswith("mlsys_labkit/specs/hardware.toml") for name in files)
    assert any(name.endswith("mlsys_labkit/py.typed") for name in files)
    assert not [
        name for name in files if name.startswith(("solutions", "grading", "labs", "tests")) or "mlsys_grading" in name
    ]


def test_archives_hold_no_hidden_line(built: Path, root: Path) -> None:
    """The search unpacks the archives that users download."""
    hidden = hidden_lines(read_labs(root))
    assert len(hidden) > 2000, "the search would find nothing: the solutions were not read"
    assert search(((path.name, path.read_bytes()) for path in built.iterdir()), hidden) == []


def test_everything_the_package_reads_is_in_the_wheel(built: Path, root: Path) -> None:
    tracked = subprocess.run(["git", "ls-files", "mlsys_labkit"], cwd=root, capture_output=True, text=True, check=True)
    assert {name for name in tracked.stdout.split() if (root / name).exists()} <= set(contents(built)["wheel"])
    server = "data/etc/jupyter/jupyter_server_config.d/mlsys_labkit.json"  # switches mlsys_labkit._frontends.saving on
    cells = "data/share/jupyter/labextensions/mlsys-labkit/static/cells.js"  # colours %%cuda cells
    for shared in (server, cells):
        assert any(name.endswith(shared) for name in contents(built)["wheel"]), shared


def test_the_graders_are_a_distribution_of_their_own(tmp_path: Path, root: Path) -> None:
    (wheel,) = build(root / "grading", tmp_path, "--wheel").glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert any(name.startswith("mlsys_grading/build/") for name in names)
    assert not any(name.startswith("mlsys_labkit/") for name in names)
