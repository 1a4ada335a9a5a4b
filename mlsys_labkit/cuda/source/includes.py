"""The files that a source includes, found beside it."""

from __future__ import annotations

import re
from pathlib import Path

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)


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
