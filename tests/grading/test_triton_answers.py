"""Triton answers with helpers, constants and decorators: the graders' verdicts beside those of a shell.

One examination and one shell take all answers: ten CPU seconds, most of them imports of torch and Triton.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from mlsys_grading.examine.plan import make_plan
from mlsys_grading.examine.run import Examined, examine_submission
from mlsys_grading.fork_server.client import ForkServer
from mlsys_grading.grade.modules import modules_of
from mlsys_grading.gradebook.reasons import reason
from mlsys_grading.sandbox.confine import Sandbox
from mlsys_grading.sandbox.limits import SandboxLimits
from mlsys_grading.time_limits import TimeLimits
from tests.grading.test_unusual_answers import in_a_shell
from tests.grading.triton_answers import REFUSED, RIGHT, WRONG

pytestmark = [
    pytest.mark.usefixtures("sandbox_allowed"),
    pytest.mark.xdist_group("triton_answers"),
]
ANSWERS = RIGHT | REFUSED | WRONG
_IMPORTS = """
import numpy as np, torch, triton
import triton.language as tl
import mlsys_labkit as lk, mlsys_labkit.triton_trace
"""
_REFERENCE = "@triton.jit\ndef KERNEL(x, out, N, BLOCK: tl.constexpr):\n    tl.store(out, 1.0)\n"
_TEST = """
x = torch.randn(3, 37, generator=torch.Generator().manual_seed(3)) + torch.tensor([[0.0], [200.0], [-200.0]])
out = torch.full((3, 37), float("nan"))
traced = lk.triton_trace.trace(KERNEL)[(3,)](x, out, 37, BLOCK=64)
lk.checks.expect_no_findings(traced)
lk.checks.expect_close(out, torch.softmax(x.double(), 1), rtol=1e-5, atol=1e-7, name="softmax")
"""


def cell(source: str, name: str = "", **metadata: Any) -> dict[str, Any]:
    nbgrader = {"nbgrader": {"grade_id": name, **metadata}} if name else {}
    return {"cell_type": "code", "source": source, "metadata": nbgrader}


def notebooks() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the lab with a task for each answer, and a submission with all of them."""
    first = cell(_IMPORTS, "imports", locked=True)
    source, submission = [first], [first]
    for at, each in enumerate(ANSWERS.values()):
        name = f"kernel_{at}"
        test = cell(_TEST.replace("KERNEL", name), f"{name}_test", grade=True, points=1)
        source += [cell(_REFERENCE.replace("KERNEL", name), name, solution=True), test]
        submission += [cell(each.own)] if each.own else []
        submission.append(cell(each.answer.replace("KERNEL", name), name, solution=True))
        submission += [cell(each.after)] if each.after else []
        submission.append(test)
    return source, submission


@pytest.fixture(scope="module")
def examined(fork_server: Callable[[Sequence[str]], ForkServer]) -> Iterator[Examined]:
    source, submission = notebooks()
    sandbox = Sandbox(limits=SandboxLimits(file_bytes=64 << 30))
    with fork_server(modules_of(source)) as server:
        plan = make_plan(source, submission)
        yield examine_submission(server, plan, {}, TimeLimits(30, 90, 900), sandbox)


def test_graders_give_the_verdict_that_an_answer_deserves(examined: Examined) -> None:
    assert len(RIGHT) >= 25
    assert not examined.trouble
    came = {name: mark.error for name, mark in zip(ANSWERS, examined.marks, strict=True)}
    assert {name: came[name] for name in RIGHT if came[name]} == {}
    for name, each in (REFUSED | WRONG).items():
        kernel = f"kernel_{list(ANSWERS).index(name)}"
        assert each.says.replace("KERNEL", kernel) in came[name], f"{name}: {came[name]}"


def test_feedback_says_syntax_error_for_no_refused_kernel(examined: Examined) -> None:
    refused = [mark for mark in examined.marks if "RefusedSourceError" in mark.kinds]
    assert len(refused) >= len(REFUSED)
    assert {"syntax" in reason(mark) for mark in refused} == {False}


def test_shell_passes_what_graders_pass(tmp_path: Path) -> None:
    _, submission = notebooks()
    came = in_a_shell(submission, tmp_path)
    for at, (name, each) in enumerate(ANSWERS.items()):
        assert bool(came[f"kernel_{at}_test"]) is not each.shell, f"{name}: {came[f'kernel_{at}_test']}"
