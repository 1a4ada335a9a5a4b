"""The labs that ``lk.progress()`` shows, the time it counts, and the files it keeps."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from IPython.core.interactiveshell import InteractiveShell

import mlsys_labkit as lk
from mlsys_labkit._frontends.cli import main
from mlsys_labkit._frontends.progress import catalogue, store, watch
from mlsys_labkit._frontends.progress.catalogue import LabEntry, TaskEntry, Test as Graded
from mlsys_labkit._frontends.progress.lab_progress import LabProgress
from mlsys_labkit._frontends.progress.notebook_record import PAUSE_SECONDS, NotebookRecord, Outcome
from mlsys_labkit.errors import LabkitError
from tests.conftest import ROOT
from tests.labkit.person import LAB, cells_of, handed_out, solved

LABS = sorted(path.name for path in (ROOT / "solutions").glob("lab*"))
all_labs = pytest.mark.parametrize("name", LABS)


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data"


def passing(lab: LabEntry, now: float = 1000.0, seconds: float = 60.0) -> NotebookRecord:
    record = NotebookRecord(lab, seconds, now)
    for task in lab.tasks:
        record.ran(f"# an answer to {task.name}", task.name, True, now)
    return record


# --- what is known of the labs ---------------------------------------------------------------------------------------


@all_labs
def test_tasks_and_points_are_those_of_the_notebook(name: str) -> None:
    """The notebook's own metadata and headings say what the catalogue must."""
    lab, graded, answers, headings = catalogue.lab(name), {}, [], []
    for cell in handed_out(name)["cells"]:
        own = cell["metadata"].get("nbgrader", {})
        if own.get("grade"):
            graded[own["grade_id"]] = own["points"]
        elif own.get("solution"):
            answers.append(own["grade_id"])
        headings += re.findall(r"^### Task \d+ · (.+)$", "".join(cell["source"]), re.MULTILINE)
    assert {test.id: test.points for task in lab.tasks for test in task.tests} == graded
    assert [task.name for task in lab.tasks] == answers
    assert [task.title for task in lab.tasks] == headings
    assert sum(task.points for task in lab.tasks) == 100


@all_labs
def test_hidden_tests_are_told_by_the_source(name: str) -> None:
    text = (ROOT / "solutions" / name / f"{name}.py").read_text("utf-8")
    cells = re.findall(r'^# %% .*"grade_id": "(\w+)".*"points".*\n((?:(?!# %%).*\n)*)', text, re.MULTILINE)
    hidden = {grade_id for grade_id, body in cells if "### BEGIN HIDDEN TESTS" in body}
    assert {test.id for task in catalogue.lab(name).tasks for test in task.tests if test.hidden} == hidden != set()


@all_labs
def test_every_test_and_answer_is_known_without_ids(name: str) -> None:
    lab, given, made = catalogue.lab(name), cells_of(name), solved(name)
    for task in lab.tasks:
        record = NotebookRecord(lab)
        assert record.ran(given[task.name], "", True, 1.0)
        assert record.standing(task).state == "not started", "the stub is no answer"
        assert record.ran(made[task.name], "", True, 2.0)
        assert record.standing(task).state == "tried"
        for number, test in enumerate(task.tests):
            assert record.ran((given, made)[number % 2][test.id], "", True, 3.0), "with what is hidden in it, too"
        assert record.standing(task).state == "passes"
        assert record.standing(task).points == task.points
    known = {task.name for task in lab.tasks} | {test.id for task in lab.tasks for test in task.tests}
    assert [
        name for name, text in given.items() if name not in known and NotebookRecord(lab).ran(text, "", True, 1.0)
    ] == []


def test_a_lab_is_known_by_its_first_cells_and_no_two_are_taken_for_another() -> None:
    for name in LABS:
        for cell, text in cells_of(name).items():
            if "%load_ext" in text:
                assert catalogue.lab_of("", catalogue.digest(text)).name == name
            assert catalogue.lab_of(cell, "") in (catalogue.lab(name), None)
    assert catalogue.lab_of("3f2a", catalogue.digest("1 + 1")) is None


