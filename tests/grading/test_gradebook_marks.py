"""The gradebook: marks that a regrade keeps, a lab that changes, and writers that are killed."""

from __future__ import annotations

import copy
import math
import os
import sqlite3
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from nbgrader.api import Gradebook as NbgraderGradebook

from mlsys_grading.gradebook.course import course_settings
from mlsys_grading.gradebook.gradebook import Gradebook
from mlsys_grading.gradebook.registered import register
from mlsys_grading.gradebook.submission import match
from mlsys_grading.result import Result
from mlsys_labkit.errors import LabkitError
from tests.conftest import ROOT
from tests.grading.gradebook_course import REGISTERED, SUBMISSION, WRITTEN, undisturbed, writer
from tests.grading.gradebook_helpers import LAB, SOURCE, answered, cell, graded, notebook, result, rows, solution


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "gradebook.db"


@pytest.fixture
def book(path: Path) -> Iterator[Gradebook]:
    with Gradebook(path, "mlsys") as made:
        made.register(REGISTERED)
        yield made


def by_hand(path: Path, do: Callable[[NbgraderGradebook], None]) -> None:
    """Change marks through nbgrader's own API, as formgrader does."""
    with NbgraderGradebook(f"sqlite:///{path}") as theirs:
        do(theirs)
        theirs.db.commit()


def mark(path: Path, name: str, score: float, student: str = "ada") -> None:
    def do(theirs: NbgraderGradebook) -> None:
        grade = theirs.find_grade(name, LAB, LAB, student)
        grade.manual_score, grade.extra_credit, grade.needs_manual_grade = score, 0.5, False
        theirs.find_comment("why", LAB, LAB, student).manual_comment = "Well said."

    by_hand(path, do)


def grades(path: Path) -> dict[str, tuple[Any, ...]]:
    return {row[1]: row[3:] for row in rows(path)["grades"]}


def test_manual_marks_survive_a_regrade(book: Gradebook, path: Path) -> None:
    book.record(REGISTERED, SUBMISSION, result())
    mark(path, "why", 4.0)
    mark(path, "double_test", 1.0)
    book.record(REGISTERED, SUBMISSION, result(job="job2", points={"double_test": 0.0}))
    assert grades(path)["why"] == (None, 4.0, 0.5, 1), "another look at what a person had marked"
    assert grades(path)["double_test"] == (0.0, 1.0, 0.5, 1)
    assert grades(path)["halve_test"] == (4.0, None, None, 0)
    assert ("ada", "why", "SolutionCell", None, "Well said.") in rows(path)["comments"]
    standing = book.standing(REGISTERED, "ada")
    assert standing is not None
    assert standing.raw_score == 4.5 + 1.5 + 2 + 4
    assert (standing.cells["why"].comment, standing.cells["double_test"].is_manual) == ("Well said.", True)


def test_the_same_job_again_changes_nothing(book: Gradebook, path: Path) -> None:
    book.record(REGISTERED, SUBMISSION, result(), "2030-01-01 10:00:00 UTC")
    mark(path, "why", 4.0)
    before = rows(path)
    again = book.record(REGISTERED, SUBMISSION, result())
    assert rows(path) == before
    assert again is not None
    assert again.before == again.after


def test_regrade_returns_scores_before_and_after(book: Gradebook) -> None:
    first = book.record(REGISTERED, SUBMISSION, result())
    second = book.record(REGISTERED, SUBMISSION, result(job="job2", points={"halve_test": 1.5}))
    assert first is not None
    assert second is not None
    assert first.before is None
    assert second.before == first.after
    assert {name for name in second.after if second.after[name] != first.after[name]} == {"halve_test"}
    assert book.jobs(LAB) == {"ada": "job2"}
    assert book.standing(REGISTERED, "bob") is None


