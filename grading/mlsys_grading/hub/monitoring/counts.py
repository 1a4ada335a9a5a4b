"""Counts of servers, people and submissions, from the Hub's database, the course's folder and the exchange.

No function returns a name of a person. Students can make folders in the exchange, with any names: only labs that the
course has are counted, and a student is the owner of a folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from mlsys_grading.hub.disk import disk_usage
from mlsys_grading.hub.settings import HubSettings

_LOCK_SECONDS = 1.0
_KERNEL = b"ipykernel"


def servers(settings: HubSettings) -> dict[str, int]:
    """Count the running servers of each profile."""
    only = settings.profiles[0].slug
    found = Counter({profile.slug: 0 for profile in settings.profiles})
    rows = _rows(settings.state / "jupyterhub.sqlite", "SELECT state FROM spawners WHERE server_id IS NOT NULL")
    for (text,) in rows:
        found[json.loads(text or "{}").get("profile", only)] += 1
    return {slug: found[slug] for slug in (profile.slug for profile in settings.profiles)}


def waiting_for_admission(state: Path) -> int:
    """Count the people who signed up and whom no instructor has admitted yet."""
    rows = _rows(state / "jupyterhub.sqlite", "SELECT count(*) FROM users_info WHERE NOT is_authorized")
    return int(next(iter(rows), (0,))[0])


def kernels(homes: Path, proc: Path = Path("/proc")) -> int:
    """Count the kernels of people whose homes are in ``homes``; another Hub on this machine has homes elsewhere."""
    mark, found = b"\0HOME=" + os.fsencode(homes) + b"/", 0
    for process in proc.iterdir():
        if process.name.isdigit():
            with contextlib.suppress(OSError):  # it has just ended
                words = (process / "cmdline").read_bytes().split(b"\0")
                is_kernel = b"-m" in words and any(word.startswith(_KERNEL) for word in words)
                found += is_kernel and mark in b"\0" + (process / "environ").read_bytes()
    return found


def submissions(settings: HubSettings) -> dict[str, dict[str, int]]:
    """Count, for each lab of the course, the students with a submission in each state.

    The states are "submitted" (in the exchange), "collected", "graded" (in the gradebook), and "failed": the last
    grading of the lab has left this one out.
    """
    course = settings.state / "course"
    labs = [path.name for path in _folders(course / "source")]
    graded: dict[str, set[str]] = {lab: set() for lab in labs}
    query = (
        "SELECT assignment.name, submitted_assignment.student_id FROM submitted_assignment"
        " JOIN assignment ON assignment.id = submitted_assignment.assignment_id"
    )
    for lab, student in _rows(course / "gradebook.db", query):
        graded.setdefault(lab, set()).add(student)
    found: dict[str, dict[str, int]] = {}
    sent = _submitted(settings.exchange_folder / settings.course.id / "inbound", labs)
    for lab in labs:
        last = max(
            (path.stat().st_mtime for path in (course / ".mlsys-grading/results" / lab).glob("*.json")), default=0
        )
        collected = {path.name: path for path in _folders(course / "submitted") if (path / lab).is_dir()}
        late = [name for name in collected.keys() - graded[lab] if (collected[name] / lab).stat().st_ctime < last]
        found[lab] = {
            "submitted": len(sent[lab]),
            "collected": len(collected),
            "graded": len(graded[lab]),
            "failed": len(late),
        }
    return found


def feedback_released(settings: HubSettings) -> int:
    """Count the feedback pages that students can fetch."""
    folder = settings.exchange_folder / settings.course.id / "feedback"
    return sum(path.suffix == ".html" for path in folder.iterdir()) if folder.is_dir() else 0


def home_sizes(homes: Path) -> Mapping[str, float]:
    """Measure the homes with ``du``: their number, the sum, the largest and the median, in bytes of disk."""
    sizes = disk_usage(_folders(homes))
    middle = float(median(sizes)) if sizes else 0.0
    return {"count": len(sizes), "sum": sum(sizes), "largest": max(sizes, default=0), "median": middle}


def _submitted(inbound: Path, labs: Sequence[str]) -> dict[str, set[int]]:
    """Return the owners of each lab's submissions; a folder is named STUDENT+LAB+TIME+RANDOM."""
    owners: dict[str, set[int]] = {lab: set() for lab in labs}
    for folder in _folders(inbound):
        parts = folder.name.split("+")
        if len(parts) > 2 and parts[1] in owners:
            with contextlib.suppress(OSError):
                owners[parts[1]].add(folder.stat().st_uid)
    return owners


def _folders(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []


def _rows(database: Path, query: str) -> list[Any]:
    """Return the rows; none if the file or the table is not there yet. Raises sqlite3.Error if it cannot be read."""
    if not database.exists():
        return []
    link = sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True, timeout=_LOCK_SECONDS)
    with contextlib.closing(link):
        try:
            return link.execute(query).fetchall()
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                return []
            raise