def test_tests_that_nobody_sees_are_told_and_decide_nothing_here() -> None:
    tests = (Graded("a_test", 2, "d1", hidden=True), Graded("a_secret", 3, "d2", visible=False, hidden=True))
    lab = LabEntry("lab99_x", "Lab 99", "", (TaskEntry("a", "A", "stub", ("a",), tests),))
    record = NotebookRecord(lab)
    record.ran("def a(): ...", "a", True, 1.0)
    record.outcomes["a_test"] = Outcome(True, record.edits["a"].digest)
    said = str(LabProgress(lab, record.standings(), 0.0))
    assert "1 of 1 tasks pass the checks you see; the cells that pass are worth 2 of 2 points" in said
    assert "In cells worth 2 of the points, tests that you do not see" in said
    assert "3 more points are decided by tests that you do not see at all" in said


# --- time ------------------------------------------------------------------------------------------------------------


def test_record_counts_long_pauses_as_ten_minutes() -> None:
    record = NotebookRecord(catalogue.lab(LAB))
    for now in (1000.0, 1090.0, 1090.0 + 9 * 3600, 1090.0 + 9 * 3600 + 30, 5000.0, 5060.0):
        record.tick(now)
    assert record.seconds == 90 + PAUSE_SECONDS + 30 + 0 + 60


# --- files -----------------------------------------------------------------------------------------------------------


def test_a_record_comes_back_as_it_was(tmp_path: Path) -> None:
    lab = catalogue.lab(LAB)
    record = passing(lab)
    record.hints["costs"] = 2
    store.save(record, str(tmp_path / "a.ipynb"))
    assert store.load(lab, str(tmp_path / "a.ipynb")) == record
    assert store.latest(lab) == record
    assert store.load(catalogue.lab("lab01"), str(tmp_path / "a.ipynb")) == NotebookRecord(catalogue.lab("lab01"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"schema": 2}',
        "[" * 100_000,
        "\0",
        "{}",
        '{"schema": 1, "lab": "lab00_your_machine"}',
        json.dumps({"schema": 1, "lab": LAB, "seconds": 1, "last": 1, "edits": [], "outcomes": {}, "hints": {}}),
        json.dumps({"schema": 1, "lab": LAB, "seconds": "x", "last": {}, "edits": {}, "outcomes": 3, "hints": {}}),
    ],
)
def test_store_replaces_a_damaged_record(data: Path, tmp_path: Path, text: str) -> None:
    lab, notebook = catalogue.lab(LAB), str(tmp_path / "a.ipynb")
    store.save(NotebookRecord(lab), notebook)
    (path,) = data.rglob("*.json")
    path.write_text(text)
    assert store.load(lab, notebook) == store.latest(lab) == NotebookRecord(lab)
    store.save(passing(lab), notebook)
    assert store.load(lab, notebook) == passing(lab)


def test_a_lab_that_has_changed_keeps_what_it_still_has(tmp_path: Path) -> None:
    lab = catalogue.lab(LAB)
    store.save(passing(lab), "a")
    fewer = LabEntry(lab.name, lab.title, lab.opens, lab.tasks[1:])
    assert {*store.load(fewer, "a").edits} == {task.name for task in lab.tasks[1:]}


def test_the_number_of_files_is_bounded(data: Path) -> None:
    lab = catalogue.lab(LAB)
    for number in range(store.MOST_FILES + 20):
        store.save(NotebookRecord(lab, last=float(number + 1)), f"/{number}.ipynb")
        for path in data.rglob("*.json"):
            if path.stat().st_mtime > 1e6 + number:
                os.utime(path, (1e6 + number, 1e6 + number))
    found = list(data.rglob("*.*"))
    assert len(found) == store.MOST_FILES
    assert store.load(lab, f"/{store.MOST_FILES + 19}.ipynb").last == store.MOST_FILES + 20, "the oldest have gone"


def test_a_killed_writer_leaves_one_whole_record(data: Path, tmp_path: Path) -> None:
    """Killed at any moment, many times over: the file is a record each time."""
    code = (
        "from mlsys_labkit._frontends.progress import store, catalogue\n"
        "from mlsys_labkit._frontends.progress.notebook_record import NotebookRecord\n"
        "print('go', flush=True)\n"
        "n = 0\nwhile True:\n    n += 1; store.save(NotebookRecord(catalogue.lab('lab00'), last=float(n)), 'a')"
    )
    for _ in range(5):
        writer = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=ROOT, text=True)
        writer.stdout.readline()
        until = time.monotonic() + 60
        while store.latest(catalogue.lab(LAB)).last < 3 and time.monotonic() < until:
            time.sleep(0.005)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        assert store.load(catalogue.lab(LAB), "a").last >= 1


