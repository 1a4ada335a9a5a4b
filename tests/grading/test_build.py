"""``labkit build``, called as a command: the files it writes and keeps, and failures to write."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from mlsys_grading import files
from mlsys_grading.build.lint import lint
from mlsys_grading.build.notebook import dumps, student_notebook
from mlsys_grading.lab import read_lab
from mlsys_labkit._frontends.cli import main
from tests.grading.course import FIXTURE, LAB, Course
from tests.grading.nbgrader_cli import NbgraderCourse

SECRETS = ("secret_copy", "secret_input", "secret_before", "self.counts[thing] =", "a fresh tally")


def build(course: Course, *arguments: str) -> int:
    return main(["build", "--root", str(course.root), *arguments])


def test_students_get_no_solution_no_hidden_test_and_no_output(course: Course) -> None:
    assert build(course) == 0
    text = course.student.read_text(encoding="utf-8")
    assert [secret for secret in SECRETS if secret in text] == []
    assert "BEGIN" not in text
    assert text.endswith("}\n")
    notebook = nbformat.reads(text, as_version=4)
    nbformat.validate(notebook)
    assert all(not cell.outputs and cell.execution_count is None for cell in notebook.cells if cell.cell_type == "code")
    assert notebook.metadata.kernelspec.name == "python3"
    assert "version" not in notebook.metadata.language_info  # it differs between machines
    assert set(notebook.metadata) == {"kernelspec", "language_info"}


def test_cells_keep_the_ids_their_author_gave(course: Course) -> None:
    build(course)
    ids = [cell.id for cell in nbformat.read(course.student, as_version=4).cells]
    expected = ["lab90-000", "lab90_imports", "lab90-002", "record", "lab90-004", "lab90-005", "scaled", "scaled_test"]
    assert ids == [*expected, "lab90-008", "scaled_test_empty", "Tally", "Tally_test", "lab90-012"]


def test_a_long_test_cell_is_folded(course: Course) -> None:
    """Lines of hidden tests do not count, because students do not get them. What the author says stays."""
    shown = [f"value = {number}\n" for number in range(6)]
    hidden = ["### BEGIN HIDDEN TESTS\n", *shown, "### END HIDDEN TESTS\n"]
    source = course.root / "solutions" / LAB / f"{LAB}.py"
    text = source.read_text(encoding="utf-8")
    head = '# %% nbgrader={"grade": true, "grade_id": "Tally_test", "locked": true, "points": 50,'
    assert head in text

    def metadata_with(lines: list[str], says: str = "") -> object:
        start = text.index(head)
        end_of_header = text.index("\n", start) + 1
        end = text.index("# %% [markdown]", start)
        header = text[start:end_of_header].replace("# %% nb", f"# %% {says}nb")
        source.write_text(text[:start] + header + "".join(lines) + "\n" + text[end:], encoding="utf-8")
        built = student_notebook(read_lab(course.root, LAB))
        return next(cell.metadata for cell in built.cells if cell.id == "Tally_test").get("jupyter")

    assert metadata_with(shown[:5]) == {"source_hidden": True}
    assert metadata_with(shown[:4]) is None
    assert metadata_with(shown[:4] + hidden) is None
    assert metadata_with(shown, 'jupyter={"source_hidden": false} ') == {"source_hidden": False}


def test_nbgraders_source_keeps_everything_and_data_travels(course: Course) -> None:
    build(course)
    text = course.nbgrader_source.read_text(encoding="utf-8")
    assert [secret for secret in SECRETS if secret not in text] == []
    for notebook in (course.student, course.nbgrader_source):
        assert (notebook.parent / "data" / "numbers.txt").read_text() == "1 2 3\n"
    names = {Path(name).name for name in course.files()}
    assert names == {f"{LAB}.ipynb", "numbers.txt"}  # wrong answers and sources are not copied


def test_two_builds_are_the_same_bytes(course: Course, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = Course(Path(shutil.copytree(FIXTURE, tmp_path / "elsewhere")))
    assert build(course) == build(other) == 0
    first = course.files()
    assert first == other.files()
    capsys.readouterr()
    before = course.student.stat().st_mtime_ns
    assert build(course) == 0
    assert "unchanged" in capsys.readouterr().out
    assert course.student.stat().st_mtime_ns == before


def test_the_student_notebook_is_what_nbgrader_would_release(course: Course, nbgrader: NbgraderCourse) -> None:
    build(course)
    released = nbgrader.generate(course.nbgrader_source.parent.parent, LAB)
    ours = nbformat.read(course.student, as_version=4)
    assert released.cells == ours.cells  # sources, ids, locks, points and checksums
    assert released.metadata.kernelspec == ours.metadata.kernelspec


def test_check_names_what_is_stale_and_writes_nothing(course: Course, capsys: pytest.CaptureFixture[str]) -> None:
    assert build(course, "--check") == 1
    assert f"labs/{LAB}/{LAB}.ipynb: stale" in capsys.readouterr().err
    assert course.files() == {}
    build(course)
    assert build(course, "--check") == 0
    course.edit(course.source, "Ten minutes", "Nine minutes")
    assert build(course, "--check") == 1
    assert build(course) == 0
    assert build(course, "--check") == 0


def test_check_finds_files_without_a_source(course: Course, capsys: pytest.CaptureFixture[str]) -> None:
    build(course)
    (course.root / "labs" / "lab91_gone").mkdir()
    (course.student.parent / "data" / "old.txt").write_text("left over")
    assert build(course, "--check") == 1
    said = capsys.readouterr().err
    assert "labs/lab91_gone: no lab makes it" in said
    assert f"labs/{LAB}/data/old.txt: no lab makes it" in said


@pytest.mark.parametrize("work", ["an answer", "an output"])
def test_a_notebook_that_somebody_worked_in_is_not_overwritten(course: Course, work: str) -> None:
    build(course)
    notebook = nbformat.read(course.student, as_version=4)
    cell = next(cell for cell in notebook.cells if cell.id == "scaled")
    if work == "an answer":
        cell.source = cell.source.replace("raise NotImplementedError()", "return factor * x")
    else:
        cell.execution_count = 3
    nbformat.write(notebook, course.student)
    mine = course.student.read_bytes()
    assert build(course) == 1
    assert course.student.read_bytes() == mine
    assert build(course, "--force") == 0
    assert course.student.read_bytes() != mine


def test_a_lab_with_findings_is_not_built_and_the_others_are(
    course: Course, capsys: pytest.CaptureFixture[str]
) -> None:
    other = course.root / "solutions" / "lab91_broken"
    shutil.copytree(course.source.parent, other)
    (other / f"{LAB}.py").rename(other / "lab91_broken.py")
    assert build(course) == 1
    said = capsys.readouterr()
    assert "lab91_broken.toml: coach: the file is missing" in said.err
    line = course.source.read_text().split("\n").index("def scaled(x, factor):") + 1
    assert f"the task 'scaled' stands at solutions/lab90_tiny/lab90_tiny.py:{line} too" in said.err
    assert course.student.is_file()
    assert not (course.root / "labs" / "lab91_broken").exists()
    assert build(course, "lab90") == 0


def test_labs_are_found_by_beginning_path_and_from_below(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(course.source.parent / "data")
    assert main(["build", "lab90"]) == 0
    assert main(["build", f"solutions/{LAB}/{LAB}.py", "--check"]) == 0


@pytest.mark.parametrize(
    ("wanted", "said"),
    [("lab77", "there is no lab 'lab77'; the labs are: lab90_tiny"), ("", "there is no lab ''")],
)
def test_an_unknown_lab_is_one_line_with_the_known_ones(
    course: Course, capsys: pytest.CaptureFixture[str], wanted: str, said: str
) -> None:
    assert build(course, wanted) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_an_ambiguous_beginning_is_refused(course: Course, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(course.source.parent, course.root / "solutions" / "lab90_twin")
    assert build(course, "lab90") == 2
    assert "could be lab90_tiny, lab90_twin" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda c: c.source.write_bytes(b"# %%\n\xff\xfe"), "not UTF-8 at byte"),
        (lambda c: c.source.write_bytes(b"# %%\nx = 1\n\0\n"), ".py:3: a NUL byte"),
        (lambda c: c.source.write_bytes(b""), "there is no cell"),
        (lambda c: c.source.unlink(), "is missing; a lab's source has the name of its folder"),
        (
            lambda c: c.edit(c.source, "# %% [markdown]\n# # Lab", "x = 1\n\n# %% [markdown]\n# # Lab"),
            "put nothing before",
        ),
        (lambda c: c.edit(c.wrong, '"keeps": 10}', '"keeps": "ten"}'), "which is no number"),
        (lambda c: c.edit(c.wrong, '"name": "shared", ', ""), "lacks name"),
        (
            lambda c: c.edit(c.wrong, 'wrong={"grade_id": "Tally", "name": "total"', 'wrong={"grade_id": '),
            "needs a header",
        ),
        (lambda c: c.edit(c.source, "#   kernelspec:", "#   kernelspec: ]["), "not a percent-format notebook"),
    ],
    ids=["bytes", "nul", "empty", "no file", "text first", "keeps", "no name", "bad json", "bad yaml"],
)
def test_a_corrupt_source_is_one_line(
    course: Course, capsys: pytest.CaptureFixture[str], damage: object, said: str
) -> None:
    damage(course)  # type: ignore[operator]
    assert build(course) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert course.files() == {}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT])
def test_failed_write_leaves_the_old_files(
    course: Course, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    build(course)
    before = course.files()
    course.edit(course.source, "Ten minutes", "Nine minutes")

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files.os, "replace", refuse)
    capsys.readouterr()
    assert build(course) == 2
    error = capsys.readouterr().err
    assert os.strerror(number) in error
    assert f"{LAB}.ipynb" in error
    assert error.count("\n") == 1
    assert course.files() == before


def test_a_file_cut_off_halfway_never_appears(course: Course) -> None:
    """A real short write: the kernel limits every file to 2 kB, as a full disk would."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from mlsys_labkit._frontends.cli import main; sys.exit(main())",
            "build",
            "--root",
            course.root,
        ],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000)),
    )
    assert done.returncode == 2
    assert "File too large" in done.stderr
    assert done.stderr.count("\n") == 1
    assert [name for name in course.files() if name.endswith((".ipynb", ".part"))] == []


