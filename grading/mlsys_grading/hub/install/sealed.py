"""Files whose first line holds a checksum of the rest, by which an edit by hand is found."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlsys_grading.files import named, write_atomic
from mlsys_labkit.errors import LabkitError

_MARK = "# Written by `labkit hub install`. If you edit this file, it stays as it is. Checksum: "


def sealed(text: str) -> str:
    """Put the line with the checksum before ``text``."""
    return f"{_MARK}{hashlib.sha256(text.encode()).hexdigest()}\n{text}"


def is_sealed(text: str) -> bool:
    """Return True if ``text`` is as :func:`sealed` made it.

    Example:
        >>> is_sealed(sealed("[Unit]")), is_sealed(sealed("[Unit]") + "#"), is_sealed("[Unit]")
        (True, False, False)
    """
    return sealed(text.partition("\n")[2]) == text


@dataclass(frozen=True)
class FileChange:
    """One file to write (``before`` is None for a new one) or to remove (``after`` is None)."""

    path: Path
    before: str | None
    after: str | None

    def diff(self) -> str:
        """Return the change as a unified diff, with ``/dev/null`` for a file that is not there."""
        before, after = ((text or "").splitlines(keepends=True) for text in (self.before, self.after))
        names = [str(self.path) if text is not None else "/dev/null" for text in (self.before, self.after)]
        return "".join(difflib.unified_diff(before, after, fromfile=names[0], tofile=names[1]))

    def make(self) -> None:
        """Write or remove the file."""
        if self.after is not None:
            write_atomic(self.path, self.after)
            return
        with named(self.path):
            self.path.unlink()


def changes(wanted: Mapping[Path, str], known: Sequence[Path]) -> list[FileChange]:
    """Compare ``wanted`` (path -> text) with the disk. Sealed files of ``known`` that are not wanted are to be removed.

    Raises LabkitError, one line, if a file that would change has been edited, or comes from elsewhere.
    """
    return [change for change in _compared(wanted, known) if change.before != change.after]


def _compared(wanted: Mapping[Path, str], known: Sequence[Path]) -> Iterator[FileChange]:
    for path in dict.fromkeys([*wanted, *known]):
        before = path.read_text("utf-8", errors="replace") if path.exists() else None
        after = sealed(wanted[path]) if path in wanted else None
        if before is not None and not is_sealed(before):
            if before.startswith(_MARK):
                line = f"{path} has been edited since `labkit hub install` wrote it; nothing was changed. "
                raise LabkitError(
                    line + "Move your lines to a drop-in (systemctl edit) or to hub.toml, and the file away"
                )
            if path in wanted:
                raise LabkitError(
                    f"{path} exists and is not from `labkit hub install`; nothing was changed: move it away"
                )
            continue
        yield FileChange(path, before, after)