def test_without_a_home_nothing_is_kept_and_nothing_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setattr(
        Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("Could not determine home directory."))
    )
    assert store.latest(catalogue.lab(LAB)) == NotebookRecord(catalogue.lab(LAB))
    shell = InteractiveShell()
    watcher = watch.follow(shell)
    monkeypatch.setattr(watch.Watcher, "attended", property(lambda self: True))
    watcher.open(catalogue.lab(LAB))
    watcher.keep()
    assert watcher.trouble == "Could not determine home directory."
    watch.leave(shell)


# --- doors -----------------------------------------------------------------------------------------------------------


def test_progress_in_plain_python_is_a_table() -> None:
    assert re.search(r"Next is task 1 · .*[.?!]$", lk.progress("lab06").now.says)
    said = str(lk.progress("lab03"))
    assert said.splitlines()[0] == "Lab 03 · CUDA: from one thread to a matrix product"
    assert len(re.findall(r"^ +\d+  .* points  ○ not started$", said, re.MULTILINE)) == 10
    overview = str(lk.progress())
    assert [line.split("  ")[0] for line in overview.splitlines()[1:]] == [
        each.title for each in catalogue.labs().values()
    ]
    with pytest.raises(LabkitError, match=r"there is no lab 'lab77'; the labs are: lab00_your_machine, "):
        lk.progress("lab77")
    with pytest.raises(LabkitError, match="there is no lab 'lab'"):
        lk.progress("lab")


def test_progress_in_a_terminal_is_a_table(capsys: pytest.CaptureFixture[str], tmp_path: Path, data: Path) -> None:
    path = tmp_path / "mine.ipynb"
    notebook = handed_out()
    for cell in notebook["cells"]:
        if cell["id"] == "costs":
            cell["source"] = solved()["costs"]
    path.write_text(json.dumps(notebook))
    lab = catalogue.lab(LAB)
    record = NotebookRecord(lab, 4000.0, time.time() + 100)
    record.ran(solved()["costs"], "costs", True, time.time() + 100)
    for test in ("costs_test", "costs_test_ragged"):
        record.ran(cells_of()[test], test, True, time.time() + 100)
    store.save(record, str(path))
    assert main(["progress", str(path)]) == 0
    said = capsys.readouterr().out
    assert "  5  Count it " in said
    assert "1 of 9 tasks pass the checks you see; the cells that pass are worth 16 of 100 points" in said
    assert "At work for 1 h 6 min" in said
    assert main(["progress"]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("Lab 00"))
    assert re.split(r"  +", row) == ["Lab 00 · Your machine", "1 of 9", "16 of 100", "1 h 6 min"]
    for wrong in (tmp_path / "none.ipynb", ROOT / "README.md", data):
        assert main(["progress", str(wrong)]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    (tmp_path / "other.ipynb").write_text(json.dumps({"cells": [{"id": "a", "source": "1"}]}))
    assert main(["progress", str(tmp_path / "other.ipynb")]) == 2
    assert "holds no task of a lab" in capsys.readouterr().err


def test_the_panel_follows_and_all_calls_share_one_widget(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = InteractiveShell()
    monkeypatch.setattr("mlsys_labkit._frontends.progress.panel.current_shell", lambda: shell)
    shell.run_cell(cells_of()["lab00_imports"])
    first, second = lk.progress(), lk.progress("lab00")
    widget = first._widget
    assert widget is second._widget
    sent: list[str] = []
    widget.observe(lambda change: sent.append(change["name"]))
    for name in ("lab00_readings", "warmup_end"):
        shell.run_cell((solved() | {"lab00_readings": cells_of()["lab00_readings"]})[name], cell_id=name)
    shell.run_cell(cells_of()["warmup_end_test"])
    assert [task["state"] for task in widget.tasks[:2]] == ["passes", "none"]
    assert "worth 10 of 100" in widget.says
    sent.clear()
    shell.run_cell("x = 1")
    assert sent == [], "what is the same is not sent again"
    watch.leave(shell)


def test_failing_hook_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    watcher = watch.Watcher(InteractiveShell())
    watcher.before(SimpleNamespace())
    watcher.after(SimpleNamespace())
    assert capsys.readouterr() == ("", "")
