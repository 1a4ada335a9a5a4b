"""Redirection of what ranks print, for ranks that are threads and share sys.stdout."""

from __future__ import annotations

import sys
from typing import Any, TextIO

from mlsys_labkit.ranks.output_columns import Columns
from mlsys_labkit.ranks.recording.recorder import current, running


class RedirectedOutput:
    """Context in which the output of ranks goes to their columns, and other output to the original streams."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns

    def __enter__(self) -> None:
        self._streams = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = (_Stream(self, stream) for stream in self._streams)

    def __exit__(self, *error: object) -> None:
        sys.stdout, sys.stderr = self._streams

    def take(self, text: str) -> bool:
        if not running():
            return False
        self._columns.write(current().rank, text)
        return True


class _Stream:
    def __init__(self, prints: RedirectedOutput, stream: TextIO) -> None:
        self._prints, self._stream = prints, stream

    def write(self, text: str) -> int:
        return len(text) if self._prints.take(text) else self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
