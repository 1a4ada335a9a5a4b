"""``labkit grade``, called as a command: from a course folder to marks, notebooks, feedback and plain lines."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
from nbgrader.api import Gradebook

from mlsys_grading.grade.headers import lent_headers
from mlsys_labkit._frontends.cli import main
from tests.grading.gradebook_helpers import LAB, SECRET, SOURCE as HALF_MARKS, answered, cell, graded, notebook, rows
from tests.grading.nbgrader_cli import NbgraderCourse

pytestmark = [
    pytest.mark.usefixtures("sandbox_allowed"),
    pytest.mark.xdist_group("grade"),
]

# A solution gets full marks: there the test's last value is half of its points, here all of them.
SOURCE = json.loads(json.dumps(HALF_MARKS).replace("(halve(2) == 1) / 2", "(halve(2) == 1) / 1"))
RIGHT = {"double": "def double(x):\n    return 2 * x", "halve": "def halve(x):\n    return x / 2"}
LABKIT = [sys.executable, "-c", "import sys; from mlsys_labkit._frontends.cli import main; sys.exit(main())"]
WAITS = RIGHT | {"double": "import time\ntime.sleep(600)\ndef double(x):\n    return 2 * x"}


def course(root: Path, source: Mapping[str, Any] | None = SOURCE) -> Path:
    (root / "submitted").mkdir(parents=True)
    if source:
        (root / "source" / LAB).mkdir(parents=True)
        (root / "source" / LAB / f"{LAB}.ipynb").write_text(json.dumps(source))
    return root


def hand_in(
    root: Path,
    student: str,
    answers: Mapping[str, str] | None = None,
    source: Mapping[str, Any] = SOURCE,
    data: bytes | None = None,
) -> None:
    folder = root / "submitted" / student / LAB
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{LAB}.ipynb").write_bytes(data or json.dumps(answered(answers, source)).encode())


def grade(root: Path, *options: str) -> int:
    return main(["grade", LAB, "--course", str(root), "--jobs", "1", *options])


def scores(root: Path) -> dict[str, float]:
    """Return the scores as nbgrader reads the gradebook; manual answers have no mark yet."""
    with Gradebook(f"sqlite:///{root / 'gradebook.db'}") as book:
        return {each.student.id: each.score for each in book.assignment_submissions(LAB)}


def test_a_class_is_graded_and_graded_again_only_where_it_has_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = course(tmp_path / "class")
    hand_in(root, "ada", RIGHT)
    hand_in(root, "bob", RIGHT | {"double": "def double(x):\n    return min(2 * x, 4)"})
    hand_in(root, "cyd", RIGHT | {"halve": "import os\ndef halve(x):\n    os._exit(0)"})
    hand_in(root, "dan", data=b'{"cells": [')
    (root / "submitted" / "eve" / LAB).mkdir(parents=True)
    (root / "submitted" / "fay" / LAB).mkdir(parents=True)
    (root / "submitted" / "fay" / LAB / f"{LAB}.ipynb").symlink_to(root / "submitted" / "ada" / LAB / f"{LAB}.ipynb")
    hand_in(root, "gus", RIGHT)
    (root / "submitted" / "gus" / LAB / "timestamp.txt").write_text("soon")

    assert grade(root) == 1, "some were set apart"
    said = capsys.readouterr().out
    assert scores(root) == {"ada": 9.0, "bob": 7.0, "cyd": 5.0}
    for line in (
        "dan: unreadable, no mark was written: no JSON",
        f"eve: unreadable, no mark was written: there is no {LAB}.ipynb; ask the student for it",
        f"fay: unreadable, no mark was written: {LAB}.ipynb cannot be opened",
        "gus: unreadable, no mark was written: timestamp.txt holds 'soon', which is no time",
        "3 graded, 4 unreadable",
        "lost: double_more",
    ):
        assert line.replace(f"{LAB}: ", "") in said or line in said, line
    assert json.loads((root / "autograded" / "bob" / LAB / f"{LAB}.ipynb").read_text())["nbformat"] == 4
    assert SECRET not in (root / "feedback" / "bob" / LAB / f"{LAB}.html").read_text(), "a hidden test's own words"

    for student in ("dan", "eve", "fay", "gus"):
        shutil.rmtree(root / "submitted" / student)
    places = (f".mlsys-grading/results/{LAB}", f".mlsys-grading/written/{LAB}", f"feedback/ada/{LAB}")
    scraps = [root / place / ".ada.json.4711.part" for place in places]
    for scrap in scraps:
        scrap.touch()  # as a killed run leaves them
    before = rows(root / "gradebook.db")
    assert grade(root) == 0
    assert f"{LAB}: 3 unchanged" in capsys.readouterr().out
    assert not any(scrap.exists() for scrap in scraps)
    assert rows(root / "gradebook.db") == before

    hand_in(root, "bob", RIGHT)
    (root / "feedback" / "ada" / LAB / f"{LAB}.html").unlink()
    shutil.rmtree(root / "autograded" / "cyd")
    assert grade(root) == 0
    said = capsys.readouterr().out
    assert "changed: 7 -> 9 (double_more 0 -> 2)" in said
    assert "1 graded" in said
    assert "2 written again" in said, "what is graded need not be graded to be written"
    assert (root / "feedback" / "ada" / LAB / f"{LAB}.html").is_file()
    assert scores(root) == {"ada": 9.0, "bob": 9.0, "cyd": 5.0}

    (root / "gradebook.db").unlink()
    assert grade(root, "--student", "ada", "cyd") == 0
    assert "2 written again" in capsys.readouterr().out
    assert scores(root) == {"ada": 9.0, "cyd": 5.0}, "a lost gradebook comes back from what was kept"

    assert grade(root, "--student", "ada", "--no-sandbox") == 0
    said = capsys.readouterr()
    assert "WARNING: --no-sandbox" in said.err
    assert "1 graded" in said.out, "marks from inside a sandbox say nothing of those from outside"
    again = json.loads((root / "autograded" / "ada" / LAB / f"{LAB}.ipynb").read_text())
    assert again["metadata"]["mlsys_grading"]["sandbox"] is False


def test_last_number_of_a_test_cell_is_its_marks(tmp_path: Path, nbgrader: NbgraderCourse) -> None:
    test = {
        "share": "assert share(1) is not None\nround(3 * share(1), 2)",
        "shown": "float(share(1))",
        "text": "'0'",
        "flag": "share(1) > 1",
        "none": "1\nNone",
        "list": "[0]",
        "quiet": "0;",
    }
    lab = notebook(
        cell("def share(x):\n    ### BEGIN SOLUTION\n    return 1\n    ### END SOLUTION", "share", solution=True),
        *(graded(f"{name}_test", source, 1 if name == "shown" else 3) for name, source in test.items()),
    )
    root = course(tmp_path / "class", lab)
    answers = {"ada": "return 1", "bob": "return 0.25", "cyd": "return 0", "dan": "raise ValueError", "eve": "return 2"}
    for student, answer in answers.items():
        hand_in(root, student, {"share": f"def share(x):\n    {answer}"}, lab)
    assert grade(root) == 0

    def marks(at: Path) -> dict[str, dict[str, float | None]]:
        return {
            student: {name: score for who, name, _, score, *_ in rows(at / "gradebook.db")["grades"] if who == student}
            for student in answers
        }

    ours = marks(root)
    assert ours["bob"]["share_test"] == 0.75
    assert ours["bob"]["shown_test"] == 0.25
    assert ours["cyd"]["share_test"] == 0
    assert ours["dan"]["share_test"] == 0
    assert (ours["eve"]["share_test"], ours["eve"]["shown_test"]) == (0, 0), "more than there is to give, where"
    shutil.copytree(root / "source", nbgrader.root / "source")
    for student in set(answers) - {"eve"}:  # nbgrader fails the whole submission there
        shutil.copytree(root / "submitted" / student, nbgrader.root / "submitted" / student)
    nbgrader.run("generate_assignment", LAB)
    nbgrader.run("autograde", LAB)
    theirs = marks(nbgrader.root)
    assert {student: theirs[student] for student in theirs if student != "eve"} == {
        student: ours[student] for student in ours if student != "eve"
    }


def test_a_lab_whose_solution_fails_is_refused_with_the_cell_and_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = json.loads(json.dumps(SOURCE).replace("assert double(2) == 4", "assert double(2) == 5, 'no five'"))
    root = course(tmp_path / "class", broken)
    hand_in(root, "ada", RIGHT)
    assert grade(root) == 2
    said = capsys.readouterr().err
    assert "its own solution gets 6 of 9 points: double_test: AssertionError: no five" in said
    assert not (root / "gradebook.db").exists() or scores(root) == {}


def called(root: Path, *names: str) -> None:
    """Give the lab's source the names that an existing course may have."""
    path = root / "source" / LAB / f"{LAB}.ipynb"
    for name in names:
        shutil.copy(path, path.with_stem(name))
    path.unlink()


