"""The two lists that a release leaves in the students' repository.

``labs/release.toml`` is for the kit, which reports changes to a student; :mod:`mlsys_labkit._base.released` defines
its format. ``.released`` is for the next release, which overwrites and removes only files that are still as this
release wrote them. It has one line per file, as ``sha256sum`` writes them, so that ``sha256sum --check .released``
reads it too.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

from mlsys_labkit._base.released import Release
from mlsys_labkit.errors import LabkitError

RELEASE = "labs/release.toml"
SUMS = ".released"
_LINE = re.compile(r"([0-9a-f]{64})  (?P<path>[^/\\\n][^\\\n]*)")


def dump_release(release: Release) -> bytes:
    """Return the text of ``labs/release.toml``."""
    lines = [
        "# Written by labkit release. lk.progress() compares your labs with it; do not edit.",
        f'version = "{release.version}"',
        f"date = {release.date:%Y-%m-%dT%H:%M:%SZ}",
    ]
    for lab, marks in release.labs.items():
        lines += ["", f"[{lab}]", *(f'{cell} = "{mark}"' for cell, mark in marks.items())]
    return ("\n".join(lines) + "\n").encode("utf-8")


def sum_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def dump_sums(sums: Mapping[str, str]) -> bytes:
    return "".join(f"{sums[path]}  {path}\n" for path in sorted(sums)).encode("utf-8")


def read_sums(folder: Path) -> dict[str, str]:
    """Return path -> SHA-256 of the files that the last release wrote into ``folder``; empty if there is none."""
    path = folder / SUMS
    return parse_sums(path.read_text(encoding="utf-8", errors="replace"), str(path)) if path.is_file() else {}


def parse_sums(text: str, where: str) -> dict[str, str]:
    """Read the list in ``text``.

    Raises LabkitError if it is damaged: without it, files that may be overwritten cannot be told from others.
    """
    sums = {}
    for number, line in enumerate(text.splitlines(), start=1):
        found = _LINE.fullmatch(line)
        if found is None or ".." in Path(found["path"]).parts:
            raise LabkitError(f"{where}:{number}: not what labkit release writes; restore it, or release elsewhere")
        sums[found["path"]] = found[1]
    return sums
