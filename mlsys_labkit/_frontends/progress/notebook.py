"""The notebook behind this kernel: whether a person is at work in it, where its file is, and what is saved there."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LIMIT_BYTES = 64 << 20


@dataclass(frozen=True)
class SavedNotebook:
    """A notebook's file: its cells by id, as plain JSON, and when it was written."""

    cells: Mapping[str, Mapping[str, Any]]
    at: float

    def sources(self) -> dict[str, str]:
        """Return the text of each cell by id."""
        return {name: "".join(cell.get("source", "")) for name, cell in self.cells.items()}


def somebody_is_there(shell: Any) -> bool:
    """Check that a person runs these cells, which is when the front end can answer ``input()``.

    Front ends without a person (papermill, nbclient, nbgrader, the graders' sandboxes) declare that they cannot.
    """
    kernel = getattr(shell, "kernel", None)
    if kernel is None:
        return sys.stdin is not None and sys.stdin.isatty()
    try:
        return bool(kernel.get_parent("shell")["content"]["allow_stdin"])
    except (AttributeError, KeyError, TypeError):
        return False


def path_of(shell: Any) -> str:
    """Return the notebook's path, or the working directory if the front end does not set it (Colab, a terminal)."""
    space = getattr(shell, "user_ns", {})
    told = os.environ.get("JPY_SESSION_NAME") or space.get("__vsc_ipynb_file__")  # Jupyter's servers; VS Code
    return os.path.abspath(told) if isinstance(told, str) and told else os.getcwd()


def read(path: str) -> SavedNotebook | None:
    """Read the notebook's file as it is on disk; return None if it cannot be read."""
    with contextlib.suppress(OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        about = os.stat(path)
        if path.endswith(".ipynb") and about.st_size <= LIMIT_BYTES:
            with open(path, encoding="utf-8") as file:
                cells = json.load(file)["cells"]
            return SavedNotebook({cell["id"]: cell for cell in cells if "id" in cell}, about.st_mtime)
    return None
