"""A lab's form: header, parameters, ids, markers, points, wrong answers, coach notes. One rule a function."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from mlsys_grading.build import markers
from mlsys_grading.build.finding import Finding, at, in_file
from mlsys_grading.build.python import parse, to_python
from mlsys_grading.lab import Cell, Lab, Task

LEAST_WRONG_ANSWERS = 3
POINTS = 100
_PARAMETERS = {"smoke", "seed"}
_HEADER = (
    "start it with a YAML header: kernelspec with display_name 'Python 3 (ipykernel)', language python, name python3"
)


def header(lab: Lab) -> Iterator[Finding]:
    """Without a YAML header jupytext forgets nbgrader's metadata; without a kernelspec papermill finds no kernel."""
    kernel = lab.metadata.get("kernelspec")
    if not kernel:
        yield in_file(lab, lab.path, 1, "header", "there is no kernelspec", _HEADER)
    elif kernel.get("name") != "python3":
        yield in_file(lab, lab.path, 1, "header", f"the kernel is {kernel.get('name')!r}", "write name: python3")


def title(lab: Lab) -> Iterator[Finding]:
    """The first cell is what a student and the lab table see first."""
    if not lab.cells or lab.cells[0].kind != "markdown" or not lab.cells[0].source.startswith("# "):
        yield in_file(
            lab,
            lab.path,
            lab.cells[0].line if lab.cells else 1,
            "title",
            "the first cell is no title",
            "start with a Markdown cell '# Title' that has objectives, minutes, difficulty, hardware, badges",
        )


