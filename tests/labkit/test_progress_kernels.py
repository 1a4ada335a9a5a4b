"""``lk.progress()`` in real kernels: which runs count as passing, what is stored, and no effect on other code."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

from tests.labkit.person import LAB, Person, at, cells_of, handed_out, kept, solved

pytestmark = [pytest.mark.places, pytest.mark.xdist_group("progress"), pytest.mark.timeout(900)]

CELLS, RIGHT = cells_of(), solved()
OPENS = ("lab00_imports", "lab00_readings")
ROUGH = "def warmup_end(samples):\n    return 0"
POINTS = {  # as nbgrader has them
    cell["id"]: cell["metadata"]["nbgrader"]["points"]
    for cell in handed_out()["cells"]
    if cell["metadata"].get("nbgrader", {}).get("grade")
}


def open_lab(person: Person) -> Person:
    for name in OPENS:
        assert not person.run(CELLS[name], name).error
    return person


def solve(person: Person, task: str, *tests: str) -> None:
    person.run(RIGHT[task], task)
    for test in tests:
        assert not person.run(CELLS[test], test).error


@pytest.fixture
def notebook(tmp_path: Path) -> Path:
    path = tmp_path / "work" / f"{LAB}.ipynb"
    path.parent.mkdir()
    shutil.copy(os.path.join(os.path.dirname(__file__), "..", "..", "labs", LAB, f"{LAB}.ipynb"), path)
    return path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def person(notebook: Path, home: Path) -> Iterator[Person]:
    with at(notebook, home) as person:
        yield open_lab(person)


def test_progress_shows_right_wrong_and_untouched_tasks(person: Person) -> None:
    assert set(person.states().values()) == {"not started"}
    solve(person, "warmup_end", "warmup_end_test")
    person.run("def dot_cost(n, itemsize):\n    return 2 * n, 8", "costs")
    assert person.run(CELLS["costs_test"], "costs_test").error == "CheckError"
    person.run(CELLS["copy_bandwidth"], "copy_bandwidth")  # the stub, and its tests: running all cells starts nothing
    assert person.run(CELLS["copy_bandwidth_test"], "copy_bandwidth_test").error == "NotImplementedError"
    states = person.states()
    assert [states.pop("warmup_end"), states.pop("costs")] == ["passes", "tried"]
    assert set(states.values()) == {"not started"}
    said = person.panel()
    assert "✓ passes" in said
    assert "tried: costs_test fails" in said
    assert f"worth {POINTS['warmup_end_test']} of {sum(POINTS.values())} points" in said
    assert "Next is task 2 · How sure is that median?" in said


def test_progress_counts_the_points_of_each_test_cell(person: Person) -> None:
    person.run(RIGHT["costs"].replace("2 * m * n, (m", "2 * m * n + 1, (m"), "costs")
    assert person.run(CELLS["costs_test"], "costs_test").error
    assert not person.run(CELLS["costs_test_ragged"], "costs_test_ragged").error
    assert person.states()["costs"] == "tried"
    assert f"worth {POINTS['costs_test_ragged']} of 100 points" in person.panel()


def test_pass_is_void_after_the_answer_changes(person: Person) -> None:
    solve(person, "warmup_end", "warmup_end_test")
    person.run(ROUGH, "warmup_end")
    assert person.states()["warmup_end"] == "run again"
    assert "worth 0 of 100 points" in person.panel()
    person.run(RIGHT["warmup_end"] + "\n", "warmup_end")  # the text that was tested, but for a blank line
    assert person.states()["warmup_end"] == "passes"
    person.run(ROUGH, "a-scratch-cell")
    assert person.states()["warmup_end"] == "run again", "whatever defines the name has taken the answer's place"
    person.run(CELLS["warmup_end_test"], "warmup_end_test")
    assert person.states()["warmup_end"] == "tried"


def test_an_edit_that_was_saved_and_never_run_counts(person: Person, notebook: Path) -> None:
    """Check that the saved file is what counts, because it is what is handed in."""
    solve(person, "warmup_end", "warmup_end_test")
    copy = nbformat.read(notebook, as_version=4)

    def save(source: str, seconds: int) -> None:
        next(cell for cell in copy.cells if cell.id == "warmup_end").source = source
        nbformat.write(copy, notebook)
        later = notebook.stat().st_mtime + seconds
        os.utime(notebook, (later, later))

    save(ROUGH, -3600)
    assert person.states()["warmup_end"] == "passes", "a file older than the run says nothing"
    save(ROUGH, 3600)
    assert person.states()["warmup_end"] == "run again"
    save(RIGHT["warmup_end"], 7200)
    assert person.states()["warmup_end"] == "passes"


def test_a_test_that_was_edited_earns_nothing(person: Person) -> None:
    person.run(ROUGH, "warmup_end")
    assert not person.run("assert True", "warmup_end_test").error
    assert person.states()["warmup_end"] == "tried"
    assert "warmup_end_test is not the test that was handed out" in person.panel()


def commit(person: Person, task: str, choice: int) -> None:
    """Choose an option as the card in the page does: by a message to the widget's model, and not by a cell."""
    shown = person.run(f"lk.predict({task!r})").data["application/vnd.jupyter.widget-view+json"]
    state = {"method": "update", "state": {"choice": choice}, "buffer_paths": []}
    content = {"comm_id": shown["model_id"], "data": state}
    person.client.shell_channel.send(person.client.session.msg("comm_msg", content))