def test_an_infrastructure_failure_writes_nothing(book: Gradebook, path: Path) -> None:
    before = rows(path)
    assert book.record(REGISTERED, SUBMISSION, replace(result(), status="infrastructure", marks=())) is None
    assert rows(path) == before
    book.record(REGISTERED, SUBMISSION, result())
    before = rows(path)
    assert book.record(REGISTERED, SUBMISSION, replace(result(), status="infrastructure", marks=())) is None
    assert rows(path) == before


def test_manual_cells_need_manual_grading(book: Gradebook, path: Path) -> None:
    book.record(REGISTERED, SUBMISSION, result())
    book.record(REGISTERED, match(REGISTERED, answered()), result("stubs"))
    book.record(REGISTERED, match(REGISTERED, None), result("nothing", points=dict.fromkeys(grades(path), 0.0)))
    waiting = {(row[0], row[1]) for row in rows(path)["grades"] if row[6]}
    tasks = {(student, "look") for student in ("ada", "stubs", "nothing")}
    assert waiting == tasks | {("ada", "why"), ("ada", "draw")}
    said = {row[:2]: row[3] for row in rows(path)["comments"]}
    assert said["ada", "double"] is None
    assert said["ada", "halve"] == said["stubs", "why"] == "No response."
    assert said["nothing", "double"] == "This cell is missing from the submission."


@pytest.mark.parametrize(
    ("score", "taken"), [(2.0, 2.0), (-1.0, 0.0), (1000.0, 12.5), (None, None)], ids=["some", "less", "all", "none"]
)
def test_late_penalty_equals_nbgraders(path: Path, score: float | None, taken: float | None) -> None:
    class Late:
        asked: tuple[Any, ...] = ()

        def late_submission_penalty(self, *asked: Any) -> float | None:
            self.asked = asked
            return score

    late = Late()
    with Gradebook(path, "mlsys", late) as book:
        book.register(REGISTERED)
        by_hand(path, lambda theirs: theirs.update_or_create_assignment(LAB, duedate="2030-01-02 10:00:00 UTC"))
        first = book.record(REGISTERED, SUBMISSION, result(), "2030-01-02 09:59:59 UTC")
        assert (first and first.late_penalty, late.asked) == (None, ())
        mark(path, "why", 3.0)
        second = book.record(REGISTERED, SUBMISSION, result(), "2030-01-02 11:00:30 UTC")
        assert second is not None
        assert late.asked == ("ada", 12.5, 3630.0), "with a person's marks"
        assert second.late_penalty == taken
        third = book.record(REGISTERED, SUBMISSION, result(job="job3"))
        assert third is not None
        assert (third.seconds_late, third.late_penalty) == (3630.0, taken), "the time that is known stays"
        by_hand(path, lambda theirs: theirs.grant_extension(LAB, "ada", hours=2))
        fourth = book.record(REGISTERED, SUBMISSION, result())
        assert fourth is not None
        assert (fourth.seconds_late, fourth.late_penalty) == (0.0, None)


CHANGED = copy.deepcopy(SOURCE)
CHANGED["cells"] = [
    each
    for each in CHANGED["cells"]
    if each["metadata"].get("nbgrader", {}).get("grade_id") not in ("halve_test", "draw")
]
CHANGED["cells"] += [
    solution("new", "return x"),
    graded("new_test", "assert new(1)", 8),
    cell("N = 1", "n", locked=True),
]


def test_changed_lab_updates_its_submissions(book: Gradebook, path: Path) -> None:
    book.record(REGISTERED, SUBMISSION, result())
    mark(path, "why", 4.0)
    changed = register(LAB, CHANGED)
    registration = book.register(changed)
    assert (registration.added, set(registration.removed)) == (("new", "new_test"), {"halve_test", "draw"})
    assert registration.submissions == 1
    assert grades(path)["new_test"] == (None, None, None, 1)
    assert grades(path)["why"] == (None, 4.0, 0.5, 0)
    assert not {"halve_test", "draw"} & {row[0] for table in ("cells", "sources") for row in rows(path)[table]}
    with NbgraderGradebook(f"sqlite:///{path}") as theirs:
        assert theirs.find_assignment(LAB).max_score == changed.max_score == 25
        assert theirs.find_submission(LAB, "ada").score == 3 + 2 + 4.5
    with pytest.raises(LabkitError, match="grade the submission again"):
        book.record(changed, match(changed, answered(WRITTEN)), result())


