"""The students' repository: cloned, set up and opened as its README says, and corrected while a student works."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

from mlsys_grading.lab import lab_names, read_labs
from mlsys_grading.release.git import every_object
from mlsys_grading.release.hidden import hidden_lines
from mlsys_grading.release.search import search
from mlsys_labkit._base.released import mark_of, read_release
from mlsys_labkit._frontends.cli import main
from tests.conftest import ROOT
from tests.grading.course import LAB, Course
from tests.grading.release_tree import released

pytestmark = [pytest.mark.places, pytest.mark.xdist_group("release")]

NOTEBOOK = f"labs/{LAB}/{LAB}.ipynb"
IDENTITY = {
    **{f"GIT_{who}_NAME": "Ada" for who in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{who}_EMAIL": "ada@example.edu" for who in ("AUTHOR", "COMMITTER")},
    "GIT_CONFIG_GLOBAL": os.devnull,
}
UNSOLVED = {"NotImplementedError", "CudaUnsolvedError", "TritonUnsolvedError"}
EXECUTE = """
import sys, nbformat
from nbclient import NotebookClient
from pathlib import Path
path = Path(sys.argv[1])
notebook = nbformat.read(path, as_version=4)
for cell in notebook.cells:
    if "parameters" in cell.metadata.get("tags", ()):
        cell.source = cell.source.replace("smoke = False", "smoke = True")
NotebookClient(notebook, timeout=900, allow_errors=True, resources={"metadata": {"path": str(path.parent)}}).execute()
nbformat.write(notebook, path)
"""


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, **IDENTITY}).stdout


def environment(clone: Path) -> Path:
    """Make an environment in the clone as the README does, but offline: its libraries are this environment's.

    Returns its bin folder.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(clone / ".venv")], check=True)
    python = clone / ".venv" / "bin" / "python"
    site = Path(
        subprocess.check_output(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True
        ).strip()
    )
    (site / "parent.pth").write_text(
        sysconfig.get_path("purelib") + "\n"
    )  # this folder is searched, but .pth files in it are not read
    (line,) = [line.strip() for line in (clone / "README.md").read_text().splitlines() if "pip install -c" in line]
    arguments = re.sub("'", "", line.partition(".venv/bin/pip install ")[2]).split()
    command = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", *arguments]
    subprocess.run(command, cwd=clone, check=True)
    return python.parent


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = released(tmp_path_factory.mktemp("release") / "students")
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "Release")
    place = tmp_path_factory.mktemp("student") / "labs"
    git(folder, "clone", "--quiet", f"file://{folder}", str(place))
    return place


def test_a_clone_holds_no_hidden_line(clone: Path) -> None:
    files = [path for path in clone.rglob("*") if path.is_file()]
    hidden = hidden_lines(read_labs(ROOT))
    everything = [(str(path.relative_to(clone)), path.read_bytes()) for path in files]
    assert len(everything) > 500
    assert search([*everything, *every_object(clone)], hidden) == []
    names = [name for name, _ in everything if not name.startswith(".git/")]
    assert {name.partition("/")[0] for name in names} <= {
        ".devcontainer",
        ".gitignore",
        ".released",
        ".vscode",
        "CITATION.cff",
        "LICENSE",
        "LICENSE-text",
        "README.md",
        "binder",
        "constraints.txt",
        "labs",
        "mlsys_labkit",
        "pyproject.toml",
    }
    assert not [name for name in names if "hub" in name.split("/") or "mlsys_grading" in name]


def test_every_link_of_the_readme_leads_somewhere(clone: Path) -> None:
    links = re.findall(r"\]\(([^)]+)\)", (clone / "README.md").read_text())
    inside = [link for link in links if "://" not in link]
    assert len(inside) == len(lab_names(ROOT))
    assert [link for link in inside if not (clone / link).is_file()] == []
    outside = [link.partition("/blob/main/")[2] for link in links if "colab.research.google.com/github" in link]
    assert outside == inside


def test_every_lab_says_its_time_and_hardware(clone: Path) -> None:
    rows = [line for line in (clone / "README.md").read_text().splitlines() if line.startswith("| [")]
    assert all(
        re.fullmatch(r"\| \[\d\d · [^\]]+\]\([^)]+\) \| \d+ minutes \| [●○]{4} \| any [^|]+ \| \d\.\d GB \| .* \|", row)
        for row in rows
    )


def test_every_lab_finds_the_released_kit_on_colab(clone: Path) -> None:
    for name in lab_names(ROOT):
        text = (clone / "labs" / name / f"{name}.ipynb").read_text()
        assert text.count("install -q 'mlsys-labkit @ git+https://github.com/ada/labs@main'") == 1, name