def test_a_prediction_stays_when_cells_run_again_and_when_the_kernel_restarts(person: Person) -> None:
    ask = "print(lk.predict('warmup_end').choice)"
    assert person.run(ask).text == "None\n"
    commit(person, "warmup_end", 1)
    assert person.run(ask).text == "1\n"
    commit(person, "warmup_end", 0)  # and nothing runs before the kernel restarts
    person.client.kernel_info(reply=True, timeout=300)
    person.restart()
    open_lab(person)
    assert person.run(ask).text == "0\n"
    assert person.run("print(lk.predict('warmup_end', again=True).choice)").text == "None\n"
    person.restart()
    open_lab(person)
    assert person.run(ask).text == "None\n"


def test_a_test_cell_that_passes_says_in_one_line_what_it_checked(person: Person, notebook: Path, home: Path) -> None:
    assert not person.run(RIGHT["warmup_end"], "warmup_end").text
    passes = person.run(CELLS["warmup_end_test"], "warmup_end_test")
    assert (passes.error, passes.stderr) == ("", "")
    says_it_itself = CELLS["warmup_end_test"].splitlines()[-1].startswith("print(")
    assert says_it_itself or passes.text.startswith("✓ warmup_end_test passes: ")
    assert passes.text.count("\n") == 1
    assert len(passes.text) < 160
    person.run(ROUGH, "warmup_end")
    assert "✓" not in person.run(CELLS["warmup_end_test"], "warmup_end_test").text
    assert person.run("lk.checks.expect_equal(1, 1, name='a scratch cell')").text == ""
    with at(notebook, home, can_type=False) as program:  # papermill, nbgrader, a grader
        open_lab(program)
        program.run(RIGHT["warmup_end"], "warmup_end")
        assert program.run(CELLS["warmup_end_test"], "warmup_end_test").text == ""


def test_a_restart_forgets_nothing_and_another_notebook_knows_nothing(
    person: Person, notebook: Path, home: Path
) -> None:
    solve(person, "warmup_end", "warmup_end_test")
    person.run("lk.hint('costs'); lk.hint('costs')")
    person.restart()
    open_lab(person)
    assert person.states()["warmup_end"] == "passes"
    assert "2 of 3" in person.run("print(lk.progress().now.state()['tasks'][4]['hints'])").text
    other = notebook.with_name("copy.ipynb")
    shutil.copy(notebook, other)
    with at(other, home) as second:
        open_lab(second)
        assert set(second.states().values()) == {"not started"}
        solve(second, "copy_bandwidth", "copy_bandwidth_test")
        assert person.states()["copy_bandwidth"] == "not started"
        assert person.states()["warmup_end"] == second.states()["copy_bandwidth"] == "passes"
    assert len(kept(home)) == 2
    moved = notebook.rename(notebook.with_name("mine.ipynb"))
    with at(moved, home) as third:
        open_lab(third)
        assert third.states()["warmup_end"] == "passes", "a renamed notebook keeps its record"
    assert len(kept(home)) == 2


def test_nothing_of_an_answer_is_kept(person: Person, home: Path) -> None:
    solve(person, "warmup_end", "warmup_end_test")
    (path,) = kept(home)
    record = json.loads(path.read_text())
    assert set(record) == {"schema", "lab", "seconds", "last", "edits", "outcomes", "hints", "predictions", "notebook"}
    assert not any(line.strip() in path.read_text() for line in RIGHT["warmup_end"].splitlines() if len(line) > 20)
    assert path.stat().st_size < 4096
    assert path.stat().st_mode & 0o077 == 0


def test_without_cell_ids_tests_are_known_by_text_and_answers_by_what_they_define(notebook: Path, home: Path) -> None:
    with at(None, home, sends_ids=False) as person:
        open_lab(person)
        solve(person, "warmup_end", "warmup_end_test")
        solve(person, "costs", "costs_test", "costs_test_ragged")
        states = person.states()
        assert [name for name, state in states.items() if state == "passes"] == ["warmup_end", "costs"]
        person.run(ROUGH)
        assert person.states()["warmup_end"] == "run again"
        person.restart()
        open_lab(person)
        assert person.states()["costs"] == "passes"


