"""The training text: the standard library's modules with their docstrings, and the chapters that ``help()`` prints.

Every Python has these files, and this kit ships a part of them. They belong to the Python Software Foundation and its
contributors, under the PSF licence.
"""

from __future__ import annotations

import sysconfig
import zlib
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

_LEFT_OUT = {"site-packages", "test", "tests", "idlelib", "lib2to3", "__pycache__", "pydoc_data"}
_LEFT_OUT |= {"encodings", "ensurepip"}
_LONGEST_BYTES = 200_000  # longer files are tables, not programs
_TOPIC_REPEATS = 4  # half a megabyte of prose against eleven of code: repeated four times
_HELD_OUT_PERCENT = 4


@dataclass(frozen=True)
class Document:
    """One text; ``name`` is its origin, e.g. "json/decoder.py" or "help/for"."""

    name: str
    text: str

    @property
    def held_out(self) -> bool:
        """Return True for a text that is never trained on, by its name alone: the same on every machine and version."""
        return zlib.crc32(self.name.encode()) % 100 < _HELD_OUT_PERCENT


def documents() -> list[Document]:
    """Return every document of the running Python, ordered by name."""
    library = Path(sysconfig.get_paths()["stdlib"])
    paths = [path for path in library.rglob("*.py") if not _LEFT_OUT.intersection(path.relative_to(library).parts)]
    modules = [Document(path.relative_to(library).as_posix(), _read(path)) for path in paths]
    topics = import_module("pydoc_data.topics").topics
    chapters = [Document(f"help/{name}", text.strip() + "\n") for name, text in topics.items()]
    return sorted((each for each in [*modules, *chapters] if each.text), key=lambda each: each.name)


def split(every: list[Document]) -> tuple[list[Document], list[Document]]:
    """Return the training texts, in which chapters are repeated, and the held-out texts."""
    trained = [document for document in every if not document.held_out]
    chapters = [document for document in trained if document.name.startswith("help/")]
    return trained + chapters * (_TOPIC_REPEATS - 1), [document for document in every if document.held_out]


def _read(path: Path) -> str:
    raw = path.read_bytes()
    if len(raw) > _LONGEST_BYTES:
        return ""
    try:
        return raw.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError:
        return ""  # a few modules are in other encodings on purpose
