"""The files that a source includes, found beside it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from mlsys_labkit.cuda.source.source import Source

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)

_ANY_INCLUDE = re.compile(r'^([ \t]*#[ \t]*include[ \t]*)(?:"([^"\n]+)"|<([^>\n]+)>)', re.MULTILINE)
_WINDOWS = ("cpu_bitmap.h", "cpu_anim.h")  # of a textbook; stand-ins do the same without a window
_USUAL_FOLDERS = ("include", "inc", "common", "Common", "utils", "src", ".")


def headers_beside(text: str, folder: Path, include: Sequence[str] = (), within: Path = Path()) -> dict[str, Source]:
    """Return the headers that a text in ``folder`` includes and that lie there or in a usual folder near it.

    The keys are paths relative to ``folder``. Usual folders are ``include``, ``common`` and the like, there and in
    three folders above, because a repository's build passes them with ``-I``; ``include`` are more such
    folders. The text itself lies in ``within``.
    """
    found: dict[str, Source] = {}
    waiting = [(text, within)]
    while waiting:
        including, beside = waiting.pop()
        for found_include in _ANY_INCLUDE.finditer(including):
            for name in _candidates(found_include[2] or found_include[3], beside, include):
                if name in found:
                    break
                if (folder / name).is_file():
                    read = (folder / name).read_text(encoding="utf-8", errors="surrogateescape")
                    if Path(name).name not in _WINDOWS or "glut" not in read:
                        found[name] = Source(read)
                        waiting.append((read, Path(name).parent))
                    break
    return found


def redirected(
    text: str, beside: Path, names: Mapping[str, str], stand_ins: Sequence[Path] = (), include: Sequence[str] = ()
) -> str:
    """Return the text with includes of the headers in ``names`` changed to the new names there.

    ``stand_ins`` are folders whose headers take the place of missing ones, such as "../common/book.h" of another tree.
    """

    def replaced(found: re.Match[str]) -> str:
        wanted = found[2] or found[3]
        for name in _candidates(wanted, beside, include):
            if name in names:
                return f'{found[1]}"{names[name]}"'
        if found[2]:
            for folder in stand_ins:
                if (folder / Path(wanted).name).is_file():
                    return f'{found[1]}"{folder / Path(wanted).name}"'
        return found[0]

    return _ANY_INCLUDE.sub(replaced, text)


def _candidates(wanted: str, beside: Path, include: Sequence[str]) -> Iterator[str]:
    """Yield the paths where a header may lie, relative to the program's folder, as ``-I../include`` would find it."""
    yield os.path.normpath(beside / wanted)
    yield os.path.normpath(wanted)
    yield from (os.path.normpath(os.path.join(folder, wanted)) for folder in include)
    for up in ("", "..", "../..", "../../.."):
        for name in _USUAL_FOLDERS:
            yield os.path.normpath(os.path.join(up, name, wanted))


def included_files(source: str, folder: Path | None) -> tuple[Path, ...]:
    """Return the files beside the source that it includes in quotes, and what they include."""
    found: dict[Path, None] = {}
    waiting = [(source, folder)]
    while waiting and folder is not None:
        text, beside = waiting.pop()
        for name in _INCLUDE.findall(text):
            for base in (beside, folder):
                path = (base / name).resolve() if base else None
                if path and path.is_file():
                    if path not in found:
                        found[path] = None
                        waiting.append((path.read_text(encoding="utf-8", errors="replace"), path.parent))
                    break
    return tuple(found)
