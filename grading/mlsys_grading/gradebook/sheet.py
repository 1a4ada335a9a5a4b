"""A CSV file that is written back to the platform it came from: delimiter, byte order mark and line ends are kept."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mlsys_grading.files import write_if_changed
from mlsys_labkit.errors import LabkitError

_NUMBER = re.compile(r"[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?")
_FORMULA = tuple("=+-@\t\r\0＝＋－＠")
_BOM = "\ufeff"


@dataclass(frozen=True)
class Sheet:
    """Rows of text, all as long as the header.

    Example:
        >>> sheet = Sheet.parse("Student;ID\\n\\"Byron; Ada\\";7\\n")
        >>> sheet.delimiter, sheet.rows
        (';', (('Byron; Ada', '7'),))
        >>> sheet.to_csv()
        'Student;ID\\n"Byron; Ada";7\\n'
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...] = ()
    delimiter: str = ","
    line_end: str = "\n"
    bom: bool = False

    @classmethod
    def parse(cls, text: str, name: str = "the file") -> Sheet:
        """Read CSV with commas, semicolons or tabs. Raises LabkitError for what has no header or ragged rows."""
        bom, text = text.startswith(_BOM), text.removeprefix(_BOM)
        first = text.partition("\n")[0]
        delimiter = max(",;\t", key=lambda mark: len(next(csv.reader([first], delimiter=mark), [])))
        try:
            lines = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True))
        except csv.Error as error:
            raise LabkitError(f"{name}: no CSV ({error}); export it again") from None
        lines = [line for line in lines if line]
        if not lines:
            raise LabkitError(f"{name}: empty, where a header is expected; export it again")
        header, *rows = lines
        for at, row in enumerate(rows, 2):
            if len(row) > len(header):
                raise LabkitError(f"{name}: row {at} has {len(row)} cells, the header {len(header)}; export it again")
        padded = tuple(tuple(row) + ("",) * (len(header) - len(row)) for row in rows)
        return cls(tuple(header), padded, delimiter, "\r\n" if first.endswith("\r") else "\n", bom)

    @classmethod
    def read(cls, path: Path) -> Sheet:
        """Read a file; raises LabkitError, one line, if it cannot be."""
        try:
            # newline="": a line end inside of quotes is the cell's own
            with open(path, encoding="utf-8", newline="") as file:
                return cls.parse(file.read(), str(path))
        except OSError as error:
            raise LabkitError(f"{path}: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise LabkitError(f"{path}: not UTF-8 at byte {error.start}; export it as UTF-8") from None

    def column(self, name: str) -> int | None:
        """Return the place of a column; None if there is none. Raises LabkitError for two with one name."""
        found = [at for at, title in enumerate(self.header) if title.strip() == name]
        if len(found) > 1:
            raise LabkitError(f"two columns are called {name!r}; rename one in the platform")
        return found[0] if found else None

    def to_csv(self) -> str:
        """Return CSV text, quoted where it must be."""
        out = io.StringIO(newline="")
        writer = csv.writer(out, delimiter=self.delimiter, lineterminator=self.line_end)
        writer.writerows([self.header, *self.rows])
        return (_BOM if self.bom else "") + out.getvalue()

    def write(self, path: Path) -> bool:
        """Write the file whole; False if it holds the same already."""
        return write_if_changed(path, self.to_csv())

    def insert(self, at: int, titles: Sequence[str]) -> Sheet:
        """Return the sheet with new, empty columns before column ``at``."""
        blank = ("",) * len(titles)
        rows = tuple((*row[:at], *blank, *row[at:]) for row in self.rows)
        return replace(self, header=(*self.header[:at], *titles, *self.header[at:]), rows=rows)

    def guard_columns(self, first: int, titles: Sequence[str]) -> tuple[Sheet, tuple[str, ...]]:
        """Guard the columns whose text students choose, from row ``first``; return a note for each changed cell."""
        places = [at for title in titles if (at := self.column(title)) is not None]
        grid, notes = [list(row) for row in self.rows], []
        for row in grid[first:]:
            for at in places:
                if (safe := guarded(row[at])) != row[at]:
                    notes.append(f"{self.header[at]} {row[at]!r} begins like a formula; it is written as {safe!r}")
                    row[at] = safe
        return replace(self, rows=tuple(map(tuple, grid))), tuple(notes)


def guarded(text: str) -> str:
    """Guard ``text`` so that no spreadsheet treats it as a formula; numbers, and a lone dash, stay as they are.

    Reference: https://owasp.org/www-community/attacks/CSV_Injection

    Example:
        >>> guarded("=1+1"), guarded(" @SUM(A1)"), guarded("-1.5"), guarded("Ada")
        ("'=1+1", "' @SUM(A1)", '-1.5', 'Ada')
    """
    if text.strip() == "-" or _NUMBER.fullmatch(text.strip()):
        return text
    return f"'{text}" if text.startswith(_FORMULA) or text.lstrip().startswith(_FORMULA) else text


def number(text: str) -> float | None:
    """Parse the number in a cell, with a point or a comma; None if there is none.

    Example:
        >>> number("7,50"), number(" 7.5 "), number("EX"), number("")
        (7.5, 7.5, None, None)
    """
    return float(text.strip().replace(",", ".")) if _NUMBER.fullmatch(text.strip()) else None


def points_text(points: float) -> str:
    """Format points as platforms show them: at most two decimals.

    Example:
        >>> points_text(7.0), points_text(2 / 3), points_text(-0.001)
        ('7', '0.67', '0')
    """
    return f"{round(points, 2) + 0.0:.2f}".rstrip("0").rstrip(".")
