"""Changes of a lab since this copy was handed out: the newest release against the notebook's own file.

The newest release is the one that ``LABKIT_RELEASE`` names (a folder, a release.toml, or an http(s) address; a Hub
sets it), else ``release.toml`` above the notebook's folder, which nbgitpuller and git bring while they keep a notebook
that a student has written in.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import tempfile
import time
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlsys_labkit._base.released import Release, mark_of, read_release
from mlsys_labkit._frontends.progress.catalogue import LabEntry, TaskEntry
from mlsys_labkit.errors import LabkitError

TIMEOUT_SECONDS = 2.0
LIMIT_BYTES = 1 << 20
NAME = "release.toml"

_PLACED = re.compile(r"lab\d\d-\d+")  # an id that depends on the position of a cell, not on its content
_Cells = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class ReleaseChanges:
    """Changes of a newer release: ``tasks`` has the changes by task number; 0 is outside of any task."""

    release: Release
    tasks: Mapping[int, Sequence[str]]

    def lines(self, lab: LabEntry) -> list[str]:
        """Return the news as lines of text: a heading, a line for each task, and what to do."""
        told = []
        for number, what in self.tasks.items():
            place = f"Task {number} · {lab.tasks[number - 1].title}" if number else "Outside the tasks"
            told.append(f"{place}: {', '.join(what)}.")
        date = f"{self.release.date:%-d %B %Y}" if os.name != "nt" else f"{self.release.date:%d %B %Y}"
        return [
            f"Release {self.release.version} of {date} is newer than your copy",
            *told,
            "Your answers are as you left them: no update overwrites a notebook that you have written in. "
            "Hidden and visible tests of the newest release decide, whichever copy you hand in. To work with them, "
            "rename your notebook, open the lab's link again, and copy your answers into the fresh one.",
        ]


def changes(lab: LabEntry, cells: _Cells, notebook: str) -> ReleaseChanges | None:
    """Compare the newest release of ``lab`` with the ``cells`` of this copy; None where nothing changed.

    Raises LabkitError where ``LABKIT_RELEASE`` names what cannot be read.
    """
    release = _newest(notebook)
    if release is None or lab.name not in release.labs:
        return None
    marks, own = release.labs[lab.name], {name: mark_of(cell) for name, cell in cells.items()}
    texts, places = set(own.values()), _places([*marks], lab)
    found: dict[int, list[str]] = {}
    for name, mark in marks.items():
        if own.get(name) == mark or (_PLACED.fullmatch(name) and mark in texts):
            continue
        what = _in_words(name, lab, name in own)
        if what not in (told := found.setdefault(places[name], [])):
            told.append(what)
    for name in own.keys() - marks.keys():
        if name in lab.by_id:
            found.setdefault(_number(lab.by_id[name][0], lab), []).append(f"{name} was taken away")
    return ReleaseChanges(release, dict(sorted(found.items()))) if found else None


def _in_words(name: str, lab: LabEntry, is_mine: bool) -> str:
    """Describe the change of the cell ``name``, which this copy may not have."""
    task, test = lab.by_id.get(name, (None, None))
    if test is not None:
        return f"the test {name} changed" if is_mine else f"the test {name} is new, {test.points:g} points"
    if task is not None:
        return "the answer's cell was handed out anew" if is_mine else "the task is new"
    return "a text or a helper changed" if is_mine or _PLACED.fullmatch(name) else f"{name} is new"


def _places(order: Sequence[str], lab: LabEntry) -> Mapping[str, int]:
    """Map each cell to the number of its task, or to 0 for cells after the last task.

    A cell with a name that stands after an answer or its tests belongs to them. A cell without a name belongs to the
    answer that follows.
    """
    here, places = 0, {}
    coming = [_number(lab.by_id[name][0], lab) if name in lab.by_id else 0 for name in order]
    for index, name in enumerate(order):
        here = coming[index] or (0 if _PLACED.fullmatch(name) else here)
        places[name] = here or next(filter(None, coming[index:]), 0)
    return places


def _number(task: TaskEntry, lab: LabEntry) -> int:
    return lab.tasks.index(task) + 1


def _newest(notebook: str) -> Release | None:
    told = os.environ.get("LABKIT_RELEASE", "").strip()
    if told.startswith(("http://", "https://")):
        return _fetched(told)
    if told:
        for path in (Path(told, "labs", NAME), Path(told, NAME)):
            if path.is_file():
                return read_release(path)
        return read_release(told)
    beside = Path(notebook).parent.parent / NAME
    return read_release(beside) if beside.is_file() else None


def _fetched(address: str) -> Release:
    """Download the release file in one request of at most two seconds: a panel must not wait for a network."""
    until, text = time.monotonic() + TIMEOUT_SECONDS, b""
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT_SECONDS) as answer:
            while part := answer.read1(1 << 16):
                text += part
                if time.monotonic() > until or len(text) > LIMIT_BYTES:
                    raise LabkitError(
                        f"LABKIT_RELEASE={address}: more than {TIMEOUT_SECONDS:g} s or {LIMIT_BYTES >> 20} MiB; "
                        "name the release.toml itself, or a folder"
                    )
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise LabkitError(f"LABKIT_RELEASE={address}: {reason}; ask whoever set it, or unset it") from None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, NAME)
        with contextlib.suppress(OSError):
            path.write_bytes(text)
        return read_release(path)
