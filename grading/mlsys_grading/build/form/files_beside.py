"""Rules for the files beside the notebook: wrong answers, coach notes, and nothing else."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator

from mlsys_grading.build.finding import Objection
from mlsys_grading.lab import Lab

LEAST_WRONG_ANSWERS = 3


def wrong_answers(lab: Lab) -> Iterator[Objection]:
    """Require three wrong answers to each graded task, each with its own name and fewer points than the task."""
    graded = {task.name: task for task in lab.tasks if task.points}
    for task in graded.values():
        count = len(lab.wrong_for(task.name))
        if count < LEAST_WRONG_ANSWERS:
            instead = f"write at least {LEAST_WRONG_ANSWERS} in wrong_answers.py, each a misconception of students"
            yield task.solution, 0, f"the task {task.name} has {count}", instead
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
            yield lab.wrong_path, wrong.line, problem, instead


def coach_notes(lab: Lab) -> Iterator[Objection]:
    """Require a prediction and one to three hints for each graded task."""
    path = lab.notes_path
    try:
        text = path.read_text(encoding="utf-8")
        tables = tomllib.loads(text)
    except FileNotFoundError:
        yield path, 0, "the file is missing", "write one table a task: question, options, answer, because, hints"
        return
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        yield path, 0, f"not valid TOML ({error})", "mend it"
        return
    heads = {line.strip(): number for number, line in reversed([*enumerate(text.splitlines(), start=1)])}
    for task in (task for task in lab.tasks if task.points):
        name = f"[{task.name}]"
        for problem, instead in _note(name, tables.get(task.name)):
            yield path, heads.get(name, 0), problem, instead


def _note(name: str, note: object) -> Iterator[tuple[str, str]]:
    if not isinstance(note, dict):
        yield f"{name} is missing", "write question, options, answer, because and hints"
        return
    if not 1 <= len(note.get("hints", ())) <= 3:
        yield f"{name} has {len(note.get('hints', ()))} hints", "write 1 to 3, from a nudge to almost there"
    if missing := [key for key in ("question", "options", "answer", "because") if key not in note]:
        yield f"{name} has no {', '.join(missing)}", "each graded task has a prediction"
    elif not (isinstance(note["answer"], int) and 0 <= note["answer"] < len(note["options"])):
        yield f"{name} answer = {note['answer']}", f"write an index into its {len(note['options'])} options"


def loose_files(lab: Lab) -> Iterator[Objection]:
    """Find other files: only data/ travels to students, so that a helper script with solutions in it cannot."""
    for path in sorted(lab.folder.iterdir()):
        known = path in (lab.path, lab.wrong_path, lab.folder / "data")
        if not known and not path.name.startswith((".", "__pycache__")):
            yield path, 0, "it is neither the source, nor wrong_answers.py, nor data/", "move it to data/ or out"
