"""The verbs of the hand-over through the ``labkit`` command, on a course folder as grading leaves it."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mlsys_grading.build.notebook import source_notebook
from mlsys_grading.examine.notebook import read_cells
from mlsys_grading.grade.ledger import Ledger
from mlsys_grading.grade.store import Store
from mlsys_grading.gradebook.gradebook import Gradebook
from mlsys_grading.gradebook.registered import register
from mlsys_grading.lab import Lab, read_lab
from mlsys_labkit._frontends.cli import main
from mlsys_labkit.errors import LabkitError
from tests.grading.course import FIXTURE, LAB
from tests.grading.test_analysis_report import RIGHT, SIGN_LOST, TALLY, cells, result

MOODLE = "First name,Last name,Email address,Lab (Real),Lab (Feedback)\nAda,L,ada@uni.example,-,\nBob,M,bob,7,\n"
CANVAS = (
    f"Student,ID,SIS User ID,SIS Login ID,Section,{LAB} (91)\n    Points Possible,,,,,100\nLovelace,7,,ada,M,\n"
    "Bob,8,,bob,M,40\n"
)


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Grade three students: Ada is right, Bob lost a sign and has 5 points of 40 by hand, Cy's file is unreadable."""
    root, lab = tmp_path_factory.mktemp("graded"), read_lab(FIXTURE, LAB)
    source = root / "source" / LAB / f"{LAB}.ipynb"
    source.parent.mkdir(parents=True)
    source.write_text(json.dumps(source_notebook(lab)), "utf-8")
    submit(root, "ada", lab, scaled=RIGHT, Tally=TALLY)
    submit(root, "bob", lab, scaled=SIGN_LOST, Tally=TALLY)
    submit(root, "cy", lab).write_text("{", "utf-8")
    registered = register(LAB, json.loads(source.read_text("utf-8")))
    with Gradebook(root / "gradebook.db") as book:
        ledger = Ledger.open(root, registered, book)
        for each in (result("ada"), result("bob", scaled="AssertionError")):
            ledger.write(each, read_cells(root / "submitted" / each.student / LAB / f"{LAB}.ipynb"), "")
    by_hand(root, "bob", "scaled_test", 5.0)
    return root


@pytest.fixture
def course(graded: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(graded, tmp_path / "course"))


def submit(course: Path, student: str, lab: Lab, **answers: str) -> Path:
    path = course / "submitted" / student / LAB / f"{LAB}.ipynb"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"cells": cells(lab, **answers)}), "utf-8")
    return path


def by_hand(course: Path, student: str, cell: str, points: float) -> None:
    """Set a manual mark as formgrader does."""
    import nbgrader.api

    with nbgrader.api.Gradebook(f"sqlite:///{course / 'gradebook.db'}") as book:
        book.find_grade(cell, LAB, LAB, student).manual_score = points
        book.db.commit()


def labkit(course: Path, *words: object) -> int:
    return main([*map(str, words), "--course", str(course)])


def rows(path: Path) -> list[list[str]]:
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def files(course: Path) -> dict[str, bytes]:
    found = (path for path in course.rglob("*") if path.is_file() and "gradebook" not in path.name)
    return {str(path.relative_to(course)): path.read_bytes() for path in found}


