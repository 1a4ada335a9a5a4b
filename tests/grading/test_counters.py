"""Counters follow the process that counts, and not the report of the student's process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from mlsys_grading.examine.plan import make_plan
from mlsys_grading.examine.run import examine_submission
from mlsys_grading.fork_server.client import Forked, ForkServer
from mlsys_grading.grade.modules import modules_of
from mlsys_grading.sandbox.confine import Sandbox, refusal
from mlsys_grading.time_limits import TimeLimits
from tests.grading.corpus.attacks_counters import ATTACKS, SOURCE, Forgery

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="a sandbox takes Linux's namespaces"),
    pytest.mark.xdist_group("sandbox"),
]
TIME_LIMITS = TimeLimits(60, 120, 600)


@pytest.fixture(scope="module")
def server(fork_server: Callable[[Sequence[str]], ForkServer]) -> Iterator[ForkServer]:
    if reason := refusal():
        pytest.skip(f"this machine allows no sandbox: {reason}")
    with fork_server(modules_of(SOURCE)) as made:
        yield made


@pytest.fixture(scope="module")
def contract(server: ForkServer) -> dict[str, list[str]]:
    learnt = examine_submission(server, make_plan(SOURCE, SOURCE), None, TIME_LIMITS, Sandbox())
    assert learnt.points == 5, [verdict.error for verdict in learnt.marks]
    return dict(learnt.contract)


@pytest.mark.parametrize("forgery", ATTACKS, ids=lambda each: each.name)
def test_a_forged_counter_gains_nothing(server: ForkServer, contract: dict[str, list[str]], forgery: Forgery) -> None:
    found = examine_submission(server, make_plan(SOURCE, forgery.notebook()), contract, TIME_LIMITS, Sandbox())
    assert not found.trouble
    passed = {verdict.name for verdict in found.marks if verdict.passed}
    assert passed == forgery.passes, [verdict.error for verdict in found.marks]


@pytest.mark.parametrize(
    "forgery", [each for each in ATTACKS if "total_test" in each.passes], ids=lambda each: each.name
)
def test_memory_is_counted_without_root(server: ForkServer, monkeypatch: pytest.MonkeyPatch, forgery: Forgery) -> None:
    def write_text(path: Path, text: str) -> int:
        assert path.name == "clear_refs"
        raise PermissionError

    monkeypatch.setattr(Path, "write_text", write_text)
    learnt = examine_submission(server, make_plan(SOURCE, SOURCE), None, TIME_LIMITS, Sandbox())
    assert learnt.points == 5, [verdict.error for verdict in learnt.marks]
    found = examine_submission(server, make_plan(SOURCE, forgery.notebook()), learnt.contract, TIME_LIMITS, Sandbox())
    assert {verdict.name for verdict in found.marks if verdict.passed} == forgery.passes


UNTRACED = """
import mmap
def gram(x, basis):
    own = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    with mmap.mmap(-1, {mib} << 20, own) as room:  # as a library takes memory: no tracer sees it
        for _ in range({mib}):
            room.write(bytes([1]) * (1 << 20))
    return (x @ basis) @ basis.T
"""


def test_memory_beside_arrays_is_allowed_up_to_the_solutions(server: ForkServer) -> None:
    def with_untraced(mib: int) -> list[dict[str, object]]:
        cells = [dict(cell) for cell in SOURCE]
        cells[3]["source"] = UNTRACED.format(mib=mib)
        return cells

    source = with_untraced(40)
    learnt = examine_submission(server, make_plan(source, source), None, TIME_LIMITS, Sandbox())
    assert learnt.points == 5, [verdict.error for verdict in learnt.marks]
    for mib, points in ((40, 5), (100, 3)):
        plan = make_plan(source, with_untraced(mib))
        found = examine_submission(server, plan, learnt.contract, TIME_LIMITS, Sandbox())
        assert found.points == points, [verdict.error for verdict in found.marks]


STREAM = """
def chunks():
    return (np.full((1024, 64), float(number)) for number in range(24))  # half a megabyte each
got = lk.checks.expect_peak(total, chunks, at_most_bytes=3 << 20)
assert got == 1024 * 64 * sum(range(24))
"""


@pytest.mark.parametrize(("chunks", "points"), [("chunks()", 3), ("list(chunks())", 0)], ids=["passing", "kept"])
def test_chunks_that_a_measured_call_keeps_are_its_memory(server: ForkServer, chunks: str, points: int) -> None:
    """They came in shared memory once, and no tracer counted its mapping."""
    cells = [dict(cell) for cell in SOURCE[:3]]
    cells[1]["source"] = f"def total(chunks):\n    return sum(chunk.sum() for chunk in {chunks})"
    cells[2]["source"] = STREAM
    found = examine_submission(server, make_plan(cells, cells), None, TIME_LIMITS, Sandbox())
    assert found.points == points, [verdict.error for verdict in found.marks]


@pytest.mark.parametrize(("ends", "passes"), [(1, True), (2, False)])
def test_process_lost_before_its_measurement_is_replaced_once(
    server: ForkServer, contract: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch, ends: int, passes: bool
) -> None:
    left, honest = [ends], Forked.peak_bytes

    def peak_bytes(self: Forked, reset: bool = False) -> int:
        if reset and left[0]:
            left[0] -= 1
            self.abandon()
            self.wait()
        return honest(self, reset)

    monkeypatch.setattr(Forked, "peak_bytes", peak_bytes)
    found = examine_submission(server, make_plan(SOURCE, SOURCE), contract, TIME_LIMITS, Sandbox())
    assert {verdict.name: verdict.passed for verdict in found.marks}["gram_test"] is passes
    assert left == [0]
