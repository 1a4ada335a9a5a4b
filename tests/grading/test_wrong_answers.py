"""Reading wrong answers: whole cells and edits of the solution, and one line for each mistake in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlsys_grading.lab import WrongAnswer
from mlsys_grading.lab.wrong_answers import read_wrong_answers
from mlsys_labkit.errors import LabkitError
from tests.grading.course import Course

HEAD = '# %% wrong={"grade_id": "mean", "name": "slip", "misconception": "none", "keeps": 0}\n'
SOLUTION = '''def mean(x):
    """The mean of x."""
    ### BEGIN SOLUTION
    total = 0.0
    for value in x:
        total += value

    return total / len(x)
    ### END SOLUTION


def spread(x):
    ### BEGIN SOLUTION
    total = 0.0
    return max(x) - min(x)
    ### END SOLUTION'''


def read(folder: Path, body: str, head: str = HEAD) -> WrongAnswer:
    path = folder / "wrong_answers.py"
    path.write_text(head + body + "\n", encoding="utf-8")
    (wrong,) = read_wrong_answers(path, {"mean": SOLUTION})
    return wrong


def test_an_edit_replaces_lines_of_the_solution(tmp_path: Path) -> None:
    wrong = read(tmp_path, "#-    return total / len(x)\n#+    n = len(x) - 1\n#+    return total / n")
    expected = SOLUTION.replace("    return total / len(x)", "    n = len(x) - 1\n    return total / n")
    assert (wrong.source, wrong.line) == (expected, 2)
    assert wrong.written == ((3, "    n = len(x) - 1"), (4, "    return total / n"))


def test_an_edit_deletes_a_line(tmp_path: Path) -> None:
    assert read(tmp_path, "#-        total += value").source == SOLUTION.replace("        total += value\n", "")


@pytest.mark.parametrize(
    "body",
    [
        "#     total = 0.0\n#+    x = list(x)\n#     for value in x:",
        "#+    x = list(x)\n#     for value in x:",
    ],
)
def test_an_edit_inserts_beside_kept_lines(tmp_path: Path, body: str) -> None:
    assert read(tmp_path, body).source == SOLUTION.replace("    for value", "    x = list(x)\n    for value")


def test_kept_lines_tell_equal_lines_apart(tmp_path: Path) -> None:
    wrong = read(tmp_path, "#-    total = 0.0\n#+    total = 1.0\n#     return max(x) - min(x)")
    assert wrong.source == SOLUTION.replace("    total = 0.0\n    return max(x)", "    total = 1.0\n    return max(x)")


def test_a_blank_line_of_the_solution_is_a_bare_hash(tmp_path: Path) -> None:
    wrong = read(tmp_path, "#-        total += value\n#\n#-    return total / len(x)\n#+    return value")
    assert wrong.source == SOLUTION.replace("        total += value\n\n    return total / len(x)", "\n    return value")


def test_edits_in_any_order_apply_to_the_solution_as_it_was(tmp_path: Path) -> None:
    wrong = read(
        tmp_path,
        "#-    return max(x) - min(x)\n#+    return total / len(x)\n\n#-    return total / len(x)\n#+    return max(x)",
    )
    assert wrong.source == SOLUTION.replace("return total / len(x)", "return max(x)").replace(
        "return max(x) - min(x)", "return total / len(x)"
    )


def test_a_whole_cell_is_read_as_it_stands(tmp_path: Path) -> None:
    body = "def mean(x):\n    # the middle\n\n    return sorted(x)[len(x) // 2]"
    wrong = read(tmp_path, body)
    assert wrong.source == body
    assert wrong.written[3] == (5, "    return sorted(x)[len(x) // 2]")


@pytest.mark.parametrize(
    ("body", "line", "said"),
    [
        ("#-    return total", 2, "has the edit's old lines 0 times ('return total' is the first); copy them"),
        ("#-    total = 0.0", 2, "has the edit's old lines 2 times ('total = 0.0' is the first); keep a line beside"),
        ("#-        total += value\n\n#- nothing", 4, "0 times"),
        ("#+    pass", 2, "has no line of the solution"),
        ("#-        total += value\n    total += 1", 3, "starts with '#-', '#+' or '# ', not with '    tota'"),
        ("#-    for value in x:\n\n#     for value in x:\n#-        total += value", 2, "two edits overlap"),
        ("#-    for value in x:\n#+    for value in x:", 2, "it is the solution"),
        (SOLUTION, 2, "it is the solution"),
    ],
)
def test_a_mistake_in_an_edit_is_one_line_with_its_place(tmp_path: Path, body: str, line: int, said: str) -> None:
    with pytest.raises(LabkitError) as caught:
        read(tmp_path, body)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'wrong_answers.py'}:{line}: mean / slip: ")
    assert said in message
    assert "\n" not in message


def test_edits_of_an_unknown_task_are_left_to_the_build(course: Course) -> None:
    course.edit(course.wrong, '"Tally", "name": "no_start"', '"Telly", "name": "no_start"')
    assert [str(f) for f in course.findings() if f.rule == "wrong answers" and "'Telly' is no graded task" in str(f)]
