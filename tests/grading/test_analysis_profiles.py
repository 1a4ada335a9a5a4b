"""Wrong answers identified by how they fail: graded for real, and found again after rewording."""

from __future__ import annotations

import ast
import csv
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mlsys_grading.analysis.misconceptions import Profiles, profile, resemblances
from mlsys_grading.analysis.profiles import Key, ProfileStore, find_profiles, wrong_jobs
from mlsys_grading.build.notebook import source_notebook
from mlsys_grading.grade.bounds import Bounds
from mlsys_grading.grade.course import CourseFolder
from mlsys_grading.grade.engine import Done, GradingEngine, open_engine
from mlsys_grading.grade.job import GradingJob
from mlsys_grading.grade.reference import learn
from mlsys_grading.grade.store import Store
from mlsys_grading.lab import Lab, Task, lab_names, read_lab
from mlsys_grading.result import CellMark, Result
from mlsys_labkit._frontends.cli import main
from tests.grading.course import FIXTURE, LAB
from tests.grading.test_analysis_report import RIGHT, SIGN_LOST, TALLY, cells

ROOT = Path(__file__).parents[2]
sandboxed = [
    pytest.mark.usefixtures("sandbox_allowed"),
    pytest.mark.xdist_group("grade"),
]


def in_other_words(source: str) -> str:
    """Rewrite a program with other local names and layout and no comments; leave C++ and magics unchanged."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return source
    mine, public = set(), {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    for scope in ast.walk(tree):
        match scope:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                public.add(name)
                stored = (node for node in ast.walk(scope) if isinstance(node, ast.Name))
                mine |= {node.id for node in stored if isinstance(node.ctx, ast.Store)}
            case ast.Module(body=body) | ast.ClassDef(body=body):
                outer = (node for each in body if not isinstance(each, _SCOPES) for node in ast.walk(each))
                public |= {node.id for node in outer if isinstance(node, ast.Name)}
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                public |= set(names)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in mine - public:
            node.id += "_mine"
    return ast.unparse(tree)


_SCOPES = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def reworded(lab: Lab) -> Lab:
    return replace(lab, wrong_answers=tuple(replace(w, source=in_other_words(w.source)) for w in lab.wrong_answers))


def profiles_of(engine: GradingEngine, course: Path, lab: Lab, kept_as: str) -> Profiles:
    source, bounds = CourseFolder.at(course).source(lab.name), Bounds()
    bounds = bounds.of(source.notebook)
    jobs = dict(wrong_jobs(source, lab, learn(engine, source, bounds, Store(course)), bounds))
    return find_profiles(engine, jobs, lab, ProfileStore(course, kept_as))


def found_again(lab: Lab, known: Profiles, other: Profiles) -> Iterator[tuple[Key, list[str], list[str]]]:
    """Yield each wrong answer, those of the same profile, and those that its reworded copy resembles."""
    tasks = {task.name: task for task in lab.tasks}
    for (task, name), failures in other.items():
        twins = [each for (of, each), its in known.items() if of == task and its == known[task, name]]
        like = resemblances(lab, tasks[task], "pass", failures, known)
        yield (task, name), twins, [each.wrong for each in like if each.how == "same results"]


def gradeable() -> Lab:
    """Return the tiny lab with its imports in a locked cell, because an examiner runs only locked cells."""
    lab = read_lab(FIXTURE, LAB)
    locked = {
        "grade_id": "imports",
        "locked": True,
        "solution": False,
        "grade": False,
        "schema_version": 3,
        "task": False,
    }
    made = (replace(c, metadata={"nbgrader": locked}) if "import mlsys_labkit" in c.source else c for c in lab.cells)
    return replace(lab, cells=tuple(made))


def make_course(root: Path, lab: Lab) -> Path:
    folder = root / "source" / lab.name
    folder.mkdir(parents=True)
    (root / "submitted").mkdir(exist_ok=True)
    (folder / f"{lab.name}.ipynb").write_text(json.dumps(source_notebook(lab)), "utf-8")
    lab.copy_data(folder)
    return root


class TestOneLab:
    """The whole way on a tiny lab: ``labkit grade``, and the verbs after it."""

    pytestmark = sandboxed

    def test_graded_submission_is_explained(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        lab = gradeable()
        course = make_course(tmp_path / "course", lab)
        in_place = next(wrong.source for wrong in lab.wrong_answers if wrong.name == "in_place")
        loop = (
            "def scaled(x, factor):\n    for i in range(len(x)):\n        x[i] = x[i] * factor\n    return np.array(x)"
        )
        for student, scaled in (("ada", RIGHT), ("bob", SIGN_LOST), ("cy", loop), ("dan", in_other_words(in_place))):
            folder = course / "submitted" / student / LAB
            folder.mkdir(parents=True)
            notebook = {"cells": cells(lab, scaled=scaled, Tally=TALLY)}
            (folder / f"{LAB}.ipynb").write_text(json.dumps(notebook), "utf-8")
        place = ["--course", str(course)]
        assert main(["grade", LAB, "--jobs", "1", *place]) == 0
        with open(course / "grades" / f"{LAB}.csv", newline="") as file:
            rows = list(csv.reader(file))
        assert rows[0] == ["student", "score", "max score", "late penalty", "scaled (50)", "Tally (50)"]
        assert rows[1] == ["ada", "100", "100", "0", "50", "50"]
        assert [row[0] for row in rows[1:]] == ["ada", "bob", "cy", "dan"]
        capsys.readouterr()

        wrong = ["--root", str(FIXTURE), "--jobs", "1", *place]
        assert main(["explain", "cy", "scaled", *wrong]) == 0
        said = capsys.readouterr()
        assert "3 wrong answers to grade, once" in said.err, "only this task's"
        assert "It gives the results of the wrong answer in_place: multiplying in place makes a copy" in said.out
        assert main(["explain", "ada", "scaled", *wrong]) == 0
        assert "wrong answer" not in capsys.readouterr().out
        assert main(["report", LAB, *wrong]) == 0
        assert f"{len(lab.wrong_answers) - 3} wrong answers to grade, once" in capsys.readouterr().err
        told = json.loads((course / "report" / LAB / "report.json").read_text("utf-8"))
        alike = {one["name"]: (one["same_code"], one["same_results"], one["same_failures"]) for one in told["common"]}
        assert alike == {"in_place": (1, 1, 0), "sign_lost": (1, 0, 0)}
        assert main(["report", LAB, *wrong]) == 0
        assert capsys.readouterr().err == "", "they are kept"

        with open_engine("local", 1) as engine:
            known = profiles_of(engine, course, lab, LAB)
            other = profiles_of(engine, course, reworded(lab), "reworded")
        for key, twins, like in found_again(lab, known, other):
            assert key[1] in twins == like


def lab_and_jobs(tmp_path: Path) -> tuple[Lab, dict[Key, GradingJob]]:
    lab = read_lab(FIXTURE, LAB)
    source = CourseFolder.at(make_course(tmp_path, lab)).source(LAB)
    return lab, dict(wrong_jobs(source, lab, {}, Bounds()))


class Failing:
    """An engine that runs nothing: every wrong answer fails its first test, or counts as a failure of the machine."""

    def __init__(self, lab: Lab, trouble: Iterable[str] = ()) -> None:
        self.lab, self.trouble, self.asked = lab, set(trouble), []

    def run(self, jobs: Iterable[GradingJob], tick: Callable[[int], None] = lambda running: None) -> Iterator[Done]:
        for job in jobs:
            task, wrong = job.student.split()
            self.asked.append(wrong)
            if wrong in self.trouble:
                yield Done(Result(job.name, job.lab, job.student, (), status="infrastructure", why="no room"), {})
                continue
            test = next(each for each in self.lab.tasks if each.name == task).tests[0]
            mark = CellMark(test.grade_id, 0.0, test.points, f"AssertionError: {wrong}", ("AssertionError",))
            yield Done(Result(job.name, job.lab, job.student, (mark,)), {})


def test_find_profiles_grades_only_missing_jobs(tmp_path: Path) -> None:
    lab, jobs = lab_and_jobs(tmp_path)
    names = [name for _, name in jobs]
    engine: Any = Failing(lab, ["sign_lost"])
    found = find_profiles(engine, jobs, lab, ProfileStore(tmp_path, LAB), "scaled")
    assert engine.asked == [name for task, name in jobs if task == "scaled"]
    assert ("scaled", "sign_lost") not in found, "the machine's failure is no profile"
    assert {task for task, _ in found} == {"scaled"}

    engine = Failing(lab)
    found = find_profiles(engine, jobs, lab, ProfileStore(tmp_path, LAB))
    assert set(engine.asked) == {"sign_lost", *(name for task, name in jobs if task != "scaled")}
    assert [each for _, each in found] == names
    engine = Failing(lab)
    assert find_profiles(engine, jobs, lab, ProfileStore(tmp_path, LAB)) == found
    assert engine.asked == []

    changed = tuple(replace(w, source=f"{w.source}\n# more") if w.name == "in_place" else w for w in lab.wrong_answers)
    source = CourseFolder.at(tmp_path).source(LAB)
    anew = dict(wrong_jobs(source, replace(lab, wrong_answers=changed), {}, Bounds()))
    find_profiles(engine, anew, lab, ProfileStore(tmp_path, LAB))
    assert engine.asked == ["in_place"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a": 3}', '{"a": {"t": {"kind": 1}}}', "\udcff"])
def test_broken_profile_store_counts_as_empty(tmp_path: Path, text: str) -> None:
    lab, jobs = lab_and_jobs(tmp_path)
    path = tmp_path / ".mlsys-grading" / "profiles" / f"{LAB}.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    engine: Any = Failing(lab)
    assert len(find_profiles(engine, jobs, lab, ProfileStore(tmp_path, LAB))) == len(jobs)


def test_wrong_job_has_its_tasks_tests_and_one_wrong_cell(tmp_path: Path) -> None:
    lab, jobs = lab_and_jobs(tmp_path)
    assert set(jobs) == {(wrong.task, wrong.name) for wrong in lab.wrong_answers}
    for wrong in lab.wrong_answers:
        job = jobs[wrong.task, wrong.name]
        task = next(task for task in lab.tasks if task.name == wrong.task)
        names = [cell["metadata"].get("nbgrader", {}) for cell in job.source]
        assert [name["grade_id"] for name in names if name.get("grade")] == [test.grade_id for test in task.tests]
        different = [b["source"] for a, b in zip(job.source, job.submission, strict=True) if a["source"] != b["source"]]
        assert different == [wrong.source]


@pytest.mark.parametrize("name", lab_names(ROOT))
def test_code_comparison_names_every_wrong_answer_and_no_right_one(name: str) -> None:
    """The code of all labs is compared, and not run; the long test compares results."""
    lab = read_lab(ROOT, name)
    for task in lab.tasks:
        failed = profile(task, _all_lost(task))
        assert failed
        assert resemblances(lab, task, task.solution.source, {}) == ()
        for wrong in lab.wrong_for(task.name):
            like = resemblances(lab, task, in_other_words(wrong.source), failed)
            assert [each.wrong for each in like] == [wrong.name], f"{task.name} / {wrong.name}"


def _all_lost(task: Task) -> list[CellMark]:
    return [CellMark(test.grade_id, 0.0, test.points, "CheckError: wrong", ("CheckError",)) for test in task.tests]


@pytest.mark.soak
@pytest.mark.usefixtures("sandbox_allowed")
@pytest.mark.parametrize("name", lab_names(ROOT))
def test_reworded_wrong_answers_are_found_by_their_results(name: str, tmp_path: Path) -> None:
    lab = read_lab(ROOT, name)
    course = make_course(tmp_path, lab)
    with open_engine("local", 4) as engine:
        known = profiles_of(engine, course, lab, name)
        other = profiles_of(engine, course, reworded(lab), "reworded")
    assert len(known) == len(other) == len(lab.wrong_answers)
    told = list(found_again(lab, known, other))
    assert [(key, like) for key, _, like in told if like and key[1] not in like] == [], "taken for another"
    alone = [like == [key[1]] for key, twins, like in told if len(twins) == 1]
    assert sum(alone) >= 0.9 * len(alone)