def test_explain(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert labkit(course, "explain", "bob", "scaled_test", "--root", FIXTURE, "--code-only") == 0
    said = capsys.readouterr().out
    assert said.endswith("It is the wrong answer sign_lost: a factor is never negative\n")
    assert "scaled_test: failed, 0 of 40" in said
    assert "    in the gradebook it counts 5, by a person\n" in said
    page = course / "explained" / "bob.html"
    assert labkit(course, "explain", "bob", "scaled", "--root", FIXTURE, "--code-only", "--page", page) == 0
    assert capsys.readouterr().out == said
    assert '<strong class="sentence">a factor is never negative</strong>' in page.read_text(encoding="utf-8")
    assert "this page quotes hidden tests" in page.read_text(encoding="utf-8")
    assert labkit(course, "explain", "ada", "Tally", "--lab", "lab90") == 0, "what is right needs no wrong answers"
    assert "Tally_test: passed, 50 of 50" in capsys.readouterr().out


def test_report(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert labkit(course, "report", "lab90", "--root", FIXTURE, "--code-only") == 0
    said = capsys.readouterr().out
    assert "2 students" in said
    assert "no mark yet: cy" in said
    out = course / "report" / LAB
    told = json.loads((out / "report.json").read_text("utf-8"))
    assert (told["students"], told["ungraded"], told["mean"]) == (2, 1, 80.0)
    assert [one["name"] for one in told["common"]] == ["sign_lost"]
    assert (out / "index.html").read_text("utf-8").startswith("<!doctype html>")
    stamp = (out / "index.html").stat().st_mtime_ns
    assert labkit(course, "report", LAB, "--root", FIXTURE, "--code-only") == 0
    assert (out / "index.html").stat().st_mtime_ns == stamp


def test_a_report_without_a_checkout_says_that_it_compares_with_nothing(
    course: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(course)
    assert labkit(course, "report", LAB) == 0
    assert "no wrong answers to compare with; name the checkout" in capsys.readouterr().err


def test_a_lab_that_cannot_be_graded_here_has_a_report_all_the_same(
    course: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise LabkitError("no compiler")

    monkeypatch.setattr("mlsys_grading.analysis.verbs.learn", refuse)
    assert labkit(course, "report", LAB, "--root", FIXTURE) == 0
    assert "labkit: wrong answers are compared by their code alone: no compiler\n" in capsys.readouterr().err
    assert "sign_lost" in (course / "report" / LAB / "index.html").read_text("utf-8")


def test_similarity(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(course / "submitted" / "bob", course / "submitted" / "=bob")
    kept = course / ".mlsys-grading" / "results" / LAB
    (kept / "=bob.json").write_text((kept / "bob.json").read_text("utf-8").replace('"bob"', '"=bob"'), "utf-8")
    assert labkit(course, "similarity", LAB, "--bits", "1") == 0
    assert "1 pair of 3 students to look at" in capsys.readouterr().out
    table = rows(course / "report" / LAB / "similarity.csv")
    assert table[0][:3] == ["student a", "student b", "stands out"]
    assert ["'=bob", "bob", "yes", "scaled", "scaled"] in [row[:5] for row in table]
    page = (course / "report" / LAB / "similarity.html").read_text("utf-8")
    assert "A reason to talk, not a verdict" in page
    assert labkit(course, "similarity", LAB) == 0
    assert "0 pairs of 3" in capsys.readouterr().out, "so short an answer proves nothing"


def test_export_csv_holds_the_marks_that_count(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert labkit(course, "export", "csv", LAB) == 0
    said = capsys.readouterr().out
    out = course / "grades" / f"{LAB}.csv"
    assert rows(out) == [
        ["student", "score", "max score", "late penalty", "scaled (50)", "Tally (50)"],
        ["ada", "100", "100", "0", "50", "50"],
        ["bob", "65", "100", "0", "15", "50"],
    ]
    assert "cy: handed in and has no mark" in said
    assert "ada: score" not in said, "a list of a thousand changes is for the dry run"
    by_hand(course, "bob", "scaled_test", 40.0)
    before = files(course)
    assert labkit(course, "export", "csv", LAB, "--dry-run") == 0
    said = capsys.readouterr().out
    assert "bob: score: 65 -> 100" in said
    assert "nothing was written" in said
    assert files(course) == before
    assert labkit(course, "export", "csv", LAB) == 0
    assert rows(out)[2][1] == "100"
    assert labkit(course, "export", "csv", LAB) == 0
    assert "nothing changes" in capsys.readouterr().out.split("written")[-1]


def test_a_late_penalty_is_in_every_export(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import nbgrader.api

    with nbgrader.api.Gradebook(f"sqlite:///{course / 'gradebook.db'}") as book:
        book.find_submission_notebook(LAB, LAB, "bob").late_submission_penalty = 20.0
        book.db.commit()
    assert labkit(course, "export", "csv", LAB) == 0
    assert rows(course / "grades" / f"{LAB}.csv")[2] == ["bob", "45", "100", "20", "15", "50"]
    assert labkit(course, "export", "canvas", LAB) == 0
    assert rows(course / "grades" / f"{LAB}-canvas.csv")[3][-1] == "45"
    assert labkit(course, "export", "moodle", LAB) == 0
    assert "20 taken off for handing in late" in (course / "grades" / f"{LAB}-moodle.csv").read_text("utf-8")
    capsys.readouterr()
    assert labkit(course, "export", "canvas", LAB, "--per-question", "--dry-run") == 0
    assert f"bob: 20 points off {LAB} for lateness are in no task's column" in capsys.readouterr().out


def test_export_into_their_own_files(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    theirs, roster, out = course / "theirs.csv", course / "roster.csv", course / "marks.csv"
    theirs.write_text(CANVAS, "utf-8")
    canvas = ("export", "canvas", LAB, "--into", theirs, "--out", out)
    assert labkit(course, *canvas, "--dry-run") == 0
    assert f"bob: {LAB} (91): 40 -> 65" in capsys.readouterr().out
    assert not out.exists()
    assert labkit(course, *canvas) == 0
    assert [row[5] for row in rows(out)] == [f"{LAB} (91)", "100", "100", "65"]
    assert theirs.read_text("utf-8") == CANVAS
    theirs.write_text(MOODLE, "utf-8")
    roster.write_text("student,Email address\nada,ada@uni.example\nbob,bob\n", "utf-8")
    moodle = ("export", "moodle", LAB, "--into", theirs, "--roster", roster, "--title", f"{LAB}=Lab", "--out", out)
    assert labkit(course, *moodle) == 0
    assert [row[3] for row in rows(out)] == ["Lab (Real)", "100", "65"]
    assert "secret" not in out.read_text("utf-8")
    assert labkit(course, "export", "moodle", LAB, "--per-question", "--out", out) == 0
    assert f"{LAB}: scaled (Real)" in rows(out)[0]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("explain", "eve", "scaled"), "there is no student 'eve' in"),
        (("explain", "cy", "scaled"), "nothing of cy is graded"),
        (("explain", "bob", "other"), "bob has no graded task 'other'; there are: scaled, Tally"),
        (("explain", "bob", "scaled", "--lab", "lab07"), "bob has no graded lab 'lab07'"),
        (("explain", "../bob", "scaled"), "there is no student '../bob'"),
        (("report", "lab07"), "there is no lab 'lab07'"),
        (("report", "lab90", "--root", "/"), "no checkout with pyproject.toml and solutions/ at /"),
        (("similarity", "lab07"), "there is no lab 'lab07'"),
        (("export", "csv", "lab07"), "there is no lab 'lab07'"),
        (("export", "csv", LAB, "--into", "x.csv"), "are for canvas and moodle"),
        (("export", "moodle", LAB, "--scale"), "--scale is for canvas"),
        (("export", "canvas", LAB, "--title", "nothing"), "expected LAB=NAME"),
        (("export", "canvas", LAB, "--into", "none.csv"), "none.csv: No such file or directory"),
        (("export", "canvas", LAB, "--roster", "none.csv"), "none.csv: No such file or directory"),
        (("similarity", LAB, "--out", "/dev/null"), "labkit: "),
        (("report", LAB, "--code-only", "--out", "/dev/null"), "labkit: "),
        (("export", "csv", LAB, "--out", "/proc/none.csv"), "/proc/none.csv"),
    ],
)
def test_bad_input_is_one_line(
    course: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], line: str
) -> None:
    before = files(course)
    assert labkit(course, *words) == 2
    said = [each for each in capsys.readouterr().err.splitlines() if "no wrong answers" not in each]
    assert len(said) == 1
    assert line in said[0]
    assert files(course) == before


def test_a_folder_s_name_reaches_no_terminal_raw(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (course / "submitted" / "eve\n\u202egnp" / LAB).mkdir(parents=True)
    assert labkit(course, "report", LAB, "--code-only") == 0
    assert labkit(course, "export", "csv", LAB) == 0
    said = capsys.readouterr().out
    assert "\u202e" not in said
    assert said.count("eve\\n\\u202egnp") == 2


def test_explain_tells_a_student_without_marks_from_a_task_that_is_not_there(
    course: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert labkit(course, "explain", "cy", "scaled", "--lab", LAB) == 2
    assert f"nothing of cy is graded; run: labkit grade {LAB}" in capsys.readouterr().err
    Store(course).put(replace(result("cy"), status="infrastructure", why="no memory"))
    assert labkit(course, "explain", "cy", "scaled") == 2
    assert f"cy: {LAB} was not graded; run: labkit grade {LAB}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (CANVAS.encode("utf-16"), "not UTF-8 at byte 0"),
        (CANVAS.replace("Bob", "Böb").encode("latin-1"), "not UTF-8 at byte"),
        (CANVAS.replace("Student,ID", "Name,ID").encode(), "no Canvas gradebook"),
        (CANVAS.replace(",bob,", ",ada,").encode(), "fits 2 rows"),
        (CANVAS.replace("Section", "ID").encode(), "two columns are called 'ID'"),
        (CANVAS.replace(",100\n", ",50\n").encode(), "50 points possible in Canvas, 100 in the lab"),
        (b"", "empty"),
        (b'Student,ID\n"ada', "no CSV"),
        (b"Student,ID\0\n", "no Canvas gradebook"),
    ],
)
def test_a_wrong_file_of_theirs_is_one_line(
    course: Path, capsys: pytest.CaptureFixture[str], data: bytes, line: str
) -> None:
    (course / "theirs.csv").write_bytes(data)
    before = files(course)
    assert labkit(course, "export", "canvas", LAB, "--into", course / "theirs.csv") == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert line in said
    assert files(course) == before


def test_their_file_keeps_its_form(course: Path) -> None:
    theirs, out = course / "theirs.csv", course / "marks.csv"
    theirs.write_bytes(("\ufeff" + CANVAS.replace(",", ";").replace("\n", "\r\n")).encode())
    assert labkit(course, "export", "canvas", LAB, "--into", theirs, "--out", out) == 0
    expected = theirs.read_bytes().replace(b";ada;M;", b";ada;M;100").replace(b";bob;M;40", b";bob;M;65")
    assert out.read_bytes() == expected


def test_their_own_file_is_never_written_over(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    theirs = course / "theirs.csv"
    theirs.write_text(CANVAS, "utf-8")
    assert labkit(course, "export", "canvas", LAB, "--into", theirs, "--out", theirs) == 2
    assert "is their own export" in capsys.readouterr().err
    assert theirs.read_text("utf-8") == CANVAS


@pytest.mark.parametrize("verb", [("report", LAB), ("similarity", LAB), ("export", "csv", LAB)])
def test_before_grading_every_verb_says_so(course: Path, capsys: pytest.CaptureFixture[str], verb: Any) -> None:
    shutil.rmtree(course / ".mlsys-grading")
    (course / "gradebook.db").unlink()
    before = files(course)
    assert labkit(course, *verb) == 2
    assert f"nothing of {LAB} is graded in {course}; run: labkit grade {LAB}" in capsys.readouterr().err
    assert labkit(course / "nowhere", *verb) == 2
    assert "is no nbgrader course folder" in capsys.readouterr().err
    assert files(course) == before
    assert not (course / "gradebook.db").exists()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 8 kB."""
    place = tmp_path / "disk"
    place.mkdir()
    if shutil.which("mount") is None or os.geteuid() != 0:
        pytest.skip("cannot mount a small file system")
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", place], capture_output=True).returncode:
        pytest.skip("cannot mount a small file system")
    yield place
    subprocess.run(["umount", place], check=True)


def test_a_full_disk_leaves_the_old_file(course: Path, disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = disk / "marks.csv"
    out.write_text("old\n", "utf-8")
    (disk / "full").write_bytes(b"x" * 4096)
    for words in (
        ("export", "csv", LAB, "--out", out),
        ("report", LAB, "--code-only", "--out", disk / "report"),
        ("similarity", LAB, "--out", disk / "similarity"),
    ):
        assert labkit(course, *words) == 2
        said = [line for line in capsys.readouterr().err.splitlines() if "no wrong answers" not in line]
        assert len(said) == 1
        assert "No space left on device" in said[0]
    assert out.read_text("utf-8") == "old\n"
    assert {path.name for path in disk.rglob("*") if path.is_file()} == {"marks.csv", "full"}
