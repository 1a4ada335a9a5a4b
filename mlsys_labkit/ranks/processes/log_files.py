"""Files that ranks write and the notebook reads meanwhile: a crash loses nothing, and no rank waits for a reader."""

from __future__ import annotations

import codecs
import marshal
import os
import struct
from pathlib import Path
from typing import Any

_LENGTH = struct.Struct("=I")
_MOST_AT_ONCE_BYTES = 1 << 22  # of text read at once: no reader needs more


class TextTail:
    """The new part of a text that another process appends to a file, which is emptied before it can fill the disk."""

    def __init__(self, path: Path) -> None:
        self._path, self._position = path, 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def read(self, final: bool = False) -> str:
        """Return the text written since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._position)
                data = file.read(_MOST_AT_ONCE_BYTES)
                self._position = file.tell()
                skipped = os.fstat(file.fileno()).st_size - self._position
        except FileNotFoundError:
            return ""
        text = self._decoder.decode(data, final)
        if self._position >= _MOST_AT_ONCE_BYTES:
            os.truncate(self._path, 0)
            self._position = 0
            text += f"\n[... {skipped:,} bytes, printed too fast ...]\n" if skipped > 0 else ""
        return text


class LogFile:
    """A log file to which each record of plain values is appended with one system call."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, record: Any) -> None:
        data = marshal.dumps(record)  # both ends are the same interpreter, and it is faster than pickle
        os.write(self._file, _LENGTH.pack(len(data)) + data)


class LogTail:
    """The new records of a ``LogFile``."""

    def __init__(self, path: Path) -> None:
        self._path, self._position = path, 0

    def read(self) -> list[Any]:
        """Return the complete records written since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._position)
                data = file.read()
        except FileNotFoundError:
            return []
        records, place = [], 0
        while place + _LENGTH.size <= len(data):
            end = place + _LENGTH.size + _LENGTH.unpack_from(data, place)[0]
            if end > len(data):
                break
            records.append(marshal.loads(memoryview(data)[place + _LENGTH.size : end]))
            place = end
        self._position += place
        return records
