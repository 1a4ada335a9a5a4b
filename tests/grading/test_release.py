"""``labkit release``, called as a command: the students' files, badges, and the list of cells."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import nbformat
import pytest

from mlsys_grading.lab import read_lab
from mlsys_labkit import __version__
from mlsys_labkit._base.released import mark_of, read_release
from mlsys_labkit._frontends.cli import main
from mlsys_labkit.errors import LabkitError
from tests.grading.course import LAB, Course
from tests.grading.nbgrader_cli import NbgraderCourse
from tests.grading.release_helpers import NOTEBOOK, SECRETS, files, notebook, release, set_memory, set_up

pytestmark = pytest.mark.usefixtures("settled_git")


def test_students_get_labs_and_kit_and_nothing_hidden(
    course: Course, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("LICENSE", "binder/start", ".devcontainer/devcontainer.json", "mlsys_labkit/__init__.py"):
        (course.root / name).parent.mkdir(parents=True, exist_ok=True)
        (course.root / name).write_text("theirs")
    for name in ("binder/README.md", "binder/lab_memory.toml", "binder/hub/hub.toml", "tests/test_a.py", "course/a.md"):
        (course.root / name).parent.mkdir(parents=True, exist_ok=True)
        (course.root / name).write_text("# ours")
    (course.root / "binder/start").chmod(0o755)
    assert release(course, out) == 0
    assert (
        f"1 labs, kit {__version__}: 12 files written, 0 removed; 11 files searched for 12 hidden lines"
        in capsys.readouterr().out
    )
    got = files(out)
    assert set(got) == {
        ".released",
        ".gitignore",
        "README.md",
        "LICENSE",
        "pyproject.toml",
        "labs/release.toml",
        NOTEBOOK,
        f"labs/{LAB}/data/numbers.txt",
        "binder/start",
        ".devcontainer/devcontainer.json",
        "mlsys_labkit/__init__.py",
        f"mlsys_labkit/coach/notes/{LAB}.toml",
    }
    everything = b"".join(got.values()).decode()
    assert [secret for secret in SECRETS if secret in everything] == []
    assert os.access(out / "binder/start", os.X_OK)
    assert not os.access(out / "LICENSE", os.X_OK)
    assert (out / f"labs/{LAB}/data/numbers.txt").read_text() == "1 2 3\n"


def test_manifest_is_readable_by_sha256sum(course: Course, out: Path) -> None:
    release(course, out)
    done = subprocess.run(["sha256sum", "--check", "--strict", ".released"], cwd=out, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) == len(files(out)) - 1


def test_the_same_checkout_makes_the_same_bytes(course: Course, out: Path, tmp_path: Path) -> None:
    set_up(course, repository="ada/labs", hub="https://hub.example.edu")
    release(course, out)
    code = "import sys; from mlsys_labkit._frontends.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "release", str(tmp_path / "again"), "--root", str(course.root)]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo", "LANG": "C"})
    assert files(out) == files(tmp_path / "again")


def test_a_released_notebook_is_graded_by_nbgrader(course: Course, out: Path, nbgrader: NbgraderCourse) -> None:
    set_up(course, repository="ada/labs")
    release(course, out)
    main(["build", "--root", str(course.root)])
    nbgrader.generate(course.root / "build" / "source", LAB)
    nbgrader.submit("unsolved", LAB, notebook(out))
    mine = notebook(out)
    solutions = {cell.grade_id: cell.source for cell in read_lab(course.root, LAB).cells if cell.is_solution}
    for cell in mine.cells:
        cell.source = solutions.get(cell.metadata.get("nbgrader", {}).get("grade_id"), cell.source)
    nbgrader.submit("solved", LAB, mine)
    marks = nbgrader.scores(LAB)
    assert {name: sum(each.values()) for name, each in marks.items()} == {"solved": 100.0, "unsolved": 0.0}


def test_release_recognises_its_cells(course: Course, out: Path) -> None:
    """A copy from here, one with an answer, one from labs/, and one with badges, each compared with the list."""
    release(course, out)
    known = read_release(out / "labs/release.toml")
    assert known.date.isoformat() == "2023-11-14T22:13:20+00:00"
    marks = {cell.id: mark_of(cell) for cell in notebook(out).cells}
    assert known.labs == {LAB: marks}
    assert list(known.labs[LAB]) == list(marks)
    main(["build", "--root", str(course.root)])
    assert {cell.id: mark_of(cell) for cell in nbformat.read(course.student, as_version=4).cells} == marks
    answered = notebook(out)
    for cell in answered.cells:
        cell.source += "\n# mine"
    assert {cell.id: mark_of(cell) for cell in answered.cells} == marks
    set_up(course, repository="ada/labs")
    release(course, out)
    assert "badge" in notebook(out).cells[0].source
    assert read_release(out / "labs/release.toml").labs == {LAB: marks}
    course.edit(course.source, "# ## Scale", "# ## Scale, corrected")
    course.edit(course.source, "expect_equal(scaled([], 2).size, 0)", "expect_equal(scaled([], 3).size, 0)")
    release(course, out)
    new = read_release(out / "labs/release.toml").labs[LAB]
    assert [name for name in new if new[name] != marks[name]] == ["lab90-005", "scaled_test_empty"]


@pytest.mark.parametrize(
    ("settings", "read"),
    [
        ({}, "See Chapter 7, *Tiling* and the roofs."),
        (
            {"chapters": "https://ada.example.edu/course/chapters/"},
            "See [Chapter 7, *Tiling*](https://ada.example.edu/course/chapters/07_tiling.html) and "
            "[the roofs](https://ada.example.edu/course/chapters/05_roofline.html#the-ridge).",
        ),
    ],
)
def test_a_chapter_is_linked_where_it_is_served(course: Course, out: Path, settings: dict[str, str], read: str) -> None:
    chapters = "../../course/chapters"
    text = f"See [Chapter 7, *Tiling*]({chapters}/07_tiling.md) and [the roofs]({chapters}/05_roofline.md#the-ridge)."
    course.edit(course.source, "# Ten minutes, easy, any machine.", f"# {text}")
    set_up(course, **settings)
    release(course, out)
    assert notebook(out).cells[0].source.splitlines()[-1] == read


# Badges


def links(text: str) -> dict[str, str]:
    parts = text.replace("[![", "\n[![").splitlines()
    return {
        part.partition("Open in ")[2].partition("]")[0]: part.partition(")](")[2].partition(")")[0]
        for part in parts
        if part.startswith("[![")
    }


def test_badges_lead_to_the_lab(course: Course, out: Path) -> None:
    set_up(
        course, repository="ada/ml.labs", branch="fall/26", hub="https://hub.example.edu/", questions="a@example.edu"
    )
    set_memory(course, 830)
    release(course, out)
    head = notebook(out).cells[0].source
    assert head.startswith("# Lab 90 · A tiny lab for tests\n\n[![Open in Hub]")
    found = links(head)
    assert list(found) == ["Hub", "Binder", "Colab"]
    hub = urlsplit(found["Hub"])
    assert (hub.scheme, hub.netloc, hub.path) == ("https", "hub.example.edu", "/hub/user-redirect/git-pull")
    assert parse_qs(hub.query) == {
        "repo": ["https://github.com/ada/ml.labs"], "branch": ["fall/26"], "urlpath": [f"lab/tree/ml.labs/{NOTEBOOK}"]
    }  # fmt: skip
    binder = urlsplit(found["Binder"])
    assert binder.netloc + binder.path == "mybinder.org/v2/gh/ada/ml.labs/fall%2F26"
    assert parse_qs(binder.query) == {"urlpath": [f"lab/tree/{NOTEBOOK}"]}
    assert unquote(found["Colab"]) == f"https://colab.research.google.com/github/ada/ml.labs/blob/fall/26/{NOTEBOOK}"
    readme = (out / "README.md").read_text()
    (row,) = [line for line in readme.splitlines() if line.startswith("| [90 ")]
    assert links(row) == found
    assert "| 0.9 GB | [![" in row
    assert links(readme)["Codespaces"] == "https://codespaces.new/ada/ml.labs/tree/fall/26?quickstart=1"
    assert "Ask here: a@example.edu." in readme


@pytest.mark.parametrize("mebibytes", [None, 2049])
def test_unmeasured_or_too_large_lab_has_no_binder_badge(course: Course, out: Path, mebibytes: int | None) -> None:
    set_up(course, repository="ada/labs")
    set_memory(course, mebibytes)
    release(course, out)
    assert list(links(notebook(out).cells[0].source)) == ["Colab"]


def test_an_unknown_place_has_no_badge(course: Course, out: Path) -> None:
    release(course, out)
    text = (out / "README.md").read_text() + (out / NOTEBOOK).read_text()
    assert "[![" not in text
    assert "github" not in text
    assert "on the Hub" not in text.lower()


def test_colab_installs_the_released_kit(course: Course, out: Path) -> None:
    install = 'get_ipython().run_line_magic("pip", "install -q mlsys-labkit")'
    course.edit(
        course.source, '# %% tags=["parameters"]', f'# %% tags=["install"]\n{install}\n\n# %% tags=["parameters"]'
    )
    release(course, out)
    assert install in [cell.source for cell in notebook(out).cells]
    set_up(course, repository="ada/labs", branch="fall")
    release(course, out)
    (cell,) = [cell for cell in notebook(out).cells if "install" in cell.metadata.get("tags", ())]
    wanted = "install -q 'mlsys-labkit @ git+https://github.com/ada/labs@fall'"
    assert cell.source == f'get_ipython().run_line_magic("pip", "{wanted}")'


def test_release_of_some_labs(course: Course, out: Path) -> None:
    other = course.root / "solutions" / "lab91_later"
    shutil.copytree(course.source.parent, other)
    (other / f"{LAB}.py").rename(other / "lab91_later.py")
    for name in ("scaled", "Tally"):  # task names are unique over all labs
        for path in other.glob("*.py"):
            path.write_text(path.read_text().replace(name, f"{name}_later"))
    notes = course.notes.read_text().replace("[scaled]", "[scaled_later]").replace("[Tally]", "[Tally_later]")
    course.notes.with_name("lab91_later.toml").write_text(notes)
    set_up(course, labs=["lab90"])
    assert release(course, out) == 0
    assert [path.name for path in sorted((out / "labs").iterdir())] == [LAB, "release.toml"]
    set_up(course, labs=[])
    assert release(course, out) == 0
    assert list(read_release(out / "labs/release.toml").labs) == [LAB, "lab91_later"]
    set_up(course, labs=["lab91"])
    assert release(course, out) == 0
    assert [path.name for path in sorted((out / "labs").iterdir())] == ["lab91_later", "release.toml"]


# The kit's side of the list


HEAD = "version = '1'\ndate = 2026-01-01T00:00:00"


@pytest.mark.parametrize(
    "text", ["", "[", "version = 1", HEAD, HEAD + "Z\nlab00_a = 'x'", HEAD + "Z\n[lab00_a]\ncell = 7"]
)
def test_invalid_list_of_cells_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "release.toml").write_text(text)
    with pytest.raises(LabkitError, match=r"release\.toml: .*get a fresh one"):
        read_release(tmp_path / "release.toml")
    with pytest.raises(LabkitError, match="No such file"):
        read_release(tmp_path / "none.toml")