def test_ctrl_c_while_writing_leaves_nothing(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(files.os, "replace", interrupt)
    assert build(course) == 130
    assert course.files() == {}


@pytest.mark.parametrize("verb", ["build", "prove", "run"])
def test_a_missing_library_names_the_extra(course: Course, verb: str) -> None:
    code = "import sys; sys.modules['jupytext'] = None; from mlsys_labkit._frontends.cli import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code, verb, "--root", course.root], capture_output=True, text=True)
    assert done.returncode == 2
    assert "pip install 'mlsys-labkit[grading]'" in done.stderr
    assert done.stderr.count("\n") == 1


def test_build_outside_a_checkout_names_the_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", "--root", str(tmp_path)]) == 2
    assert "name it with --root" in capsys.readouterr().err


# Random labs: bodies of statements that carry a secret, cut where they must be, planted elsewhere where they must not.

_word = st.text("abcdefghijklmnopqrstuvwxyz", min_size=3, max_size=8)
_statement = st.builds("{}_secret = {}({}, {})".format, _word, _word, _word, st.integers(100, 10**9))


def _course_with(root: Path, body: list[str], hidden: list[str], planted: tuple[str, str] | None) -> None:
    solution = "\n".join(f"    {line}" for line in body)
    test = "\n".join(hidden)
    text = (FIXTURE / "solutions" / LAB / f"{LAB}.py").read_text(encoding="utf-8")
    start, end = text.index("    secret_copy = "), text.index("    ### END SOLUTION")
    text = text[:start] + solution + "\n" + text[end:]
    start, end = text.index("rng = np.random"), text.index("### END HIDDEN TESTS")
    text = text[:start] + test + "\n" + text[end:]
    notes = (FIXTURE / "mlsys_labkit/coach/notes" / f"{LAB}.toml").read_text(encoding="utf-8")
    if planted:
        where, what = planted
        if where == "notes":
            notes = notes.replace("Allocate the result.", what.replace("\n", " "))
        elif where == "markdown":
            text = text.replace("# The end.", "\n".join(f"# {line}" for line in what.split("\n")))
        elif where == "code":
            text = text.replace("numbers = np.loadtxt", f"{what}\nnumbers = np.loadtxt")
        else:
            text = text.replace("### BEGIN HIDDEN TESTS\n", f"{what}\n### BEGIN HIDDEN TESTS\n", 1)
    (root / "solutions" / LAB / f"{LAB}.py").write_text(text, encoding="utf-8")
    (root / "mlsys_labkit/coach/notes" / f"{LAB}.toml").write_text(notes, encoding="utf-8")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    body=st.lists(_statement, min_size=2, max_size=6, unique=True),
    hidden=st.lists(_statement, min_size=1, max_size=4, unique=True),
    where=st.sampled_from([None, "notes", "markdown", "code", "visible test"]),
    spaced=st.booleans(),
)
def test_no_solution_and_no_hidden_test_is_ever_published(
    course: Course, body: list[str], hidden: list[str], where: str | None, spaced: bool
) -> None:
    leak = "\n".join(line.replace("(", " ( ").replace(",", " , ") if spaced else line for line in body)
    _course_with(course.root, body, hidden, (where, leak) if where else None)
    lab = read_lab(course.root, LAB)
    findings = [finding for finding in lint([lab])[LAB] if finding.rule == "leak"]
    if where:
        assert findings, f"the solution can be read in the {where}"
        return
    assert findings == []
    published = dumps(student_notebook(lab))
    json.loads(published)
    assert [line for line in (*body, *hidden) if json.dumps(line)[1:-1] in published] == []
