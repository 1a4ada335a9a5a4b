"""Marks for Canvas and Moodle: read back with the csv module; columns, rows and cells of others are intact."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import example, given, strategies as st

from mlsys_grading.build.notebook import source_notebook
from mlsys_grading.export.canvas import to_canvas
from mlsys_grading.export.merge import CellChange, read_roster
from mlsys_grading.export.moodle import to_moodle
from mlsys_grading.gradebook.registered import register
from mlsys_grading.gradebook.scores import Question, Score, questions_of, score_of
from mlsys_grading.gradebook.sheet import Sheet, guarded
from mlsys_grading.lab import read_lab
from mlsys_grading.result import CellMark, Result
from mlsys_labkit.errors import LabkitError
from tests.grading.course import FIXTURE, LAB

# An export of Canvas: a posting-policy row, padded points possible, a teacher's own column, totals that are read only.
CANVAS = (
    "Student,ID,SIS User ID,SIS Login ID,Section,Notes,Essay (90),Lab 1 (91),Current Score,Final Score\n"
    ",,,,,,,Manual Posting,,\n"
    "    Points Possible,,,,,,10.00,100.00,(read only),(read only)\n"
    '"Lovelace, Ada",7,S7,ada,"Monday, early",+ late twice,9.50,40.00,95.0,80.1\n'
    '"Hopper, ""Amazing"" Grace",8,S8,grace,Monday,,,,,\n'
    '"Turing, Alan",9,S9,alan,Monday,,8.00,EX,80.0,80.0\n'
    '"=HYPERLINK(""http://evil.example"")",10,S10,mallory,Monday,,,,,\n'
    '"Student, Test",11,,0123abcd,Monday,,,,,\n'
)
MOODLE = (
    "First name,Last name,ID number,Email address,Quiz: Warm-up (Real),Assignment: Lab 1 (Real),"
    "Assignment: Lab 1 (Feedback),Last downloaded from this course\r\n"
    "Ada,Lovelace,M1,ada@uni.example,5.00,-,,1700000000\r\n"
    "Grace,Hopper,M2,grace@uni.example,-,7.00,ok,1700000000\r\n"
    '@SUM(A1),Mallory,M3,mallory@uni.example,-,-,"two\r\nlines",1700000000\r\n'
)
WORKSHEET = (
    "Identifier,Full name,Email address,Status,Grade,Maximum Grade,Grade can be changed,Feedback comments\n"
    "Participant 1,Ada Lovelace,ada@uni.example,Submitted,,100.00,Yes,\n"
    "Participant 2,Grace Hopper,grace@uni.example,Submitted,3.00,100.00,No,\n"
)


def score(student: str, points: float, most: float = 100.0, lab: str = "lab01") -> Score:
    return Score(
        student,
        lab,
        points,
        most,
        (Question("f", points, most - 10, "A result is not what the test expects."), Question("g", 0.0, 10.0)),
    )


def table(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))


def test_canvas_export_keeps_all_that_is_not_ours() -> None:
    done = to_canvas(
        [score("ada", 73.456), score("grace", 100), score("alan", 5), score("nobody", 1)],
        Sheet.parse(CANVAS),
        titles={"lab01": "Lab 1"},
    )
    before, after = table(CANVAS), table(done.sheet.to_csv())
    at = before[0].index("Lab 1 (91)")
    assert after[0] == before[0]
    assert [row[at] for row in after[1:]] == ["Manual Posting", "100.00", "73.46", "100", "EX", "", ""]
    before[6][0] = "'" + before[6][0]  # the name that a spreadsheet would have computed
    assert [row[:at] + row[at + 1 :] for row in after] == [row[:at] + row[at + 1 :] for row in before]
    assert done.changes == (
        CellChange("ada", "Lab 1 (91)", "40.00", "73.46"),
        CellChange("grace", "Lab 1 (91)", "", "100"),
    )
    assert done.unmatched == ("nobody",)
    assert done.unmarked == ("'" + table(CANVAS)[6][0], "Student, Test")
    assert done.kept == ("alan: Lab 1 (91): stays EX, the mark would be 5",)
    assert "ada: Lab 1 (91): 40.00 -> 73.46" in str(done)


def test_canvas_second_export_changes_nothing(tmp_path: Path) -> None:
    scores = [score("ada", 73.456), score("grace", 100)]
    first = to_canvas(scores, Sheet.parse(CANVAS), titles={"lab01": "91"})
    path = tmp_path / "canvas.csv"
    assert first.write(path)
    stamp = path.stat().st_mtime_ns
    again = to_canvas(scores, Sheet.read(path), titles={"lab01": "91"})
    assert again.changes == ()
    assert str(again).startswith("nothing changes")
    assert not again.write(path)
    assert path.stat().st_mtime_ns == stamp


def test_canvas_scores_that_canvas_would_round_to_its_own_do_not_change() -> None:
    done = to_canvas([score("ada", 40.004)], Sheet.parse(CANVAS), titles={"lab01": "Lab 1"})
    assert done.changes == ()
    assert done.sheet.to_csv().count("40.00") == 1
    finer = Sheet.parse(CANVAS.replace("40.00", "40.0049"))
    assert to_canvas([score("ada", 40)], finer, titles={"lab01": "Lab 1"}).changes == ()


def test_canvas_questions_are_new_columns_before_the_totals() -> None:
    done = to_canvas([score("ada", 70)], Sheet.parse(CANVAS), per_question=True, titles={"lab01: g": "Essay (90)"})
    rows = table(done.sheet.to_csv())
    assert rows[0][5:] == ["Notes", "Essay (90)", "Lab 1 (91)", "lab01: f", "Current Score", "Final Score"]
    assert [row[8] for row in rows[1:]] == ["", "90", "70", "", "", "", ""]
    assert rows[3][6] == "0"
    assert any("new column" in note for note in done.notes)


def test_canvas_file_made_from_a_roster_grows_without_moving_its_columns() -> None:
    roster = {
        "ada": {"Student": "Lovelace, Ada", "ID": "7", "SIS Login ID": "al"},
        "bob": {"Student": "=cmd|' /C calc'!A0", "ID": "8"},
    }
    first = to_canvas([score("ada", 70)], roster=roster)
    assert table(first.sheet.to_csv()) == [
        ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "lab01"],
        ["    Points Possible", "", "", "", "", "100"],
        ["Lovelace, Ada", "7", "", "al", "", "70"],
    ]
    second = to_canvas([score("ada", 71), score("bob", 5, 20, "lab00")], first.sheet, roster, add_students=True)
    rows = table(second.sheet.to_csv())
    assert rows[0][-2:] == ["lab01", "lab00"]
    assert rows[1][-2:] == ["100", "20"]
    assert [row[-2:] for row in rows[2:]] == [["71", ""], ["", "5"]]
    assert rows[3][0] == "'=cmd|' /C calc'!A0"
    assert second.changes == (CellChange("ada", "lab01", "70", "71"), CellChange("bob", "lab00", "", "5"))


def test_canvas_points_possible_must_agree_or_be_scaled() -> None:
    export = Sheet.parse(CANVAS)
    with pytest.raises(LabkitError, match="100 points possible in Canvas, 50 in the lab"):
        to_canvas([score("ada", 25, 50)], export, titles={"lab01": "Lab 1"})
    done = to_canvas([score("ada", 25, 50)], export, titles={"lab01": "Lab 1"}, scale=True)
    assert [change.after for change in done.changes] == ["50"]


@pytest.mark.parametrize(
    ("export", "titles", "message"),
    [
        ("name,points\nada,3\n", {}, "no Canvas gradebook"),
        ("Student,ID,Section\nada,7,Monday\n", {}, "no row 'Points Possible'"),
        (CANVAS, {"lab01": "Final Score of all"}, "would not take"),
        (CANVAS, {"lab01": "Current Score"}, "read only"),
        (CANVAS.replace("Essay (90)", "Lab 1 (90)"), {"lab01": "Lab 1"}, "name one by its number"),
        (CANVAS.replace("S8,grace", "S8,ada"), {"lab01": "Lab 1"}, "fits 2 rows"),
        ("", {}, "empty"),
        ("Student,ID\nada,7,9\n", {}, "row 2 has 3 cells"),
    ],
)
def test_canvas_refuses_in_one_line(export: str, titles: dict[str, str], message: str) -> None:
    with pytest.raises(LabkitError, match=message) as raised:
        to_canvas([score("ada", 1)], Sheet.parse(export), titles=titles)
    assert "\n" not in str(raised.value)


def test_two_students_never_share_a_row() -> None:
    roster = {"ada": {"ID": "7"}, "imposter": {"SIS Login ID": "ADA"}}
    with pytest.raises(LabkitError, match="ada and imposter are one row"):
        to_canvas([score("ada", 1), score("imposter", 2)], Sheet.parse(CANVAS), roster, titles={"lab01": "Lab 1"})


def test_moodle_export_keeps_all_that_is_not_ours() -> None:
    done = to_moodle([score("M1", 73.456), score("M2", 7)], Sheet.parse(MOODLE), titles={"lab01": "Lab 1"})
    before, after = table(MOODLE), table(done.sheet.to_csv())
    assert done.sheet.to_csv().count("\r\n") == MOODLE.count("\r\n")
    words = "f: {} of 90. A result is not what the test expects. | g: 0 of 10."
    assert [row[5:7] for row in after[1:]] == [
        ["73.46", words.format("73.46")],
        ["7.00", words.format("7")],
        ["-", "two\r\nlines"],
    ]
    before[3][0] = "'@SUM(A1)"
    assert [row[:5] + row[7:] for row in after] == [row[:5] + row[7:] for row in before]
    assert [(change.student, change.before) for change in done.changes] == [("M1", "-"), ("M1", ""), ("M2", "ok")]
    assert to_moodle([score("M1", 73.456), score("M2", 7)], done.sheet, titles={"lab01": "Lab 1"}).changes == ()


def test_moodle_finds_people_by_email_and_adds_columns_for_questions() -> None:
    roster = {"ada": {"Email address": "Ada@Uni.example"}}
    done = to_moodle([score("ada", 70)], Sheet.parse(MOODLE), roster, per_question=True)
    rows = table(done.sheet.to_csv())
    assert rows[0][7:] == [
        "lab01: f (Real)",
        "lab01: f (Feedback)",
        "lab01: g (Real)",
        "lab01: g (Feedback)",
        "Last downloaded from this course",
    ]
    assert rows[1][7:11] == ["70", "A result is not what the test expects.", "0", ""]
    assert [row[7:11] for row in rows[2:]] == [[""] * 4] * 2


def test_moodle_worksheet() -> None:
    roster = {name: {"Email address": f"{name}@uni.example"} for name in ("ada", "grace")}
    done = to_moodle([score("ada", 70), score("grace", 80)], Sheet.parse(WORKSHEET), roster)
    rows = table(done.sheet.to_csv())
    assert rows[1][4] == "70"
    assert rows[2] == table(WORKSHEET)[2]  # Moodle would refuse a locked grade
    assert len(done.kept) == 2
    with pytest.raises(LabkitError, match="maximum grade is 100 in Moodle, 50 in the lab"):
        to_moodle([score("ada", 1, 50)], Sheet.parse(WORKSHEET), roster)
    with pytest.raises(LabkitError, match="one assignment"):
        to_moodle([score("ada", 1), score("ada", 1, lab="lab02")], Sheet.parse(WORKSHEET), roster)


def test_scores_follow_the_gradebook_and_say_nothing_of_hidden_tests() -> None:
    questions = questions_of(register(LAB, source_notebook(read_lab(FIXTURE, LAB))))
    assert questions == {
        "scaled": {"scaled_test": 40.0, "scaled_test_empty": 10.0},
        "Tally": {"Tally_test": 50.0},
    }
    secret = CellMark("scaled_test", 0, 40, "AssertionError: secret 8317", ("AssertionError",), "secret", hidden=True)
    marks = (secret, CellMark("scaled_test_empty", 10, 10), CellMark("Tally_test", 50, 50))
    plain = score_of(Result("j", LAB, "ada", marks), questions)
    assert plain is not None
    assert (plain.points, plain.max_points) == (60.0, 100.0)
    assert "secret" not in plain.feedback
    assert plain.feedback.startswith("scaled: 10 of 50. A result is not what the test expects. | Tally: 50 of 50.")
    booked = score_of(Result("j", LAB, "ada", marks), questions, {"scaled_test": 25.0}, late_penalty=5.0)
    assert booked is not None
    assert booked.points == 80.0
    assert booked.feedback.endswith("5 taken off for handing in late.")
    assert score_of(Result("j", LAB, "ada", (), status="infrastructure"), questions) is None


def test_roster_is_read_by_student(tmp_path: Path) -> None:
    path = tmp_path / "roster.csv"
    path.write_text("\ufeffstudent;ID;Email address\nada; 7 ;ada@uni.example\nbob;8;\n", "utf-8")
    assert read_roster(path) == {
        "ada": {"student": "ada", "ID": "7", "Email address": "ada@uni.example"},
        "bob": {"student": "bob", "ID": "8"},
    }
    path.write_text("student,ID\nada,7\nada,8\n", "utf-8")
    with pytest.raises(LabkitError, match="ada stands there twice"):
        read_roster(path)
    path.write_bytes(b"student\n\xff\n")
    with pytest.raises(LabkitError, match="not UTF-8 at byte 8"):
        read_roster(path)
    with pytest.raises(LabkitError, match="No such file"):
        read_roster(tmp_path / "none.csv")


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)


@given(st.lists(st.lists(TEXT, min_size=3, max_size=3), max_size=5), st.sampled_from(",;\t"))
def test_sheet_returns_any_text_unchanged(rows: list[list[str]], delimiter: str) -> None:
    sheet = Sheet(("Student", "ID", "x"), tuple(map(tuple, rows)), delimiter, "\r\n", bom=True)
    assert list(csv.reader(io.StringIO(sheet.to_csv()[1:], newline=""), delimiter=delimiter))[1:] == rows
    assert Sheet.parse(sheet.to_csv()) == sheet


@given(st.builds(str.__add__, st.sampled_from(["", "=", "+", "-", "@", " =", "\t", "\r", "-1", "+1"]), TEXT))
@example("-1\x1f")
def test_no_cell_is_a_formula_and_guarding_twice_is_guarding_once(text: str) -> None:
    safe = guarded(text)
    assert safe.endswith(text)
    assert guarded(safe) == safe
    if safe.lstrip()[:1] in ("=", "+", "-", "@") or safe[:1] in ("\t", "\r"):
        assert safe.strip() == "-" or float(safe.strip().replace(",", ".")) is not None
