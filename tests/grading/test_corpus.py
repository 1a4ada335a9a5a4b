"""The corpus, examined: each submission gets the marks that it deserves, and no other one is affected.

The quick part is half of the attacks and a third of the rest, none of them slow; ``make soak`` examines all of it,
with an honest neighbour beside each. ``python -m tests.grading.corpus`` prints the table.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mlsys_grading.examine.kernels import cuda_cell
from mlsys_grading.examine.notebook import UnreadableError, read_cells
from mlsys_grading.examine.plan import make_plan
from mlsys_grading.examine.run import examine_submission
from mlsys_grading.fork_server.client import ForkServer
from mlsys_grading.sandbox.confine import refusal
from mlsys_labkit.cuda.errors import GradedError
from mlsys_labkit.cuda.kernel.cell import compile_cell
from tests.grading.corpus.judge import MODULES, TIME_LIMITS, Bait, Judge, failures
from tests.grading.corpus.submission import Submission, claims, points, source
from tests.grading.corpus.submissions import SUBMISSIONS

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="a sandbox takes Linux's namespaces"),
    pytest.mark.xdist_group("corpus"),
]
NEIGHBOUR = SUBMISSIONS[0]
QUICK = [each for at, each in enumerate(SUBMISSIONS) if not each.slow and at % (2 if each.kind == "attack" else 3) == 0]
BY_NAME = {each.name: each for each in SUBMISSIONS}


@pytest.fixture(scope="module")
def judge(
    tmp_path_factory: pytest.TempPathFactory, fork_server: Callable[[Sequence[str]], ForkServer]
) -> Iterator[Judge]:
    if reason := refusal():
        pytest.skip(f"this machine allows no sandbox: {reason}")
    bait = Bait(tmp_path_factory.mktemp("bait") / "class")
    with bait.listening(), fork_server(MODULES) as server:
        yield Judge(server, bait)


def check(judge: Judge, submission: Submission) -> None:
    files = judge.bait.files()
    examined = judge.examine(submission)
    got = {verdict.name for verdict in examined.marks if verdict.passed}
    assert not examined.trouble
    assert got - submission.expected == set(), "gained"
    assert submission.expected - got == set(), failures(examined)
    assert len(examined.marks) == len(points())
    for verdict in examined.marks:
        f"{verdict.error}{verdict.printed}".encode()  # the most that a database and a page can hold
    if submission.kind == "attack":  # an attack that does not even parse would prove nothing
        assert not [error for error in examined.failed_cells.values() if error.startswith(("Syntax", "Indentation"))]
    assert judge.bait.heard == []
    assert judge.bait.files() == files
    assert judge.left_running() == []


def test_corpus_has_enough_of_each_kind() -> None:
    kinds = [each.kind for each in SUBMISSIONS]
    assert len(BY_NAME) == len(SUBMISSIONS) >= 60
    assert min(map(kinds.count, ("honest", "accident", "attack"))) >= 20
    assert sum(points().values()) == 20
    assert sum(points()[name] for name in claims()) <= 5
    assert {name for each in SUBMISSIONS for name in each.claimed} <= claims()
    assert NEIGHBOUR.deserved == 20


@pytest.mark.parametrize("name", [each.name for each in QUICK])
def test_submission_gets_deserved_marks(judge: Judge, name: str) -> None:
    check(judge, BY_NAME[name])


def test_neighbours_are_untouched(judge: Judge) -> None:
    """Honest work is examined beside the most harmful submissions, on the same fork server."""
    names = ["a stack that overflows", "a daemon that outlives its parent", "forged verdict lines"]
    with ThreadPoolExecutor(2) as pool:
        rough = pool.submit(lambda: [check_score(judge, BY_NAME[name]) for name in names])
        while not rough.done():
            check_score(judge, NEIGHBOUR)
        rough.result()
    check(judge, NEIGHBOUR)


def check_score(judge: Judge, submission: Submission) -> None:
    examined = judge.examine(submission)
    assert {each.name for each in examined.marks if each.passed} == submission.expected, failures(examined)


@pytest.mark.soak
@pytest.mark.parametrize("name", BY_NAME)
def test_submission_gets_deserved_marks_beside_an_honest_one(judge: Judge, name: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        neighbour = pool.submit(check_score, judge, NEIGHBOUR)
        check_score(judge, BY_NAME[name])
        neighbour.result()
    check(judge, BY_NAME[name])


@pytest.mark.parametrize("name", ["reads other students' files", "calls home", "writes marks into the gradebook"])
def test_attacks_succeed_without_a_sandbox(judge: Judge, name: str) -> None:
    """A control: without a sandbox these attacks work. They touch only the bait."""
    path = judge.bait.folder / "control.ipynb"
    path.write_bytes(BY_NAME[name].file(judge.bait.words))
    plan = make_plan(source()["cells"], read_cells(path))
    examined = examine_submission(judge.server, plan, judge.contract, TIME_LIMITS, sandbox=None)
    judge.bait.heard.clear()
    judge.bait.restore()
    assert [each.name for each in examined.marks if each.passed] == ["answer_test"], failures(examined)


def test_a_kernel_with_code_for_the_host_is_refused() -> None:
    """Host code would run in the examiner's sandbox, beside the compiled kernels of others."""
    host = "__attribute__((constructor)) static void boom() { *(int*)0 = 0; }\n__global__ void f(int* x) {}"
    cell = cuda_cell("%%cuda f", f"%%cuda f --backend gpu\n{host}")
    line, _, body = cell.partition("\n")
    with pytest.raises(GradedError):
        compile_cell(line.removeprefix("%%cuda "), body)


