"""The cells of a submitted notebook file. The file is not trusted: the result is its cells, or one reason for refusal.

A submission is a file that a student wrote. It may be cut off, of another format, a link to another student's, or made
to exhaust its reader.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from mlsys_labkit.errors import LabkitError

MOST_BYTES = 64 << 20
_MOST_CELLS = 5_000
_KINDS = ("code", "markdown", "raw")
_SCALARS = (str, int, float, type(None))

Cell = dict[str, Any]


class UnreadableError(LabkitError):
    """A submission that is no notebook. Its marks are those of the unsolved lab, and the reason is reported."""


def read_cells(path: Path) -> list[Cell]:
    """Read the cells of the notebook at ``path``, without following links, waiting or reading without end.

    Raises UnreadableError for what is no notebook.

    Example:
        >>> read_cells(Path("/dev/zero"))
        Traceback (most recent call last):
            ...
        mlsys_grading.examine.notebook.UnreadableError: zero is no ordinary file
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise UnreadableError(f"{path.name} cannot be opened: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnreadableError(f"{path.name} is no ordinary file")
    with open(descriptor, "rb") as file:
        return cells_of(file.read(MOST_BYTES + 1))


def cells_of(data: bytes) -> list[Cell]:
    """Parse a notebook file's bytes into cells with "cell_type", "source", "metadata" and perhaps "attachments".

    What is odd about one cell costs that cell: a source that is no text is empty, metadata that is none too. Raises
    UnreadableError for what has no cells at all.

    Example:
        >>> cells_of(b'{"cells": [{"cell_type": "code", "source": ["x = 1\\\\n", "x"]}, 5]}')
        [{'cell_type': 'code', 'source': 'x = 1\\nx', 'metadata': {}}]
    """
    if len(data) > MOST_BYTES:
        raise UnreadableError(f"more than {MOST_BYTES >> 20} MiB; clear the outputs and submit again")
    try:
        notebook = json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise UnreadableError(f"not UTF-8 at byte {error.start}") from None
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"no JSON: {str(error)[:200]}") from None
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if cells is None and isinstance(notebook, dict):
        cells = _sheets(notebook.get("worksheets"))
    if not isinstance(cells, list):
        raise UnreadableError("JSON, but no notebook: there are no cells")
    if len(cells) > _MOST_CELLS:
        raise UnreadableError(f"{len(cells)} cells are too many; at most {_MOST_CELLS}")
    return [_cell(each) for each in cells if isinstance(each, dict) and each.get("cell_type") in _KINDS]


def _sheets(sheets: object) -> list[object] | None:
    """Return the cells of nbformat 3, in which code is called input."""
    if not isinstance(sheets, list):
        return None
    lists = (sheet.get("cells") for sheet in sheets if isinstance(sheet, dict))
    found = [cell for cells in lists if isinstance(cells, list) for cell in cells]
    return [cell | {"source": cell["input"]} if isinstance(cell, dict) and "input" in cell else cell for cell in found]


def _cell(cell: dict[str, Any]) -> Cell:
    """Keep only the parts of a cell that graders read: the rest may be nested deeper than JSON can be written."""
    metadata = _dict(cell.get("metadata"))
    kept: dict[str, Any] = {}
    if isinstance(metadata.get("nbgrader"), dict):
        kept["nbgrader"] = {key: value for key, value in metadata["nbgrader"].items() if isinstance(value, _SCALARS)}
    if isinstance(metadata.get("tags"), list):
        kept["tags"] = [tag for tag in metadata["tags"] if isinstance(tag, str)]
    found: Cell = {"cell_type": cell["cell_type"], "source": _text(cell.get("source")), "metadata": kept}
    pictures = {name: _strings(bundle) for name, bundle in _dict(cell.get("attachments")).items()}
    return found | ({"attachments": pictures} if pictures else {})


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _strings(bundle: object) -> dict[str, str]:
    return {kind: data for kind, data in _dict(bundle).items() if isinstance(data, str)}


def _text(source: object) -> str:
    if isinstance(source, list) and all(isinstance(line, str) for line in source):
        return "".join(source)
    return source if isinstance(source, str) else ""