@pytest.mark.parametrize(
    ("prepare", "options", "line"),
    [
        (lambda root: shutil.rmtree(root / "submitted"), [LAB], "is no nbgrader course folder"),
        (lambda root: None, ["lab07"], f"there is no lab 'lab07' in {{root}}; there are: {LAB}"),
        (lambda root: None, ["lab91", "--student", "zoe"], f"zoe has not handed in {LAB}"),
        (lambda root: shutil.rmtree(root / "source"), [LAB], f"say `labkit build {LAB}`"),
        (lambda root: shutil.rmtree(root / "source"), ["--all"], "say `labkit build` first"),
        (lambda root: called(root, "p1"), [LAB], f"grades one notebook, {LAB}.ipynb; rename it"),
        (lambda root: called(root, "p1", "p2"), ["--all"], "has p1.ipynb, p2.ipynb, and labkit grades one notebook"),
        (lambda root: (root / "source" / LAB / f"{LAB}.ipynb").write_text("{"), [LAB], "no JSON"),
        (lambda root: None, [LAB, "--engine", "slurm"], "--engine slurm: expected local, dask:ADDRESS"),
        (lambda root: None, [LAB, "--all"], "say which labs to grade"),
        (
            lambda root: (root / "nbgrader_config.py").write_text("1 / 0"),
            [LAB],
            "nbgrader_config.py: ZeroDivisionError",
        ),
        (lambda root: (root / "gradebook.db").write_text("not a database" * 99), [LAB], "gradebook.db"),
    ],
)
def test_grade_refuses_a_broken_course_in_one_line(
    prepare: Any, options: list[str], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = course(tmp_path / "class")
    hand_in(root, "ada", RIGHT)
    prepare(root)
    assert main(["grade", *options, "--course", str(root)]) == 2
    said = capsys.readouterr().err
    assert line.format(root=root) in said
    assert said.count("\n") == 1


def test_grade_refuses_without_a_sandbox(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlsys_grading.grade.verb.refusal", lambda: "namespaces are off")
    root = course(tmp_path / "class")
    hand_in(root, "ada", RIGHT)
    assert grade(root) == 2
    assert "this machine allows no sandbox: namespaces are off" in capsys.readouterr().err
    assert not (root / "gradebook.db").exists()


def running(root: Path, *students: str, jobs: int = 1) -> subprocess.Popen[str]:
    """Start a grader, and return it when it has graded ``students`` and is at work on another."""
    grader = subprocess.Popen(
        [*LABKIT, "grade", LAB, "--course", str(root), "--jobs", str(jobs)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONFAULTHANDLER": "1"},
    )
    until = time.monotonic() + 600
    while not all((root / ".mlsys-grading" / "written" / LAB / f"{each}.json").exists() for each in students):
        assert grader.poll() is None, grader.stdout and grader.stdout.read()
        assert time.monotonic() < until
        time.sleep(0.05)
    return grader


def output(grader: subprocess.Popen[str]) -> str:
    """Wait for the grader's end and return its output. If it hangs, fail with the stack of each of its threads."""
    try:
        return grader.communicate(timeout=600)[0]
    except subprocess.TimeoutExpired:
        grader.send_signal(signal.SIGABRT)
        return pytest.fail(f"the grader hangs:\n{grader.communicate(timeout=60)[0]}")


def gone(processes: list[psutil.Process]) -> bool:
    return not psutil.wait_procs(processes, timeout=240)[1]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_grader_that_is_cut_off_leaves_what_is_done_and_no_process(tmp_path: Path, how: signal.Signals) -> None:
    root = course(tmp_path / "class")
    hand_in(root, "ada", RIGHT)
    hand_in(root, "bob", WAITS)
    grader = running(root, "ada", jobs=2 if how is signal.SIGINT else 1)  # each job's server imports for four seconds
    below = psutil.Process(grader.pid).children(recursive=True)
    assert below
    os.killpg(grader.pid, how)  # as a terminal does it
    said = output(grader)
    assert gone(below)
    assert grader.returncode == (130 if how is signal.SIGINT else -signal.SIGKILL)
    assert "Traceback" not in said
    assert scores(root) == {"ada": 9.0}
    hand_in(root, "bob", RIGHT)
    assert grade(root) == 0
    assert scores(root) == {"ada": 9.0, "bob": 9.0}


def test_killed_fork_server_costs_no_marks(tmp_path: Path) -> None:
    root = course(tmp_path / "class")
    hand_in(root, "ada", RIGHT)
    hand_in(root, "bob", RIGHT | {"double": "import time\ntime.sleep(4)\ndef double(x):\n    return 2 * x"})
    grader = running(root, "ada", jobs=2)
    # The grader sees all of them dead at once: a job that it repeats must not go to a dead one.
    grader.send_signal(signal.SIGSTOP)
    for server in psutil.Process(grader.pid).children():
        server.kill()
        while server.is_running() and server.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)
    grader.send_signal(signal.SIGCONT)
    said = output(grader)
    assert grader.returncode == 0, said
    assert scores(root) == {"ada": 9.0, "bob": 9.0}


def test_second_grader_of_a_course_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = course(tmp_path / "class")
    hand_in(root, "ada", RIGHT)
    hand_in(root, "bob", WAITS)
    grader = running(root, "ada")
    try:
        assert grade(root) == 2
        assert "another labkit grade is at work" in capsys.readouterr().err
    finally:
        os.killpg(grader.pid, signal.SIGKILL)
        grader.communicate()


def test_a_submission_compiles_no_header_that_was_compiled_before(tmp_path: Path) -> None:
    where = """
from mlsys_labkit.cuda import cache
from mlsys_labkit.cuda.kernel.gcc import flags, headers, toolchain

def where():
    return str(headers.precompiled(flags.Build.FAST, toolchain.find_toolchain(), cache.Cache()))
"""
    lent = lent_headers(["mlsys_labkit.cuda"])
    if lent is None:
        compiler = shutil.which(os.environ.get("CXX", "g++"))
        pytest.skip("the user's cache is in a folder that no sandbox sees" if compiler else "no C++ compiler here")
    lab = notebook(
        cell(where, "where", solution=True),
        graded("where_test", f"assert where().startswith({str(lent)!r}), where()", 1),
    )
    root = course(tmp_path / "class", lab)
    hand_in(root, "ada", {"where": where + "# mine"}, lab)
    assert grade(root) == 0, "the lab's own solution has to find it, too"
    assert scores(root) == {"ada": 1.0}