def check_unsolved(folder: Path, programs: Path, lab: str) -> None:
    """Run an unsolved lab; only tests fail, and each says that its task is still to be written."""
    path = folder / "labs" / lab / f"{lab}.ipynb"
    done = subprocess.run([programs / "python", "-c", EXECUTE, path], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    cells = nbformat.read(path, as_version=4).cells
    failed = {cell.id: out.ename for cell in cells for out in cell.get("outputs", ()) if out.output_type == "error"}
    tests = {cell.id for cell in cells if cell.metadata.get("nbgrader", {}).get("grade")}
    assert failed.keys() <= tests
    assert set(failed.values()) <= UNSOLVED
    assert len(failed) > len(tests) / 2


@pytest.fixture(scope="module")
def programs(clone: Path) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONPATH", raising=False)  # PYTHONPATH would import another kit than the installed one
        yield environment(clone)


def test_the_kit_that_a_student_installs_is_the_released_one(clone: Path, programs: Path) -> None:
    code = "import mlsys_labkit; print(mlsys_labkit.__file__)"
    found = subprocess.check_output([programs / "python", "-c", code], text=True, cwd=clone.parent).strip()
    assert Path(found) == clone / "mlsys_labkit" / "__init__.py"


def test_doctor_passes_in_the_released_tree(clone: Path, programs: Path) -> None:
    done = subprocess.run([programs / "labkit", "doctor", "--json"], cwd=clone, capture_output=True, text=True)
    told = json.loads(done.stdout)
    assert [each for each in told["findings"] if each["status"] == "broken" and each["name"] != "memory"] == []
    (kernel,) = [each for each in told["findings"] if each["name"] == "kernel python3"]
    assert kernel["detail"] == str(programs / "python")


def test_released_lab_opens_unchanged(clone: Path, programs: Path) -> None:
    check_unsolved(clone, programs, "lab00_your_machine")


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("lab", lab_names(ROOT)[1:])
def test_every_released_lab_opens_unchanged(clone: Path, programs: Path, lab: str) -> None:
    check_unsolved(clone, programs, lab)


# A correction, while students are at work


@pytest.fixture
def upstream(course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a repository with a first release of the tiny lab."""
    for name, value in IDENTITY.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    (course.root / "grading").mkdir()
    (course.root / "grading" / "release.toml").write_text(
        '[release]\nrepository = "ada/labs"\nhub = "https://hub.example.edu"\n'
    )
    folder = tmp_path / "upstream"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    assert main(["release", str(folder), "--root", str(course.root), "--commit"]) == 0
    return folder


def work(folder: Path) -> None:
    """Solve a task, run the notebook and save it, as a student does."""
    notebook = nbformat.read(folder / NOTEBOOK, as_version=4)
    for number, cell in enumerate(cell for cell in notebook.cells if cell.cell_type == "code"):
        cell.execution_count = number + 1
        if cell.id == "scaled":
            cell.source = cell.source.replace("# YOUR CODE HERE\n    raise NotImplementedError()", "return my_own_idea")
        if "print" in cell.source:
            cell.outputs = [nbformat.v4.new_output("stream", text="[2. 4. 6.]\n")]
    assert "my_own_idea" in nbformat.writes(notebook)
    nbformat.write(notebook, folder / NOTEBOOK)


def correct(course: Course, upstream: Path) -> None:
    """Correct a text and a test, as the staff does, and release again."""
    course.edit(course.source, "# ## Scale", "# ## Scale, corrected")
    course.edit(course.source, "expect_equal(scaled([], 2).size, 0)", "expect_equal(scaled([], 3).size, 0)")
    assert main(["release", str(upstream), "--root", str(course.root), "--commit"]) == 0


def is_corrected(path: Path) -> bool:
    release, lab = read_release(path.parent.parent / "release.toml"), nbformat.read(path, as_version=4)
    return {cell.id: mark_of(cell) for cell in lab.cells} == release.labs[LAB]


def test_a_correction_reaches_a_student_with_git(course: Course, upstream: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    git(tmp_path, "clone", "--quiet", str(upstream), str(mine))
    work(mine)
    correct(course, upstream)
    with pytest.raises(subprocess.CalledProcessError) as refused:
        git(mine, "pull")
    assert "would be overwritten by merge" in refused.value.stderr
    readme = (mine / "README.md").read_text()
    steps = [line.strip() for line in readme.splitlines() if re.match(r" +(mv|git checkout) ", line)]
    assert len(steps) == 2
    script = "\n".join(steps).replace("lab00_your_machine", LAB)
    subprocess.run(["bash", "-e", "-c", script], cwd=mine, check=True, capture_output=True)
    assert is_corrected(mine / NOTEBOOK)
    assert "my_own_idea" in (mine / f"labs/{LAB}/mine.ipynb").read_text()


@pytest.mark.places
def test_a_correction_reaches_a_student_on_the_hub(course: Course, upstream: Path, tmp_path: Path) -> None:
    from nbgitpuller.pull import GitPuller  # comes with the Hub

    mine = tmp_path / "labs"

    def follow_the_badge() -> None:
        list(GitPuller(f"file://{upstream}", str(mine), branch="main").pull())

    follow_the_badge()
    work(mine)
    correct(course, upstream)
    follow_the_badge()
    kept = nbformat.read(mine / NOTEBOOK, as_version=4)  # valid JSON after git's merge by lines
    nbformat.validate(kept)
    assert "my_own_idea" in nbformat.writes(kept)
    assert "[2. 4. 6.]" in nbformat.writes(kept)
    newest = (upstream / "labs/release.toml").read_text()
    assert (mine / "labs/release.toml").read_text() == newest  # read by lk.progress() to list what is new
    (mine / NOTEBOOK).rename(mine / f"labs/{LAB}/mine.ipynb")
    follow_the_badge()
    assert is_corrected(mine / NOTEBOOK)
    assert "my_own_idea" in (mine / f"labs/{LAB}/mine.ipynb").read_text()