def parameters(lab: Lab) -> Iterator[Finding]:
    """``labkit run`` sets ``smoke`` and ``seed`` after the one cell tagged ``parameters``."""
    cells = [cell for cell in lab.cells if "parameters" in cell.tags and cell.kind == "code"]
    if len(cells) != 1:
        line = cells[1].line if cells else 1
        yield in_file(
            lab,
            lab.path,
            line,
            "parameters",
            f"{len(cells)} cells are tagged parameters",
            'write one cell  # %% tags=["parameters"]  with  smoke = False  and  seed = 0',
        )
        return
    names = {
        target.id
        for node in ast.walk(parse(cells[0].source))
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    if missing := sorted(_PARAMETERS - names):
        yield at(
            lab, cells[0], 1, "parameters", f"{', '.join(missing)} is not set", "write  smoke = False  and  seed = 0"
        )


def metadata(lab: Lab) -> Iterator[Finding]:
    """A header with a slip in its JSON is read as plain text, and the cell silently loses its marks."""
    lines = lab.path.read_text(encoding="utf-8").splitlines()
    for cell in lab.cells:
        marker = lines[cell.line - 2]
        if "nbgrader" in marker and not cell.nbgrader:
            yield at(
                lab,
                cell,
                0,
                "metadata",
                "nbgrader's metadata in the cell header is no JSON",
                "mend the braces, quotes, true and false",
            )
        keys = {"grade", "grade_id", "locked", "schema_version", "solution", "task"}
        if cell.nbgrader and (missing := sorted(keys - set(cell.nbgrader))):
            yield at(
                lab,
                cell,
                0,
                "metadata",
                f"nbgrader's metadata lacks {', '.join(missing)}",
                "write all six keys, and points for a test",
            )


def kinds(lab: Lab) -> Iterator[Finding]:
    """All grading is automatic: no cell is marked by hand."""
    for cell in lab.cells:
        flags = cell.nbgrader
        if flags.get("task") or (flags.get("grade") and flags.get("solution")):
            yield at(
                lab,
                cell,
                0,
                "kind",
                f"{cell.grade_id} would be marked by hand",
                "write a solution cell and a test cell",
            )
        if flags.get("grade") and cell.kind != "code":
            yield at(lab, cell, 0, "kind", f"{cell.grade_id} is graded but {cell.kind}", "grade code cells only")
        if flags.get("grade") and not flags.get("locked"):
            yield at(lab, cell, 0, "kind", f"the test {cell.grade_id} is not locked", 'write "locked": true')
        if flags.get("grade") and not flags.get("points", 0) > 0:
            yield at(
                lab,
                cell,
                0,
                "kind",
                f"the test {cell.grade_id} has no points",
                'write "points": 5, or make it a plain cell',
            )


def ids(lab: Lab) -> Iterator[Finding]:
    """nbgrader keeps marks by grade id; a second cell of that name would take the first one's."""
    seen: dict[str, Cell] = {}
    for cell in lab.cells:
        if not cell.nbgrader:
            continue
        if not cell.grade_id:
            yield at(
                lab,
                cell,
                0,
                "grade id",
                "the cell has none",
                'write "grade_id": "…", unique over all labs for a solution',
            )
        elif not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", cell.grade_id):
            yield at(
                lab, cell, 0, "grade id", f"{cell.grade_id!r} is no cell id", "use up to 64 letters, digits, _ and -"
            )
        elif cell.grade_id in seen:
            first = lab.where(lab.path, seen[cell.grade_id].line)
            yield at(lab, cell, 0, "grade id", f"{cell.grade_id!r} stands at {first} already", "rename one of them")
        seen.setdefault(cell.grade_id, cell)


def test_names(lab: Lab) -> Iterator[Finding]:
    """A test is called after its task, so that a mark in a gradebook says what it is for."""
    first = lab.tasks[0].solution.index if lab.tasks else len(lab.cells)
    for cell in lab.cells[:first]:
        if cell.is_test:
            yield at(
                lab, cell, 0, "test name", f"{cell.grade_id} stands before any solution cell", "put it after its task"
            )
    for task in lab.tasks:
        for test in task.tests:
            if not re.fullmatch(re.escape(task.name) + r"_test(_\w+)?", test.grade_id):
                yield at(
                    lab,
                    test,
                    0,
                    "test name",
                    f"{test.grade_id!r} follows the task {task.name!r}",
                    f"call it {task.name}_test or {task.name}_test_<word>, or move it",
                )


def points(lab: Lab) -> Iterator[Finding]:
    """Every lab is worth the same."""
    if lab.points != POINTS:
        parts = ", ".join(f"{task.name} {task.points:g}" for task in lab.tasks)
        yield in_file(lab, lab.path, 1, "points", f"they sum to {lab.points:g} ({parts})", f"make it {POINTS}")


def balanced(lab: Lab) -> Iterator[Finding]:
    """A marker without its partner, or in the wrong kind of cell, publishes what it should hide."""
    for cell in lab.cells:
        found, wrong = markers.regions(cell.source)
        for one in wrong:
            yield at(lab, cell, one.line, "marker", one.problem, "pair each ### BEGIN with its ### END")
        for region in found:
            if region.what == markers.SOLUTION and not cell.is_solution:
                yield at(
                    lab,
                    cell,
                    region.first - 1,
                    "marker",
                    "a solution outside a solution cell",
                    'write "solution": true in the cell header',
                )
            if region.what == markers.HIDDEN and not cell.is_test:
                yield at(
                    lab,
                    cell,
                    region.first - 1,
                    "marker",
                    "hidden tests outside a test cell",
                    'write "grade": true in the cell header',
                )
        if cell.is_solution and cell.kind == "code" and not found and not wrong:
            yield at(
                lab,
                cell,
                1,
                "marker",
                f"the task {cell.grade_id} has no solution region, so that students get an empty stub",
                "keep signature and docstring, and put the body between ### BEGIN SOLUTION and ### END SOLUTION",
            )


def stub_inside_function(lab: Lab) -> Iterator[Finding]:
    """A stub at the top of a cell fails there, and the test fails with NameError in place of NotImplementedError."""
    for task in lab.tasks:
        lines = task.solution.source.split("\n")
        for region in markers.regions(task.solution.source)[0]:
            if region.what == markers.SOLUTION and not lines[region.first - 2].startswith((" ", "\t")):
                yield at(
                    lab,
                    task.solution,
                    region.first - 1,
                    "stub",
                    f"the solution of {task.name} stands outside a function",
                    "put it into a function's or method's body",
                )


def still_parses(lab: Lab) -> Iterator[Finding]:
    """What is left when hidden tests are cut out must be Python: no empty loop or ``if``."""
    for cell in lab.cells:
        if not cell.is_test:
            continue
        cut = {number for number, _ in markers.cut_text(cell.source, markers.HIDDEN)}
        rest = "\n".join("" if n in cut else line for n, line in enumerate(cell.source.split("\n"), start=1))
        for text, when in ((cell.source, ""), (rest, " without its hidden tests")):
            try:
                ast.parse(to_python(text))
            except SyntaxError as error:
                yield at(lab, cell, error.lineno or 1, "syntax", f"{cell.grade_id}{when}: {error.msg}", "mend it")
                break


def wrong_answers(lab: Lab) -> Iterator[Finding]:
    """A test is worth what it catches: at least three tempting wrong answers a graded task, each losing marks."""
    graded = {task.name: task for task in lab.tasks if task.points}
    for task in graded.values():
        count = len(lab.wrong_for(task.name))
        if count < LEAST_WRONG_ANSWERS:
            yield at(
                lab,
                task.solution,
                0,
                "wrong answers",
                f"the task {task.name} has {count}",
                f"write at least {LEAST_WRONG_ANSWERS} in wrong_answers.py, each a misconception that students have",
            )
    names = Counter((wrong.task, wrong.name) for wrong in lab.wrong_answers)
    for wrong in lab.wrong_answers:
        problem = instead = ""
        if wrong.task not in graded:
            problem, instead = f"{wrong.task!r} is no graded task", f"use one of: {', '.join(graded)}"
        elif not 0 <= wrong.keeps < graded[wrong.task].points:
            problem = f"{wrong.name} keeps {wrong.keeps:g} of {graded[wrong.task].points:g} points"
            instead = "a wrong answer loses marks: write less"
        elif names[wrong.task, wrong.name] > 1:
            problem, instead = f"{wrong.task} has two wrong answers called {wrong.name}", "rename one"
        if problem:
            yield in_file(lab, lab.wrong_path, wrong.line, "wrong answers", problem, instead)


def coach_notes(lab: Lab) -> Iterator[Finding]:
    """Each graded task has a prediction to commit to, and one to three hints."""
    path = lab.notes_path
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        yield in_file(
            lab,
            path,
            0,
            "coach",
            "the file is missing",
            "write one table a task: question, options, answer, because, hints",
        )
        return
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        yield in_file(lab, path, 0, "coach", f"not valid TOML ({error})", "mend it")
        return
    for task in lab.tasks:
        if task.points:
            yield from _note(lab, task, tables.get(task.name))


def _note(lab: Lab, task: Task, note: object) -> Iterator[Finding]:
    def finding(problem: str, instead: str) -> Finding:
        return in_file(lab, lab.notes_path, _table_line(lab, task.name), "coach", problem, instead)

    if not isinstance(note, dict):
        yield finding(f"[{task.name}] is missing", "write question, options, answer, because and hints")
        return
    if not 1 <= len(note.get("hints", ())) <= 3:
        yield finding(
            f"[{task.name}] has {len(note.get('hints', ()))} hints", "write 1 to 3, from a nudge to almost there"
        )
    if missing := [key for key in ("question", "options", "answer", "because") if key not in note]:
        yield finding(f"[{task.name}] has no {', '.join(missing)}", "each graded task has a prediction")
    elif not (isinstance(note["answer"], int) and 0 <= note["answer"] < len(note["options"])):
        yield finding(
            f"[{task.name}] answer = {note['answer']}", f"write an index into its {len(note['options'])} options"
        )


def _table_line(lab: Lab, name: str) -> int:
    lines = lab.notes_path.read_text(encoding="utf-8").splitlines()
    return next((n for n, line in enumerate(lines, start=1) if line.strip() == f"[{name}]"), 0)


def loose_files(lab: Lab) -> Iterator[Finding]:
    """Only data/ travels to students, so that a helper script with solutions in it cannot."""
    for path in sorted(lab.folder.iterdir()):
        if path not in (lab.path, lab.wrong_path, lab.folder / "data") and not path.name.startswith(
            (".", "__pycache__")
        ):
            yield in_file(
                lab,
                path,
                0,
                "files",
                "it is neither the source, nor wrong_answers.py, nor data/",
                "move it to data/ or out",
            )


def unique_tasks(labs: Sequence[Lab]) -> Iterator[Finding]:
    """Hints and predictions go by task name over all labs."""
    seen: dict[str, tuple[Lab, Cell]] = {}
    for lab in labs:
        for task in lab.tasks:
            if task.name in seen and seen[task.name][0] is not lab:
                other, cell = seen[task.name]
                yield at(
                    lab,
                    task.solution,
                    0,
                    "grade id",
                    f"the task {task.name!r} stands at {other.where(other.path, cell.line)} too",
                    "rename one",
                )
            seen.setdefault(task.name, (lab, task.solution))


RULES: tuple[Callable[[Lab], Iterator[Finding]], ...] = (
    header, title, parameters, metadata, kinds, ids, test_names, points, balanced, stub_inside_function,
    still_parses, wrong_answers, coach_notes, loose_files,
)  # fmt: skip
