"""The verdict on a proof: marks by nbgrader's own rule, and every promise that a lab breaks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from mlsys_grading.build.markers import HIDDEN, regions
from mlsys_grading.lab import Cell, Lab, Task, WrongAnswer
from mlsys_grading.prove.plan import SOLUTION, UNSOLVED, job_name

Result = Mapping[str, Any]  # as prove.forks.branch writes it
MOST_UNSEEN = 0.2
"""Share of a lab's wrong answers that no visible check needs to catch."""

_SLIPS = {
    "SyntaxError": "the wrong answer is no Python",
    "NameError": "the wrong answer uses a name that does not exist",
    "ImportError": "the wrong answer imports what does not exist",
    "NotImplementedError": "a wrong answer that does nothing tempts nobody",
}


@dataclass(frozen=True)
class Problem:
    """A broken promise, with the place to mend."""

    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.where}: {self.text}"


@dataclass(frozen=True)
class WrongProof:
    """One wrong answer: the points that it earned, the check that caught it, and why that does not count (``slip``).

    ``seen`` is whether a check that students see caught it.
    """

    name: str
    misconception: str
    earned: float
    keeps: float
    caught_by: str
    slip: str = ""
    seen: bool = False

    @property
    def caught(self) -> bool:
        return not self.slip


@dataclass(frozen=True)
class TaskProof:
    """One task: its points, those that the solution and the stubs earned, and its wrong answers."""

    name: str
    points: float
    solution: float
    unsolved: float
    wrong: tuple[WrongProof, ...]

    @property
    def caught(self) -> int:
        return sum(wrong.caught for wrong in self.wrong)

    @property
    def seen(self) -> int:
        return sum(wrong.seen for wrong in self.wrong)


@dataclass(frozen=True)
class LabProof:
    """One lab; proved when there are no problems."""

    name: str
    tasks: tuple[TaskProof, ...]
    problems: tuple[Problem, ...]
    seconds: float  # of all cells that ran, over all workers

    @property
    def proved(self) -> bool:
        return not self.problems

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "proved": self.proved}


def judge(lab: Lab, results: Mapping[str, Result]) -> LabProof:
    """Judge all results of a lab; a job without a result is a problem too."""
    problems: list[Problem] = []
    solution = _Pass(lab, results.get(job_name(lab.name, SOLUTION)), "the solution", problems)
    unsolved = _Pass(lab, results.get(job_name(lab.name, UNSOLVED)), "the unsolved notebook", problems)
    for cell in lab.cells:
        # A cell that fails solved and unsolved is one problem; the solution's message is the useful one.
        if solution.expect_success(cell):
            unsolved.expect_stub(cell)
    tasks = []
    for task in lab.tasks:
        if not task.tests:
            continue
        proofs = []
        for wrong in lab.wrong_for(task.name):
            result = results.get(job_name(lab.name, "wrong", task.name, wrong.name))
            proofs.append(_judge_wrong(lab, task, wrong, result))
            problem = proofs[-1].slip or _sight(wrong, proofs[-1].seen)
            if problem and solution.points(task) == task.points:
                where = lab.where(lab.wrong_path, wrong.line)
                problems.append(Problem(where, f"{task.name} / {wrong.name}: {problem}"))
        tasks.append(TaskProof(task.name, task.points, solution.points(task), unsolved.points(task), tuple(proofs)))
    if not tasks:
        problems.append(Problem(lab.where(lab.path), "there is no graded task, so that nothing is proved; write one"))
    unseen = [wrong for wrong in lab.wrong_answers if wrong.unseen]
    if len(unseen) > MOST_UNSEEN * len(lab.wrong_answers):
        text = f"{len(unseen)} of {len(lab.wrong_answers)} wrong answers are unseen, at most {MOST_UNSEEN:.0%} may be"
        problems.append(Problem(lab.where(lab.wrong_path), f"{text}; let visible checks catch more of them"))
    mine = [result for name, result in results.items() if name.startswith(f"{lab.name}.")]
    seconds = sum(ran["seconds"] for result in mine for ran in result["ran"])
    return LabProof(lab.name, tuple(tasks), tuple(problems), seconds)


def marks(cell: Cell, ran: Mapping[str, Any] | None) -> float:
    """Return nbgrader's marks for a test cell: 0 after an error or stderr text, else its last value or all points."""
    import nbformat
    from nbformat import v4
    from nbgrader.utils import determine_grade

    if ran is None:
        return 0.0
    outputs = [nbformat.from_dict(output) for output in ran["outputs"]]  # type: ignore[no-untyped-call]
    node = v4.new_code_cell(cell.source, metadata=dict(cell.metadata), outputs=outputs)  # type: ignore[no-untyped-call]
    try:
        earned, _ = determine_grade(node)
    except ValueError:  # more than the cell's points: nbgrader refuses to grade it
        return 0.0
    return float(earned or 0.0)