@pytest.mark.parametrize("place", ["file", "full", "kernel"])
def test_panel_reports_a_record_that_cannot_be_written(notebook: Path, home: Path, tmp_path: Path, place: str) -> None:
    """A file in the folder's place, a disk with 64 free bytes, and a file system of the kernel."""
    (tmp_path / "file").write_text("")
    data = {"file": str(tmp_path / "file"), "full": str(tmp_path / "data"), "kernel": "/proc/self"}[place]
    with at(notebook, home, XDG_DATA_HOME=data) as person:
        open_lab(person)
        if place == "full":
            solve(person, "costs", "costs_test", "costs_test_ragged")
            (path,) = (tmp_path / "data").rglob("*.json")
            before = path.read_bytes()
            person.run("import resource, signal; resource.setrlimit(resource.RLIMIT_FSIZE, (64, -1))")
        for name, source in (("warmup_end", RIGHT["warmup_end"]), ("warmup_end_test", CELLS["warmup_end_test"])):
            said = person.run(source, name)
            assert (said.error, said.stderr) == ("", "")
            assert said.text.count("\n") == (name == "warmup_end_test"), "the line that says what passed, and no more"
        assert person.states()["warmup_end"] == "passes"
        assert "Kept only until this kernel ends:" in person.panel()
        if place == "full":
            assert path.read_bytes() == before, "the old record, whole"
            assert [one.name for one in path.parent.iterdir()] == [path.name], "and no scrap beside it"


def test_error_in_the_watcher_does_not_reach_the_cell(person: Person) -> None:
    module = "mlsys_labkit._frontends.progress.notebook_record"
    broken = f"import {module} as r\nr.NotebookRecord.ran = r.NotebookRecord.tick = None"
    said = [person.run(broken), person.run("x = 1", "warmup_end"), person.run("print(x)")]
    assert [(one.error, one.stderr) for one in said] == [("", "")] * 3
    assert said[-1].text == "1\n"


def test_unloading_the_extension_ends_it(person: Person) -> None:
    callbacks = "get_ipython().events.callbacks['post_run_cell']"
    count = f"print(sum('frontends.progress' in c.__module__ for c in {callbacks} if hasattr(c, '__module__')))"
    assert person.run(count).text == "1\n"
    person.run("%reload_ext mlsys_labkit")
    assert person.run(count).text == "1\n"
    person.run("%unload_ext mlsys_labkit")
    assert person.run(count).text == "0\n"


# --- runs by a program ----------------------------------------------------------------------------------------------


def solution_notebook() -> nbformat.NotebookNode:
    """Return the student's notebook with answers in some of its cells."""
    notebook = nbformat.reads(json.dumps(handed_out()), as_version=4)
    for cell in notebook.cells:
        if cell.id in ("warmup_end", "costs"):
            cell.source = RIGHT[cell.id]
    notebook.cells = [
        cell for cell in notebook.cells if cell.id in {*OPENS, *RIGHT, *POINTS} or cell.source == "lk.progress()"
    ]
    return notebook


# All three doors execute with nbclient: what they add is seconds.
@pytest.mark.parametrize(
    "door", ["nbclient", *(pytest.param(door, marks=pytest.mark.soak) for door in ("papermill", "nbconvert"))]
)
def test_a_headless_run_shows_the_table_and_leaves_no_file(home: Path, tmp_path: Path, door: str) -> None:
    path, out = tmp_path / "in.ipynb", tmp_path / "out.ipynb"
    notebook = solution_notebook()
    for cell in notebook.cells:
        if cell.id in ("copy_bandwidth", "large_enough"):
            cell.metadata.tags = ["raises-exception"]
    notebook.cells = [c for c in notebook.cells if c.id not in POINTS or c.id.startswith(("warmup_end", "costs"))]
    nbformat.write(notebook, path)
    command = {
        "nbclient": ["-m", "jupyter", "execute", str(path), "--output", "out"],
        "papermill": ["-m", "papermill", "--no-progress-bar", str(path), str(out)],
        "nbconvert": ["-m", "nbconvert", "--execute", "--to", "notebook", "--output", str(out), str(path)],
    }[door]
    nested = {"JPY_SESSION_NAME": str(path)}  # as in a terminal of JupyterLab, or after a "!"
    environment = os.environ | {"HOME": str(home), "LABKIT_RELEASE": "http://127.0.0.1:9/"} | nested
    environment.pop("XDG_DATA_HOME", None)
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"  # jupyter looks there
    home.mkdir()
    done = subprocess.run(
        [sys.executable, *command], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    last = [cell for cell in nbformat.read(out, as_version=4).cells if cell.source == "lk.progress()"][-1]
    (output,) = last.outputs
    said = output.data["text/plain"]
    earned = sum(POINTS[name] for name in ("warmup_end_test", "costs_test", "costs_test_ragged"))
    assert f"2 of 9 tasks pass the checks you see; the cells that pass are worth {earned} of 100 points" in said
    assert "newest is not known" not in said, "no network where nobody asked"
    assert "<table>" in output.data["text/html"]
    assert kept(home) == []


def test_an_author_sees_the_whole_lab_pass(home: Path) -> None:
    """Tests with their hidden part count as the same tests."""
    with at(None, home, sends_ids=False, can_type=False) as person:
        open_lab(person)
        solve_all = {name: RIGHT[name] for name in ("warmup_end", "warmup_end_test", "costs", "costs_test")}
        for source in solve_all.values():
            assert not person.run(source).error
        assert person.states()["warmup_end"] == "passes"
        assert person.states()["costs"] == "tried"
