"""What travels: the wheel and the sdist hold the package and nothing that gives an answer away."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("packaging")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Path:
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(root)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def contents(built: Path) -> dict[str, dict[str, bytes]]:
    (wheel,) = built.glob("*.whl")
    (sdist,) = built.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = {name: archive.read(name) for name in archive.namelist()}
    with tarfile.open(sdist) as archive:
        files = [member for member in archive.getmembers() if member.isfile()]
        in_sdist = {member.name.partition("/")[2]: archive.extractfile(member).read() for member in files}
    return {"wheel": in_wheel, "sdist": in_sdist}


def secret_lines(root: Path) -> set[str]:
    """Every line of every solution, wrong answer and hidden test that is long enough to be somebody's idea."""
    secrets: set[str] = set()
    for source in (root / "solutions").rglob("*.py"):
        hidden = source.name == "wrong_answers.py"
        for line in source.read_text().splitlines():
            if "### BEGIN " in line:
                hidden = True
            elif "### END " in line:
                hidden = False
            elif hidden and len(line.strip()) >= 30 and not line.lstrip().startswith(("#", "import ", "from ")):
                secrets.add(line.strip())
    return secrets


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_no_solution_or_grader_travels(built: Path, root: Path, kind: str) -> None:
    files = contents(built)[kind]
    assert any(name.endswith("mlsys_labkit/specs/hardware.toml") for name in files)
    assert any(name.endswith("mlsys_labkit/py.typed") for name in files)
    assert not [
        name for name in files if name.startswith(("solutions", "grading", "labs", "tests")) or "mlsys_grading" in name
    ]
    secrets = secret_lines(root)
    assert len(secrets) > 100, "the search would find nothing: the solutions were not read"
    for name, data in files.items():
        lines = {line.strip() for line in data.decode("utf-8", "replace").splitlines()}
        assert not lines & secrets, f"{name} holds lines of a solution or hidden test: {sorted(lines & secrets)[:3]}"


def test_everything_the_package_reads_is_in_the_wheel(built: Path, root: Path) -> None:
    tracked = subprocess.run(["git", "ls-files", "mlsys_labkit"], cwd=root, capture_output=True, text=True, check=True)
    assert set(tracked.stdout.split()) <= set(contents(built)["wheel"])


def test_the_graders_are_a_distribution_of_their_own(tmp_path: Path, root: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "build",
        "--no-isolation",
        "--wheel",
        "--outdir",
        str(tmp_path),
        str(root / "grading"),
    ]
    subprocess.run(command, capture_output=True, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert any(name.startswith("mlsys_grading/build/") for name in names)
    assert not any(name.startswith("mlsys_labkit/") for name in names)
