"""What stands beside the notebook: wrong answers, coach notes, and nothing else."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator

from mlsys_grading.build.finding import Finding, at, in_file
from mlsys_grading.lab import Lab, Task

LEAST_WRONG_ANSWERS = 3


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
