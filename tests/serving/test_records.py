"""Tests of recordings: saved, loaded, and refused when damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlsys_labkit.serving import Engine, Limits, RecordError, Recording, Request, StepCost
from tests.serving.sample_recording import STEPS
from tests.serving.stub import StubRunner


def served() -> tuple[Engine, Recording]:
    asked = [Request(f"r{n}", (1, 2, n % 5), 9, n / 4, 0.5, 3, 0.9, n, (4,), 1 + n % 2) for n in range(6)]
    limits = Limits(running=3, tokens=8, preemption="swap")
    engine = Engine(runner=StubRunner(6, 2), blocks=6, block_size=2, limits=limits, cost=StepCost(0.1, 0.01))
    return engine, engine.run(asked)


def recording() -> Recording:
    return served()[1]


def test_recording_round_trips_through_a_file(tmp_path: Path) -> None:
    run = recording()
    assert any(step.preempted for step in run.steps)
    assert any(step.resumed for step in run.steps)
    assert any(step.copies for step in run.steps)
    path = run.save(tmp_path / "run.jsonl")
    assert Recording.load(path) == run
    assert list(tmp_path.iterdir()) == [path]


def test_failed_save_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = recording()
    path = run.save(tmp_path / "run.jsonl")
    before = path.read_text()
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("no room")))
    with pytest.raises(OSError, match="no room"):
        run.save(path)
    assert path.read_text() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda lines: [], "no recording"),
        (lambda lines: ["{}", *lines[1:]], "no recording"),
        (lambda lines: ["[1]", *lines[1:]], "no recording"),
        (lambda lines: lines[:-1], "it was cut"),
        (lambda lines: [*lines[:3], lines[3][:20], *lines[4:]], "no recording"),
        (lambda lines: [lines[0].replace("recording 1", "recording 9"), *lines[1:]], "recording 9"),
        (lambda lines: [lines[0], lines[1].replace('"top_p":0.9', '"top_p":9'), *lines[2:]], "top_p is 9"),
        (lambda lines: [lines[0], lines[1].replace('"top_p"', '"top_q"'), *lines[2:]], "no recording"),
    ],
)
def test_a_damaged_recording_is_refused_in_one_line(damage: object, says: str) -> None:
    lines = recording().to_lines().splitlines()
    with pytest.raises(RecordError, match=says) as raised:
        Recording.from_lines("\n".join(damage(lines)))  # type: ignore[operator]
    assert "\n" not in str(raised.value)


def test_step_reference_counts_follow_block_tables() -> None:
    engine, run = served()
    cached: set[int] = set()
    for step in run.steps:
        cached ^= set(step.turned_blocks)
        assert not cached & set(step.reference_counts)
        assert set(step.held_tokens) == set(step.block_tables)
        assert not set(step.waiting) & set(step.block_tables)
    assert cached == set(engine.pool.cached) != set()
    assert sum(len(step.turned_blocks) for step in run.steps) > len(cached), "some were cached and used again"
    assert STEPS[1].reference_counts == {0: 2, 1: 1, 2: 1}
    assert not run.steps[-1].reference_counts
    assert {name for step in run.steps for name in step.finished} == set(run.tokens)
    assert all(len(run.tokens[name]) == len(run.token_seconds[name]) for name in run.tokens)
