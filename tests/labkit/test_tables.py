"""Tables of sourced numbers: the format of a file, and the message for each mistake in it."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from mlsys_labkit.specs import tables

GOOD = """
title = "GPUs"
[columns]
bandwidth = "B/s"
process = "text"
[sources]
sheet = { title = "datasheet", url = "https://example.org", date = "2026-01-01" }
[[rows]]
name = "A"
bandwidth = { value = 2e12, source = "sheet", condition = "HBM3" }
[[rows]]
name = "B"
process = { value = "4N", source = "sheet" }
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "table.toml"
    path.write_text(text)
    return path


def test_a_row_gives_its_values_and_none_where_nothing_is_known(tmp_path: Path) -> None:
    table = tables.load(written(tmp_path, GOOD))
    assert table["A"].bandwidth == tables.Value(
        2e12, tables.Citation("datasheet", "https://example.org", "2026-01-01"), "HBM3"
    )
    assert table["A"].process is None
    assert table.column("bandwidth") == {"A": 2e12}
    assert [row.name for row in table] == ["A", "B"]
    with pytest.raises(AttributeError, match="no column power; there are bandwidth, process"):
        _ = table["A"].power
    with pytest.raises(tables.TableError, match="no row 'C'; there are A, B"):
        _ = table["C"]
    with pytest.raises(tables.TableError, match="no column 'power'"):
        table.column("power")


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('title = "GPUs"', "", "title, columns, sources and rows"),
        ('title = "GPUs"', 'title = "GPUs"\nextra = 1', "nothing else"),
        ('name = "B"', 'name = "A"', "two rows are called A"),
        ('name = "B"', "", "a row has no name"),
        ("bandwidth = {", "bandwith = {", "A, bandwith: no such column; there are bandwidth, process"),
        ('source = "sheet", condition', 'source = "shet", condition', "no source 'shet'"),
        ("value = 2e12", 'value = "2e12"', "expected a number, got '2e12'"),
        ("value = 2e12", "value = inf", "expected a finite number"),
        ("value = 2e12", "value = true", "expected a finite number"),
        ('value = "4N"', "value = 4", "expected words, got 4"),
        ('{ value = 2e12, source = "sheet", condition = "HBM3" }', "2e12", "expected value, source"),
        (', date = "2026-01-01"', "", "source sheet: expected title, url and date"),
        ("[columns]", "[columns", "is no table"),
        ("[columns]", "rows = 3\n[columns]", "is no table"),
        (GOOD, 'title = "x"\ncolumns = 3\nsources = {}\nrows = []', "expected [columns]"),
        (GOOD, 'title = "x"\ncolumns = {}\nsources = {}\nrows = [3]', "a row has no name: 3"),
        (GOOD, 'title = "x"\ncolumns = {}\nsources = { a = 3 }\nrows = []', "source a: expected"),
    ],
)
def test_table_error_names_the_place(tmp_path: Path, before: str, after: str, said: str) -> None:
    assert before in GOOD
    path = written(tmp_path, GOOD.replace(before, after, 1))
    with pytest.raises(tables.TableError, match=re.escape(said)) as caught:
        tables.load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value).split("is no table")[0]


def test_missing_table_file_is_a_table_error(tmp_path: Path) -> None:
    with pytest.raises(tables.TableError, match="is no table"):
        tables.load(tmp_path / "none.toml")


@given(st.text(max_size=60), st.integers(0, len(GOOD)))
def test_nothing_but_a_table_error_comes_of_a_damaged_file(
    tmp_path_factory: pytest.TempPathFactory, noise: str, at: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.toml"
    path.write_text(GOOD[:at] + noise + GOOD[at:], "utf-8")
    with suppress(tables.TableError):
        tables.load(path)
