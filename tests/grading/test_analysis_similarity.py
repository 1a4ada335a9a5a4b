"""Planted copies in a class of 200: found in any disguise; honest answers, also common ones, are not reported."""

from __future__ import annotations

import pytest

from mlsys_grading.analysis.answers import answers_of, released
from mlsys_grading.analysis.similarity import similarities
from mlsys_grading.analysis.tokens import tokens
from tests.grading.graded_class import CLASS, LONG, SHORT, disguised, honest, lab, submission


def texts(source: str) -> list[str]:
    return [token.text for token in tokens(source)]


@pytest.fixture(scope="module")
def class_of_200() -> dict[str, list]:
    return {f"s{at:03d}": submission(honest(at)) for at in range(200)}


def test_no_honest_pair_stands_out(class_of_200: dict[str, list]) -> None:
    stubs = list(released(lab()))
    short = [answers_of(lab(), cells, stubs)[0].source for cells in class_of_200.values()]
    assert max(short.count(one) for one in short) > 20  # the same short answer, many times over
    found = similarities(lab(), class_of_200)
    assert found.students == 200
    assert [(pair.a, pair.b) for pair in found.standing_out] == []


def test_only_planted_copies_stand_out(class_of_200: dict[str, list]) -> None:
    planted, submissions = {}, dict(class_of_200)
    for at in range(10):
        thief, victim, task = f"s{100 + at}", f"s{at:03d}", (LONG, CLASS)[at % 2]
        copied = disguised(honest(at)[task], seed=at)
        assert copied.split() != honest(at)[task].split()
        submissions[thief] = submission(honest(100 + at) | {task: copied})
        planted[victim, thief] = task
    found = similarities(lab(), submissions)
    assert {(pair.a, pair.b): pair.cells[0].cell_a for pair in found.standing_out} == planted
    assert {(pair.a, pair.b) for pair in found.pairs[:10]} == set(planted)  # and they come first
    best = found.pairs[0].cells[0]
    assert best.share == 1.0
    assert set(best.lines_a) <= set(range(1, best.source_a.count("\n") + 2))
    assert len(best.lines_b) > best.source_b.count("\n") / 2


def test_a_copy_in_a_cell_of_ones_own_is_found(class_of_200: dict[str, list]) -> None:
    helper = disguised(honest(3)[LONG], 3).replace("def blocked", "def helper")
    answers = honest(150) | {LONG: "def blocked(a, b, size):\n    return helper(a, b, size)"}
    found = similarities(lab(), class_of_200 | {"s150": submission(answers, helper)})
    assert [(pair.a, pair.b, pair.cells[0].cell_a, pair.cells[0].cell_b) for pair in found.standing_out] == [
        ("s003", "s150", LONG, "cell 8")
    ]


def test_released_code_and_reference_are_no_evidence() -> None:
    solved = {cell.grade_id: cell.source for cell in lab().cells if cell.is_solution}
    unsolved = {SHORT: "def mean(xs):\n    # YOUR CODE HERE\n    raise NotImplementedError()"}
    for answers in (solved, unsolved):
        found = similarities(lab(), {f"s{at}": submission(answers) for at in range(2)})
        assert found.pairs == ()
    assert [answer.cell for answer in answers_of(lab(), submission(unsolved))] == [LONG, CLASS]


def test_a_ring_of_six_is_found(class_of_200: dict[str, list]) -> None:
    ring = {f"s{at:03d}": submission(honest(at) | {CLASS: disguised(honest(0)[CLASS], at)}) for at in range(1, 6)}
    found = similarities(lab(), class_of_200 | ring)
    assert {name for pair in found.pairs[:15] for name in (pair.a, pair.b)} == {f"s{at:03d}" for at in range(6)}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x = 1  # one\ny = x", "alpha = 1\n\n\nbeta = alpha"),
        ('def f(a):\n    """Doc."""\n    return a + 1', "def g(long_name: int) -> int:\n    return (long_name + 1)"),
        ("class A:\n    def m(self):\n        self.x = 3", "class B:\n    def other(this):\n        this.value = 3"),
        (
            "%%cuda f\nint i = threadIdx.x; // mine\nout[i] = 2.0f * a[i];",
            "%%cuda g\nint k=threadIdx.x;\nc[k]=2.0f*q[k];",
        ),
        ("%timeit f(1)\nx = !ls", "%timeit f(1)\ny = !ls"),
        ("def broken(:\n  return x", "def mended(:\n  return   yy"),
    ],
)
def test_names_comments_and_layout_make_no_difference(one: str, other: str) -> None:
    assert texts(one) == texts(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x = a + b", "x = a - b"),
        ("x = len(a)", "x = sum(a)"),
        ("x = 3", "x = 4"),
        ("y = np.dot(a)", "y = np.sum(a)"),
        ("%%cuda f\nint i = threadIdx.x;", "%%cuda f\nint i = threadIdx.y;"),
    ],
)
def test_different_programs_have_different_tokens(one: str, other: str) -> None:
    assert texts(one) != texts(other)


def test_hostile_cells_do_not_hinder_the_comparison() -> None:
    hostile = [
        "(" * 50_000,
        "x = " + "-" * 5_000 + "1",
        "\0",
        "\ud800 = 1",
        "'" * 99,
        "lambda: " * 3_000 + "0",
        "\\" * 999,
    ]
    submissions = {f"s{at}": submission(honest(at), *hostile) for at in range(3)}
    assert similarities(lab(), submissions).students == 3


def test_a_cell_that_ipython_gives_up_is_compared_by_its_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    def gives_up(*_: object) -> None:  # as IPython does, after seconds, at the 501st line of "x = !true"
        raise RuntimeError("Input transformation still changing after 500 iterations. Aborting.")

    monkeypatch.setattr("mlsys_grading.analysis.tokens.TransformerManager.transform_cell", gives_up)
    assert [each.text for each in tokens("x = !true")] == ["name", "=", "!", "name"]