def test_nbgrader_accepts_our_rows_unchanged(book: Gradebook, path: Path) -> None:
    """``generate_assignment``'s own step on our rows adds and changes nothing."""
    from nbformat import from_dict
    from nbgrader import preprocessors as steps

    book.record(REGISTERED, SUBMISSION, result())
    before = rows(path)

    def save(source: dict[str, Any]) -> None:
        found = from_dict(copy.deepcopy(source))
        resources = {"nbgrader": {"notebook": LAB, "assignment": LAB, "db_url": f"sqlite:///{path}"}}
        for step in (steps.LockCells, steps.ClearSolutions, steps.ComputeChecksums, steps.SaveCells):
            found, resources = step()(found, resources)

    save(SOURCE)
    assert rows(path) == before
    with pytest.raises(RuntimeError, match="Cannot add or remove cells"):
        save(CHANGED)


def test_cells_with_manual_marks_are_removed_only_on_request(book: Gradebook, path: Path) -> None:
    book.record(REGISTERED, SUBMISSION, result())
    mark(path, "draw", 4.0)
    before = rows(path)
    with pytest.raises(LabkitError, match=r"the cell draw is gone .* on 1 submissions"):
        book.register(register(LAB, CHANGED))
    assert rows(path) == before
    assert "draw" in book.register(register(LAB, CHANGED), drop_manual=True).removed


def test_changed_points_change_the_maximum(book: Gradebook, path: Path) -> None:
    book.record(REGISTERED, SUBMISSION, result())
    dearer = copy.deepcopy(SOURCE)
    next(each for each in dearer["cells"] if "double_test" in str(each["metadata"]))["metadata"]["nbgrader"][
        "points"
    ] = 10
    changed = register(LAB, dearer)
    assert book.register(changed).added == ()
    assert ("double_test", "GradeCell", 10.0, "code", None, None) in rows(path)["cells"]
    with pytest.raises(LabkitError, match="3 of 3 points for double_test, which has 10"):
        book.record(changed, match(changed, answered()), result())


@pytest.mark.parametrize("points", [math.nan, math.inf, -1.0, 3.5])
def test_impossible_marks_are_refused(book: Gradebook, path: Path, points: float) -> None:
    with pytest.raises(LabkitError, match="double_test"):
        book.record(REGISTERED, SUBMISSION, result(points={"double_test": points}))
    assert rows(path)["students"] == []


def test_invalid_timestamp_is_one_line(book: Gradebook, path: Path) -> None:
    with pytest.raises(LabkitError, match=r"ada/lab91_kinds/timestamp.txt: 'soon' is no time"):
        book.record(REGISTERED, SUBMISSION, result(), "soon\n")
    assert rows(path)["students"] == []


def test_an_unknown_lab_is_one_line(path: Path) -> None:
    with Gradebook(path) as book, pytest.raises(LabkitError, match="lab91_kinds is not in the gradebook"):
        book.record(REGISTERED, SUBMISSION, result())


def test_files_that_are_no_gradebook_are_one_line(path: Path) -> None:
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(LabkitError, match="file is not a database; nothing of this was written"):
        Gradebook(path)
    path.unlink()
    Gradebook(path).close()
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("UPDATE alembic_version SET version_num = 'old'")
    connection.close()
    with pytest.raises(LabkitError, match="run: nbgrader db upgrade"):
        Gradebook(path)


