"""``labkit facts``: which values it lists, and which of them it calls stale."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from mlsys_labkit import specs
from mlsys_labkit._frontends import cli, facts

TABLE = """
title = "GPUs"
columns = { bandwidth = "B/s", process = "text" }
[sources]
old = { title = "datasheet", url = "https://example.org/old", date = "2026-02-27" }
new = { title = "datasheet", url = "https://example.org/new", date = "2026-02-28" }
[[rows]]
name = "A"
bandwidth = { value = 2e12, source = "old" }
process = { value = "4N", source = "new" }
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "gpus.toml").write_text(TABLE)
    return tmp_path


def listed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert cli.main(["facts", *arguments]) == 0
    return [line for line in capsys.readouterr().out.splitlines() if not line.startswith("hardware |")]


def test_facts_stale_lists_values_read_before_the_day_nine_months_ago(folder: Path, capsys) -> None:
    lines = listed(capsys, "--stale", "--today", "2026-11-28", "--tables", str(folder))
    assert lines[0] == "gpus | A | bandwidth | 2e+12 | 2026-02-27 | https://example.org/old"
    assert len(lines) == 2
    assert "1 tables in" in lines[1]
    assert lines[1].endswith("were read before 2026-02-28.")


def test_facts_stale_takes_other_months(folder: Path, capsys) -> None:
    lines = listed(capsys, "--stale", "--months", "1", "--today", "2026-11-28", "--tables", str(folder))
    assert [line.split(" | ")[2] for line in lines[:-1]] == ["bandwidth", "process"]


def test_facts_stale_says_that_nothing_is_stale(folder: Path, capsys) -> None:
    lines = listed(capsys, "--stale", "--today", "2020-01-01", "--tables", str(folder))
    assert len(lines) == 1
    assert lines[0].startswith("Nothing is stale: all ")


def test_facts_names_the_folder_that_has_no_tables(tmp_path: Path, capsys) -> None:
    lines = listed(capsys, "--stale", "--today", "2020-01-01", "--tables", str(tmp_path / "none"))
    assert f"no course tables in {tmp_path / 'none'}" in lines[0]


def test_facts_lists_every_figure_of_the_kit_and_every_value_of_the_course(folder: Path, capsys) -> None:
    assert len(listed(capsys, "--tables", str(folder))) == 3
    figures = [fact for fact in facts.of_the_kit() if fact.row == "h100-sxm"]
    device = specs.get("h100-sxm")
    assert len(figures) == sum(map(len, (device.facts, device.peaks, device.sparse_peaks, device.bandwidths)))
    assert {fact.table for fact in facts.of_tables(facts.COURSE_TABLES)} >= {"gpus", "prices", "top500"}


def test_facts_refuses_a_day_that_is_no_date(capsys) -> None:
    with pytest.raises(SystemExit):
        cli.main(["facts", "--today", "yesterday"])
    assert "--today" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["facts", "--stale", "--months", "-5"])
    assert "expected a whole number from 1, got '-5'" in capsys.readouterr().err


def test_months_before_ends_at_the_last_day_of_a_shorter_month() -> None:
    assert facts.months_before(date(2024, 3, 31), 1) == date(2024, 2, 29)
    assert facts.months_before(date(2026, 1, 15), 13) == date(2024, 12, 15)
    assert facts.months_before(date(2026, 1, 15), 99_999) == date.min
