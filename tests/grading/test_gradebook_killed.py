"""A gradebook whose writers are killed: no marks are lost, doubled or halved."""

from __future__ import annotations

import random
import signal
import sqlite3
import time
from pathlib import Path

import pytest

from tests.grading.gradebook_course import undisturbed, writer
from tests.grading.gradebook_helpers import rows


def kill_and_go_on(path: Path, count: int, kills: int, seed: int) -> None:
    """Kill the writer at any moment; every result that it reported is there whole, and none is there in part."""
    dice = random.Random(seed)
    for _ in range(kills):
        said = set()
        with writer(path, count) as (process, hear):
            for _ in range(dice.randint(0, count // 2)):
                said.add(hear.recv())
            time.sleep(dice.random() * 0.02)
            process.kill()
            process.join()
            assert process.exitcode == -signal.SIGKILL
        if not said:
            continue
        found = rows(path)
        students = {row[0] for row in found["submissions"]}
        assert said <= students
        for table, each in (("grades", 6), ("comments", 5)):
            assert len(found[table]) == each * len(students)
        connection = sqlite3.connect(path)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        connection.close()


def test_killed_writer_loses_and_doubles_no_marks(tmp_path: Path) -> None:
    expected = undisturbed(tmp_path / "undisturbed.db", 40)
    kill_and_go_on(tmp_path / "killed.db", 40, kills=5, seed=0)
    assert undisturbed(tmp_path / "killed.db", 40) == expected


@pytest.mark.soak
def test_fifty_killed_writers_lose_and_double_no_marks(tmp_path: Path) -> None:
    expected = undisturbed(tmp_path / "undisturbed.db", 200)
    kill_and_go_on(tmp_path / "killed.db", 200, kills=50, seed=1)
    assert undisturbed(tmp_path / "killed.db", 200) == expected
