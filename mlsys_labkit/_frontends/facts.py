"""``labkit facts``: list the values of datasheets and of the course's tables, each with its date and source."""

from __future__ import annotations

import argparse
import calendar
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from mlsys_labkit import specs
from mlsys_labkit._base.arguments import count
from mlsys_labkit.specs import tables

MONTHS = 9
COURSE_TABLES = Path(__file__).parents[2] / "course/data"  # of a checkout; an installed package has no course text


@dataclass(frozen=True)
class Fact:
    """One value of a table, with the day on which it was read in its source."""

    table: str
    row: str
    column: str
    value: float | str
    day: date
    source: str

    def __str__(self) -> str:
        value = self.value if isinstance(self.value, str) else f"{self.value:.6g}"
        return " | ".join((self.table, self.row, self.column, value, self.day.isoformat(), self.source))


def add_parser(subparsers: Any) -> None:
    """Add ``facts`` to the ``labkit`` command."""
    parser = subparsers.add_parser(
        "facts", help="list the values of datasheets and of the course's tables with their dates", description=__doc__
    )
    parser.add_argument("--stale", action="store_true", help="list only values that are older than --months")
    parser.add_argument("--months", type=count, default=MONTHS, help="months after which a value is old; default: 9")
    parser.add_argument("--today", type=date.fromisoformat, default=None, help="count from this day, as 2026-11-28")
    parser.add_argument("--tables", type=Path, default=COURSE_TABLES, help="folder of tables; default: course/data")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print one line per value, then a summary, and return 0."""
    today = arguments.today or date.today()
    facts = [*of_the_kit(), *of_tables(arguments.tables)]
    oldest = months_before(today, arguments.months)
    shown = [fact for fact in facts if not arguments.stale or fact.day < oldest]
    for fact in shown:
        print(fact)
    files = len(list(arguments.tables.glob("*.toml")))
    looked_at = f"{len(facts)} values of the kit's datasheets and of {files} tables in {arguments.tables}"
    if not files:
        looked_at = f"{len(facts)} values of the kit's datasheets; no course tables in {arguments.tables}"
    if not arguments.stale:
        print(f"{looked_at}.")
    elif shown:
        print(f"{len(shown)} of {looked_at} were read before {oldest}.")
    else:
        print(f"Nothing is stale: all {looked_at} were read on {oldest} or later.")
    return 0


def of_the_kit() -> Iterator[Fact]:
    """Yield every figure of ``mlsys_labkit.specs``; a device that inherits a figure repeats it."""
    for key in specs.keys():  # noqa: SIM118  (a module, not a dictionary)
        device = specs.get(key)
        sections = (
            ("", device.facts),
            ("bandwidth ", device.bandwidths),
            ("peak ", device.peaks),
            ("sparse peak ", device.sparse_peaks),
        )
        for prefix, figures in sections:
            for name, figure in figures.items():
                day = date.fromisoformat(figure.date)
                yield Fact("hardware", key, prefix + name, figure.value, day, figure.url)


def of_tables(folder: Path) -> Iterator[Fact]:
    """Yield every value of the tables in a folder. Raises TableError for a file that is no table."""
    for path in sorted(folder.glob("*.toml")):
        for row in tables.load(path):
            for column, value in row.values.items():
                day = date.fromisoformat(value.source.date)
                yield Fact(path.stem, row.name, column, value.value, day, value.source.url)


def months_before(day: date, months: int) -> date:
    """Return the same day of an earlier month, or the last day of that month if it is shorter; at least year 1.

    Example:
        >>> months_before(date(2026, 11, 30), 9)
        datetime.date(2026, 2, 28)
    """
    year, month = divmod(day.year * 12 + day.month - 1 - months, 12)
    if year < date.min.year:
        return date.min
    return date(year, month + 1, min(day.day, calendar.monthrange(year, month + 1)[1]))
