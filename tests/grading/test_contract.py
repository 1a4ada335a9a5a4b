"""``labkit build --contract`` through its own door: what a lab's solution does beside returning plain data."""

from __future__ import annotations

import pytest

from mlsys_grading.counters.peak import BALLAST_BYTES
from mlsys_grading.grade.contract import in_words
from mlsys_labkit._frontends.cli import main
from tests.grading.course import LAB, Course

pytestmark = [
    pytest.mark.usefixtures("sandbox_allowed"),
    pytest.mark.xdist_group("grade"),
]


def tell(course: Course, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = main(["build", "--root", str(course.root), "--contract", LAB])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_contract_lists_what_the_solution_does(course: Course, capsys: pytest.CaptureFixture[str]) -> None:
    assert tell(course, capsys) == (0, f"{LAB}:\n  call Tally: returns a live Tally\n", "")
    assert course.files() == {}  # nothing was built
    course.edit(course.source, "np.array(x, dtype=np.float64, copy=True)", "np.asarray(x, dtype=np.float64)")
    course.edit(course.source, "expect_close(secret_input, secret_before, name=", "print(secret_input, ")
    code, told, error = tell(course, capsys)
    assert (code, error) == (0, "")
    assert "  call scaled: writes to its arguments\n" in told


def test_contract_of_a_failing_solution_is_refused(course: Course, capsys: pytest.CaptureFixture[str]) -> None:
    course.edit(course.source, "return secret_copy", "return secret_copy + 1")
    code, told, error = tell(course, capsys)
    assert (code, told) == (2, "")
    assert "its own solution gets" in error


def test_contract_describes_memory_in_words() -> None:
    before, beside = in_words({"memory before gram": ["5 MiB"], "memory beside gram": ["3 MiB"]})
    assert before == f"memory before gram: the solution held 5 MiB, {BALLAST_BYTES >> 20} MiB more are allowed"
    assert "took 3 MiB that no trace" in beside