LINES = [
    ("%%cuda f", "%%cuda f -D N=4 -DT=float", "%%cuda f --graded -D N=4 -D T=float"),
    ("%%cuda f", "%%cuda f g<16, float>", "%%cuda f --graded g<16, float>"),
    ("%%cuda f g<8>", "%%cuda f", "%%cuda f --graded g<8>"),
    ("%%cuda f -D N=8", "%%cuda mine -D N=4 -D M", "%%cuda f --graded -D N=8 -D M"),
    ("%%cuda f", "%%capture\n%%time\n%%cuda f g", "%%cuda f --graded g"),
    ("%%cuda f", "%%cuda f --graded -D N=asm(1) -D(=1 -DX=/* -DX=\\ -DX=a;b", "%%cuda f --graded"),
    ("%%cuda f", "%%cuda f g)boom( --nonsense", "%%cuda f --graded"),
    ("%%cuda f", "%%cuda f g);boom(", "%%cuda f --graded"),
]


@pytest.mark.parametrize(("reference", "line", "want"), LINES)
def test_a_cell_keeps_the_macros_and_the_kernel_that_its_author_named(reference: str, line: str, want: str) -> None:
    assert cuda_cell(reference, f"{line}\nint x;") == f"{want}\nint x;"


@pytest.mark.parametrize("macro", ["N=clock64", "__global__=x", "N=__asm__", "lk_x=1"])
def test_a_macro_s_words_are_checked_like_the_text(macro: str) -> None:
    line, _, body = cuda_cell("%%cuda f", f"%%cuda f -D {macro}\n__global__ void f(int* x) {{}}").partition("\n")
    assert macro in line
    with pytest.raises(GradedError):
        compile_cell(line.removeprefix("%%cuda "), body)


def test_a_link_a_device_and_a_folder_are_no_submissions(tmp_path: Path) -> None:
    (tmp_path / "secret.ipynb").write_text('{"cells": []}')
    (tmp_path / "link.ipynb").symlink_to("secret.ipynb")
    (tmp_path / "zero.ipynb").symlink_to("/dev/zero")
    (tmp_path / "folder.ipynb").mkdir()
    os.mkfifo(tmp_path / "pipe.ipynb")
    for name in ("link", "zero", "folder", "pipe", "missing"):
        with pytest.raises(UnreadableError):
            read_cells(tmp_path / f"{name}.ipynb")
    assert read_cells(tmp_path / "secret.ipynb") == []
