"""Tests of the threads of a step: few for a small model, never above a limit, and restored afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from mlsys_labkit import lm
from mlsys_labkit.serving import Chunk, Engine, Request
from mlsys_labkit.serving.threads import threads_for

MODEL, _ = lm.load()


@pytest.fixture(autouse=True)
def four() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


def seen(engine: Engine, fails: bool = False) -> list[int]:
    """Return the threads of torch in each step of a short run."""
    counts: list[int] = []
    runs = engine.runner.run

    def run(chunks: list[Chunk]) -> torch.Tensor:
        counts.append(torch.get_num_threads())
        return runs([] if fails else chunks)

    engine.runner.run = run  # type: ignore[method-assign, assignment]
    engine.run([Request("a", (1, 2, 3), 3)])
    return counts


@pytest.mark.parametrize(
    ("weights", "cores", "threads"),
    [
        (3_500_000, 64, 1),
        (9_000_000, 4, 2),
        (120_000_000, 1, 1),
        (120_000_000, 2, 2),
        (120_000_000, 4, 3),
        (120_000_000, 0.5, 1),
        (120_000_000, 2.9, 2),
        (7_000_000_000, 64, 48),
    ],
)
def test_threads_for_model_size_and_cores(weights: int, cores: float, threads: int) -> None:
    assert threads_for(weights, cores) == threads


def test_step_of_tiny_model_takes_one_thread_and_restores_torch() -> None:
    assert set(seen(Engine(MODEL))) == {1}
    assert torch.get_num_threads() == 4


def test_engine_keeps_requested_thread_count() -> None:
    assert set(seen(Engine(MODEL, threads=3))) == {3}
    torch.set_num_threads(2)
    assert set(seen(Engine(MODEL, threads=3))) == {2}, "torch was told to take fewer"


def test_failed_step_restores_torchs_thread_count() -> None:
    with pytest.raises((ValueError, IndexError, RuntimeError)):
        seen(Engine(MODEL), fails=True)
    assert torch.get_num_threads() == 4
