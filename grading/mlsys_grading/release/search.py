"""The search for hidden lines in all that a file can hold: notebooks, nested archives, git objects."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

from mlsys_grading.release.hidden import LEAST_CHARACTERS, HiddenLines

_PRINTABLE = re.compile(rb"[\t\n\r\x20-\x7e]{%d,}" % LEAST_CHARACTERS)
_PACKED = ((b"\x1f\x8b", gzip.decompress), (b"BZh", bz2.decompress), (b"\xfd7zXZ\x00", lzma.decompress))
_SEALED = ((b"\x28\xb5\x2f\xfd", "zstd"), (b"7z\xbc\xaf", "7-Zip"), (b"Rar!", "RAR"))  # cannot be unpacked here
_DAMAGED = (
    OSError,
    EOFError,
    ValueError,
    RuntimeError,
    lzma.LZMAError,
    zlib.error,
    zipfile.BadZipFile,
    tarfile.TarError,
)
_DEEPEST = 8  # archives in archives


def search(files: Iterable[tuple[str, bytes]], hidden: HiddenLines) -> list[str]:
    """Return one line per finding: the file, and the hidden line that it holds or why it cannot be searched.

    Example:
        >>> hidden = HiddenLines()
        >>> hidden.add("return x * factor + offset - x.mean()", "lab.py:3")
        >>> search([("a.json", b'["return x*factor + offset - x.mean()"]')], hidden)
        ['a.json holds lab.py:3: return x * factor + offset - x.mean()']
    """
    found: dict[str, None] = {}
    for name, data in files:
        for place, text in _texts(name, data, _DEEPEST):
            if isinstance(text, _Sealed):
                found[f"{place} is {text}: nobody can read what is in it, so it does not travel"] = None
            else:
                found |= dict.fromkeys(f"{place} holds {line}" for line in hidden.found_in(text))
    return list(found)


class _Sealed(str):
    """The kind of a file that cannot be unpacked here."""


def _texts(name: str, data: bytes, depth: int) -> Iterator[tuple[str, str]]:
    """Yield every text in a file, unpacked as far as it can be."""
    if name.endswith((".pyc", ".pyo")) or (data[2:4] == b"\r\n" and b"\xe3\x00\x00\x00" in data[8:20]):
        yield name, _Sealed("compiled Python")
    elif kind := next((kind for magic, kind in _SEALED if data.startswith(magic)), ""):
        yield name, _Sealed(f"packed by {kind}")
    elif not depth:
        yield name, _Sealed(f"packed more than {_DEEPEST} times")
    else:
        try:
            for member, content in _members(data):
                yield from _texts(f"{name}!{member}", content, depth - 1)
        except _DAMAGED:
            yield name, _Sealed("a damaged archive")
        yield from ((name, text) for text in _strings(data))


def _members(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the members of an archive; none for another file."""
    if unpack := next((unpack for magic, unpack in _PACKED if data.startswith(magic)), None):
        yield "", unpack(data)
    elif data.startswith(b"PK\x03\x04") or zipfile.is_zipfile(io.BytesIO(data)):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            yield from ((name, archive.read(name)) for name in archive.namelist())
    elif data[257:262] == b"ustar":
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            files = ((member.name, archive.extractfile(member)) for member in archive if member.isfile())
            yield from ((name, file.read()) for name, file in files if file)


def _strings(data: bytes) -> Iterator[str]:
    try:
        text = data.decode("utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8")
    except UnicodeDecodeError:
        yield b"\n".join(_PRINTABLE.findall(data)).decode("ascii")
        return
    yield text
    if text.lstrip()[:1] in ("{", "["):
        try:
            yield "\n".join(_leaves(json.loads(text)))  # a string may be escaped to the last letter
        except (ValueError, RecursionError):
            return


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        if all(isinstance(each, str) for each in value):
            yield "".join(value)
        else:
            for each in value:
                yield from _leaves(each)
    elif isinstance(value, dict):
        for each in value.values():
            yield from _leaves(each)
