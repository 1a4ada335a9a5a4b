"""The relay of graded ranks: what the process of a rank asks of the network, and what the backend sees of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from mlsys_grading.counters.relay import Port, RankRelay
from mlsys_labkit import ranks
from mlsys_labkit.ranks.local import own_state, program

OPTIONS = ["options", {"asyncOp": True, "rootRank": 0}, "sum"]


@pytest.mark.parametrize(("changed", "findings"), [(False, 0), (True, 2)])
def test_an_input_that_is_sent_again_has_changed_only_if_its_bytes_have(changed: bool, findings: int) -> None:
    """A process sends the inputs of its open calls with each request. NaN is not equal to itself, but its bytes are."""

    def two_sums() -> list[float]:
        port, group, rank = Port(), dist.group.WORLD.id, dist.get_rank()  # type: ignore[union-attr]
        port("joins", [], group, rank, [0, 1])
        posted, one = torch.tensor([1.0 + rank, float("nan")]), torch.ones(1)
        first, _ = port("posts", [], group, "allreduce", [["plain", [posted.clone()]], OPTIONS], False)
        again = [posted + 1 if changed else posted]
        second, _ = port("posts", [[first, again]], group, "allreduce", [["plain", [one]], OPTIONS], False)
        outputs, _ = port("waits", [[first, again], [second, [one]]], first)
        port("waits", [], second)
        return [outputs[0][0].item()]

    run = ranks.run(two_sums, 2, backend="local")
    assert len(run.trace.findings) == findings, run.trace.findings
    assert run.values == [[5.0 if changed else 3.0]] * 2


def test_a_run_looks_for_the_programs_state_outside_the_examiner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run makes a search, which would take seconds in the whole examiner, which a session holds."""
    found: list[Any] = []
    search = program.find_program

    def noted(*asked: Any) -> Any:
        found.append(search(*asked))
        return found[-1]

    monkeypatch.setattr(own_state, "find_program", noted)
    kept = threading.local()  # the search lists each of them that it meets

    def ask(kind: str, name: str, asked: list[Any], *_: Any, **__: Any) -> tuple[int, None]:
        return asked[1], None

    def start(whole: bool) -> Any:
        return SimpleNamespace(dead=False, seed=lambda seeds: None, ask=ask, end=lambda error: None, examiner=kept)

    relay = RankRelay(start, lambda session, whole: session)
    function: Callable[..., Any] = SimpleNamespace(__name__="total")  # type: ignore[assignment]
    run = relay.run("mlsys_labkit.checks.ranks.run_ranks", (function, 2), {}, {})
    assert run.values == [0, 1]
    assert id(kept) not in found[0].of_thread
