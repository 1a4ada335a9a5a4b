"""``labs/release.toml``: what a release of the labs gave out, cell by cell.

    version = "0.1.0"
    date = 2026-11-21T17:00:00Z
    [lab00_your_machine]            # in the order of the notebook: id of a cell = its mark
    lab00-000 = "4f0c…"
    warmup_end = "17a9…"

A mark identifies the content with which a cell was given out, not what a student has written since. So a cell is new or
changed if its mark is not among those of the student's copy. Ids cannot show this: without a grade_id they count
places, and one new cell shifts all that follow. Reference: https://toml.io/en/v1.0.0
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mlsys_labkit.errors import LabkitError

KEY = "mlsys_labkit"  # our namespace in a cell's metadata


@dataclass(frozen=True)
class Release:
    """One release: the kit's version, when it was made (UTC), and of each lab the marks of its cells by id."""

    version: str
    date: datetime
    labs: Mapping[str, Mapping[str, str]]


def mark_of(cell: Mapping[str, Any]) -> str:
    """Return the mark of a cell: nbgrader's checksum, else the release's mark, else the digest of its text.

    nbgrader's checksum is of the cell as it was given out, and does not change when a student edits the cell.

    Example:
        >>> mark_of({"cell_type": "code", "metadata": {"nbgrader": {"checksum": "17a9"}}, "source": "return 1"})
        '17a9'
        >>> mark_of({"cell_type": "markdown", "metadata": {}, "source": ["# A\\n", "b"]}) == mark_of_text("# A\\nb")
        True
    """
    metadata = cell.get("metadata") or {}
    for key, name in (("nbgrader", "checksum"), (KEY, "mark")):
        own = metadata.get(key)
        if isinstance(own, Mapping) and isinstance(own.get(name), str):
            return str(own[name])
    source = cell.get("source", "")
    return mark_of_text(source if isinstance(source, str) else "".join(source))


def mark_of_text(source: str) -> str:
    """Return 32 hexadecimal digits of the SHA-256 digest of a text.

    Example:
        >>> mark_of_text("seed = 0")
        '989713f498b95ca675e4bf8091d9866b'
    """
    return hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def read_release(path: str | Path) -> Release:
    """Read ``labs/release.toml``.

    Raises:
        LabkitError: there is none at ``path``, or it is not what a release writes.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        ...     _ = file.write('version = "0.1.0"\\ndate = 2026-11-21T17:00:00Z\\n[lab00_x]\\nwarmup = "17a9"')
        ...     file.flush()
        ...     read_release(file.name).labs
        {'lab00_x': {'warmup': '17a9'}}
    """
    path = Path(path)
    try:
        plain = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise LabkitError(f"{path}: {error.strerror}; a released lab has release.toml in the folder above it") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise LabkitError(
            f"{path}: not what labkit release writes ({error}); get a fresh one: git checkout {path}"
        ) from None
    version, date = plain.pop("version", None), plain.pop("date", None)
    labs = {name: cells for name, cells in plain.items() if isinstance(cells, dict)}
    marks = (mark for cells in labs.values() for mark in cells.values())
    if (
        not (isinstance(version, str) and isinstance(date, datetime) and date.tzinfo)
        or labs.keys() != plain.keys()
        or not all(isinstance(mark, str) for mark in marks)
    ):
        raise LabkitError(
            f"{path}: expected a version, a date and a table of marks a lab; get a fresh one: git checkout {path}"
        )
    return Release(version, date.astimezone(UTC), labs)