class _Pass:
    """One run of the whole notebook."""

    def __init__(self, lab: Lab, result: Result | None, who: str, problems: list[Problem]) -> None:
        self._lab, self._who, self._problems = lab, who, problems
        self._ran = {ran["index"]: ran for ran in result["ran"]} if result else {}
        self._complete = result is not None and result["status"] == "done"
        if result is None:
            problems.append(Problem(lab.where(lab.path), f"{who} was not run; run it again"))
        elif result["status"] != "done":
            cell = next((c for c in lab.cells if result["at"] in (c.grade_id, f"cell {c.index + 1}")), lab.cells[0])
            self._say(cell, 1, f"{who} stopped in {_name(cell)}: {result['why']}")

    def points(self, task: Task) -> float:
        return sum(marks(test, self._ran.get(test.index)) for test in task.tests)

    def expect_success(self, cell: Cell) -> bool:
        ran = self._ran.get(cell.index)
        before = len(self._problems)
        if ran is None:
            return True
        if error := ran["error"]:
            if "raises-exception" not in cell.tags:
                self._say(cell, error["line"] or 1, f"{self._who} fails in {_name(cell)}: {_what(error)}")
        elif cell.is_test and marks(cell, ran) != cell.points:
            earned = f"gets {marks(cell, ran):g} of {cell.points:g} points in {_name(cell)}"
            self._say(cell, 1, f"{self._who} {earned}: {_odd_output(ran)}")
        return len(self._problems) == before

    def expect_stub(self, cell: Cell) -> None:
        ran = self._ran.get(cell.index)
        if ran is None:
            return
        error, name = ran["error"], _name(cell)
        text = ""
        if not cell.is_test:
            if error and "raises-exception" not in cell.tags:
                text = f"fails in {name}, which is not graded: {_what(error)}; "
                text += "put what needs a solution into  with lk.picture(...):"
        elif error is None:
            text = f"gets {marks(cell, ran):g} points in {name}; call the task's function in it"
        elif "NotImplementedError" not in error["kinds"]:
            text = f"fails in {name} with {_what(error)}, not NotImplementedError; call the stub first"
        if text:
            self._say(cell, error["line"] or 1 if error else 1, f"{self._who} {text}")

    def _say(self, cell: Cell, line: int, text: str) -> None:
        self._problems.append(Problem(self._lab.where(self._lab.path, cell.line + line - 1), text))


def _sight(wrong: WrongAnswer, seen: bool) -> str:
    """Return the problem where a wrong answer is seen or unseen against what its header says."""
    if seen and wrong.unseen:
        return 'a visible check catches it; remove "unseen" from its header'
    if not seen and not wrong.unseen:
        return 'only a hidden test catches it; test it visibly, or give the reason in its header: "unseen": "..."'
    return ""


def _judge_wrong(lab: Lab, task: Task, wrong: WrongAnswer, result: Result | None) -> WrongProof:
    def proof(earned: float, caught_by: str, slip: str = "") -> WrongProof:
        return WrongProof(wrong.name, wrong.misconception, earned, wrong.keeps, caught_by, slip)

    if result is None:
        return proof(task.points, "", "not run; see what stopped the solution's run")
    ran = {one["index"]: one for one in result["ran"]}
    earned = sum(marks(test, ran.get(test.index)) for test in task.tests)
    if result["status"] != "done":
        advice = "make it wrong, not endless" if result["status"] == "timeout" else "a wrong answer raises or returns"
        return proof(earned, "", f"in {result['at']}: {result['why']}; {advice}")
    definition = ran.get(task.solution.index)
    if definition and definition["error"]:
        return proof(earned, "", f"its own cell fails: {_what(definition['error'])}")
    failed = [test for test in task.tests if test.index in ran and ran[test.index]["error"]]
    caught_by = "; ".join(_caught_by(lab, test, ran[test.index]["error"]) for test in failed)
    if earned > wrong.keeps or earned >= task.points:
        missed = ", ".join(test.grade_id for test in task.tests if test not in failed)
        kept = f"keeps {earned:g} of {task.points:g} points, {wrong.keeps:g} allowed"
        return proof(earned, caught_by, f"{kept}; {missed} let pass: {wrong.misconception}")
    if not failed:
        lost = (test for test in task.tests if test.index in ran and marks(test, ran[test.index]) < test.points)
        odd = next((_odd_output(ran[test.index]) for test in lost), "")
        return proof(earned, odd, f"no check fails, only {odd}")
    for test in failed:
        slip = next((text for kind, text in _SLIPS.items() if kind in ran[test.index]["error"]["kinds"]), "")
        if slip:
            return proof(earned, caught_by, f"{_what(ran[test.index]['error'])}: {slip}")
    seen = any(_is_visible(test, ran[test.index]["error"]) for test in failed)
    return replace(proof(earned, caught_by), seen=seen)


def _is_visible(test: Cell, error: Mapping[str, Any]) -> bool:
    """Return whether the line that failed stands in the test cell as students get it."""
    hidden = (region for region in regions(test.source)[0] if region.what == HIDDEN)
    return not any(region.first <= (error["line"] or 1) <= region.last for region in hidden)


def _caught_by(lab: Lab, test: Cell, error: Mapping[str, Any]) -> str:
    line = error["line"] or 1
    place = lab.where(lab.path, test.line + line - 1).rpartition(":")[2]
    return f"{test.grade_id} (line {place}) {error['check'] or error['kinds'][0]}"


def _what(error: Mapping[str, Any]) -> str:
    message = " ".join(str(error["message"]).split())
    text = f"{error['kinds'][0]}: {message}" if message else str(error["kinds"][0])
    if error["raised_in"]:
        text += f" (in {error['raised_in'][0]}, line {error['raised_in'][1]})"
    return text if len(text) <= 300 else text[:299] + "…"


def _odd_output(ran: Mapping[str, Any]) -> str:
    """Describe the output for which nbgrader takes marks away although nothing was raised."""
    for output in ran["outputs"]:
        if output["output_type"] == "stream":
            return f"text on stderr ({' '.join(output['text'].split())[:120]!r}), which nbgrader marks as a failure"
        if output["output_type"] == "execute_result":
            return f"the cell ends in a value ({output['data']['text/plain'][:60]}), which nbgrader reads as marks"
    return "nothing odd"


def _name(cell: Cell) -> str:
    return cell.grade_id or f"cell {cell.index + 1}"