def test_gradebooks_open_in_nbgrader_and_here(path: Path, tmp_path: Path) -> None:
    with Gradebook(path, "mlsys"):
        pass
    schema = "SELECT name, sql FROM sqlite_master WHERE name NOT LIKE '%mlsys%' AND name NOT LIKE 'alembic%'"
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # nbgrader starts alembic
    theirs = tmp_path / "theirs.db"
    NbgraderGradebook(f"sqlite:///{theirs}", "mlsys").close()
    tables = []
    for made in (path, theirs):
        connection = sqlite3.connect(made)
        tables.append(sorted(connection.execute(schema)))
        tables.append(connection.execute("SELECT version_num FROM alembic_version").fetchall())
        connection.close()
    assert tables[:2] == tables[2:]
    with Gradebook(theirs, "mlsys") as book:
        book.register(REGISTERED)
        assert book.record(REGISTERED, SUBMISSION, result()) is not None


def test_course_name_follows_the_configuration(tmp_path: Path) -> None:
    assert course_settings(ROOT / "grading").course == "mlsys"
    (tmp_path / "nbgrader_config.py").write_text("c = get_config()\nc.LateSubmissionPlugin.penalty_method = 'zero'\n")
    settings = course_settings(tmp_path)
    assert settings.course == "default_course"
    assert settings.late.late_submission_penalty("ada", 7.0, 1.0) == 7.0
    (tmp_path / "nbgrader_config.py").write_text("c.AssignLatePenalties.plugin_class = 'no.such'\n1 / 0")
    with pytest.raises(LabkitError, match="ZeroDivisionError"):
        course_settings(tmp_path)


def attempt(book: Gradebook, made: Result) -> str:
    try:
        book.record(REGISTERED, SUBMISSION, made)
    except LabkitError as error:
        return str(error)
    return ""


def test_error_in_a_transaction_rolls_all_of_it_back(book: Gradebook, path: Path) -> None:
    """Each statement of a transaction fails in turn."""
    from sqlalchemy import event

    book.record(REGISTERED, SUBMISSION, result())
    before = rows(path)
    left = 0

    def fail(*_: Any) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise sqlite3.OperationalError("disk I/O error")

    event.listen(book._engine, "before_cursor_execute", fail)
    for failing in range(1, 100):
        left = failing
        failure = attempt(book, result("bob", points={"double_test": 0.0}))
        if not failure:
            break
        assert "disk I/O error; nothing of this was written" in failure
        assert rows(path) == before
    assert failing > 10
    assert {row[0] for row in rows(path)["students"]} == {"ada", "bob"}


def test_two_writers_and_a_reader_at_once(path: Path, tmp_path: Path) -> None:
    expected = undisturbed(tmp_path / "alone.db", 20)
    with writer(path, 20) as (one, said), writer(path, 20) as (two, _):
        said.recv()
        reader = sqlite3.connect(path)
        reader.execute("BEGIN")
        before = reader.execute("SELECT count(*) FROM grade").fetchone()
        one.join()
        two.join()
        assert reader.execute("SELECT count(*) FROM grade").fetchone() == before, "a reader sees one state"
        reader.close()
    assert (one.exitcode, two.exitcode) == (0, 0)
    assert rows(path) == expected


def test_a_writer_notices_what_others_changed(book: Gradebook, path: Path) -> None:
    book.record(REGISTERED, SUBMISSION, result())
    changed = register(LAB, CHANGED)
    with Gradebook(path, "mlsys") as other:
        other.register(changed)
    with pytest.raises(LabkitError, match="register it again"):
        book.record(REGISTERED, SUBMISSION, result("bob"))


def test_registering_twice_changes_nothing(book: Gradebook, path: Path) -> None:
    before = rows(path)
    assert book.register(REGISTERED).added == ()
    assert rows(path) == before
    lines = copy.deepcopy(SOURCE)
    for each in lines["cells"]:
        each["source"] = each["source"].splitlines(keepends=True)
    assert register(LAB, lines) == REGISTERED, "as files have it"
    with pytest.raises(LabkitError, match="CheckCellMetadata refuses the source"):
        register(LAB, notebook(graded("twice", "", 1), graded("twice", "", 1)))
