"""Redirection of what ranks print, for ranks that are threads and share sys.stdout."""

from __future__ import annotations

from typing import Any, TextIO

from mlsys_labkit.ranks.output_columns import Columns
from mlsys_labkit.ranks.recording.recorder import current, running


class RankStream:
    """A stream in place of sys.stdout or sys.stderr: output of ranks goes to their columns, other output to itself."""

    def __init__(self, columns: Columns, stream: TextIO) -> None:
        self._columns, self._stream = columns, stream

    def write(self, text: str) -> int:
        if not running():
            return self._stream.write(text)
        self._columns.write(current().rank, text)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
