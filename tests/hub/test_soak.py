"""Soak test with a class of fifty on one Hub, by HTTP: log in, start a server, fetch, solve, validate, hand in, stop.

Ten at a time, as their servers would fill a small machine's memory. In the middle the Hub is killed and started again:
who asks just then asks once more, as people reload a page; nobody's server stops, and no submission is lost.
``LABKIT_SOAK_STUDENTS`` makes the class smaller.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from mlsys_grading.build.notebook import dumps, source_notebook
from mlsys_grading.lab import Lab, read_lab
from mlsys_grading.processes import tree_memory_bytes
from tests.conftest import ROOT
from tests.hub.hub_process import Hub, Person, needs_hub, until

pytestmark = [needs_hub, pytest.mark.soak, pytest.mark.xdist_group("hub"), pytest.mark.timeout(3600)]
STUDENTS = int(os.environ.get("LABKIT_SOAK_STUDENTS", "50"))
AT_ONCE = 10
LAB = "lab01_linear_algebra"
NOTEBOOK = f"mlsys/{LAB}/{LAB}.ipynb"
PATIENCE_SECONDS = 600


@dataclass
class Class:
    """Requests of students to the Hub, and their outcomes."""

    hub: Hub
    up: threading.Event = field(default_factory=threading.Event)
    down: list[tuple[float, float]] = field(default_factory=list)
    seconds: dict[str, list[float]] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    again: list[str] = field(default_factory=list)
    handed_in: list[str] = field(default_factory=list)
    server_bytes: list[int] = field(default_factory=list)

    def ask(self, name: str, what: str, request: Callable[[], Any]) -> Any:
        """Make a request. Repeat it only if it failed while the Hub was away."""
        while True:
            self.up.wait()
            began = time.monotonic()
            try:
                answer = request()
            except Exception as error:
                if not self._was_down(began):
                    self.failed.append(f"{name}, {what}: {error!r}")
                    raise
                self.again.append(f"{name}, {what}")
                continue
            self.seconds.setdefault(what, []).append(time.monotonic() - began)
            return answer

    def _was_down(self, since: float) -> bool:
        return not self.up.is_set() or any(end >= since for _, end in self.down)

    def crash(self) -> None:
        """Kill the Hub with SIGKILL, and start it again."""
        self.up.clear()
        began = time.monotonic()
        try:
            self.hub.kill()
            self.hub.start()
        finally:
            self.down.append((began, time.monotonic() + 1.0))  # a request of a server may just have been refused
            self.up.set()


@contextmanager
def opened(folder: Path, lab: Lab, students: tuple[str, ...]) -> Iterator[Hub]:
    source = folder / "build" / "source" / LAB
    source.mkdir(parents=True)
    (source / f"{LAB}.ipynb").write_text(dumps(source_notebook(lab)), encoding="utf-8")
    (folder / "no-labs").mkdir()
    with Hub(folder, labs=folder / "no-labs", students=students) as hub:
        yield hub


def as_instructor(hub: Hub, person: Person, *verbs: str) -> None:
    """Press buttons of formgrader through its API."""
    page = f"{hub.url}/services/mlsys/formgrader/manage_assignments"
    until("the course", lambda: person.session.get(page, timeout=PATIENCE_SECONDS).status_code == 200)
    for verb in verbs:
        address = f"{hub.url}/services/mlsys/formgrader/api/assignment/{LAB}/{verb}"
        headers = {"X-XSRFToken": person.token("/services/mlsys/")}
        answer = person.session.post(address, headers=headers, timeout=PATIENCE_SECONDS)
        assert answer.json()["success"], answer.text


def solved(person: Person, solutions: dict[str, str]) -> str:
    """Write the answers into the student's notebook; return its sources as they were sent."""
    model = person.get(f"api/contents/{NOTEBOOK}")
    model.raise_for_status()
    content = model.json()["content"]
    for cell in content["cells"]:
        cell["source"] = solutions.get(cell["metadata"].get("nbgrader", {}).get("grade_id"), cell["source"])
    content["metadata"]["handed_in_by"] = person.name
    saved = {"type": "notebook", "format": "json", "content": content}
    person.request("PUT", f"api/contents/{NOTEBOOK}", json=saved).raise_for_status()
    return json.dumps([cell["source"] for cell in content["cells"]])


def post(person: Person, verb: str, /, **data: str) -> Any:
    """Send a request to nbgrader's API of the person's server."""
    prefix = f"/user/{person.name}/"
    headers = {"X-XSRFToken": person.token(prefix)}
    address = f"{person.hub.url}{prefix}assignments/{verb}"
    answer = person.session.post(address, data=data, headers=headers, timeout=PATIENCE_SECONDS)
    answer.raise_for_status()
    told = answer.json()
    assert told["success"], told
    return told["value"]


def work(course: Class, name: str, solutions: dict[str, str]) -> str:
    """Do the work of one student, from login to the end of the server."""
    hub = course.hub
    person: Person = course.ask(name, "log in", lambda: _logged_in(hub, name))
    course.ask(name, "start", person.start_server)
    handing_in = {"assignment_id": LAB, "course_id": "mlsys"}
    course.ask(name, "list", lambda: _listed(person))
    course.ask(name, "fetch", lambda: post(person, "fetch", **handing_in))
    sources: str = course.ask(name, "save", lambda: solved(person, solutions))
    told = course.ask(name, "validate", lambda: post(person, "validate", path=NOTEBOOK))
    if set(told) & {"failed", "changed", "error"}:
        course.failed.append(f"{name}, validate: {str(told)[:200]}")
    course.server_bytes.append(_memory_bytes(hub, name))
    course.ask(name, "submit", lambda: post(person, "submit", **handing_in))
    course.handed_in.append(name)
    course.ask(name, "stop", person.stop_server)
    return sources


def _logged_in(hub: Hub, name: str) -> Person:
    person = hub.log_in(name)
    assert person.answer is not None
    person.answer.raise_for_status()
    assert person.answer.url.endswith("/hub/home"), person.answer.url
    return person


def _listed(person: Person) -> None:
    answer = person.get("assignments", params={"course_id": "mlsys"})
    answer.raise_for_status()
    assert LAB in {each["assignment_id"] for each in answer.json()["value"]}, answer.text


def _memory_bytes(hub: Hub, name: str) -> int:
    pid = servers(hub).get(name)
    return tree_memory_bytes(pid) if pid else 0


def servers(hub: Hub) -> dict[str, int]:
    """Return the outermost process of each student's server."""
    found = {}
    for process in hub.servers():
        with suppress(psutil.Error):
            found[Path(process.environ()["HOME"]).name] = process.pid
    return {name: pid for name, pid in found.items() if name.startswith("student")}


def test_fifty_students_and_a_crash_in_the_middle(tmp_path: Path) -> None:
    lab = read_lab(ROOT, LAB)
    solutions = {task.name: task.solution.source for task in lab.tasks}
    names = tuple(f"student{number:02}" for number in range(STUDENTS))
    with opened(tmp_path, lab, names) as hub, ThreadPoolExecutor(AT_ONCE) as pool:
        grace = hub.log_in("grace")
        as_instructor(hub, grace, "assign", "release")
        course = Class(hub)
        course.up.set()
        began = time.monotonic()
        evenings = {name: pool.submit(work, course, name, solutions) for name in names}
        until("the middle", lambda: len(course.handed_in) >= STUDENTS // 2 or course.failed, PATIENCE_SECONDS * 5)
        before = servers(hub)
        course.crash()
        after = servers(hub)
        at_work = before.keys() - set(course.handed_in)
        sources = {name: evening.result(PATIENCE_SECONDS * 5) for name, evening in evenings.items()}
        seconds = time.monotonic() - began
        assert course.failed == []
        as_instructor(hub, grace, "collect")
        report(
            course,
            seconds,
            hub_bytes=_resident_bytes(hub),
            kept=sum(before[n] == after.get(n) for n in at_work),
            of=len(at_work),
        )
        submitted = hub.state / "course" / "submitted"
        for name in names:
            kept = json.loads((submitted / name / LAB / f"{LAB}.ipynb").read_text())
            assert kept["metadata"]["handed_in_by"] == name
            assert json.dumps(["".join(cell["source"]) for cell in kept["cells"]]) == sources[name]


def _resident_bytes(hub: Hub) -> int:
    assert hub.process is not None
    return int(psutil.Process(hub.process.pid).memory_info().rss)


def report(course: Class, seconds: float, hub_bytes: int, kept: int, of: int) -> None:
    """Print figures for the reader of the output; no test asserts on them."""
    figures: dict[str, Any] = {
        "students": STUDENTS,
        "at_once": AT_ONCE,
        "seconds": round(seconds, 1),
        "requests": sum(map(len, course.seconds.values())),
        "failed": len(course.failed),
        "asked_again_while_the_hub_was_away": len(course.again),
        "hub_away_seconds": round(course.down[0][1] - course.down[0][0] - 1.0, 1),
        "servers_at_work_at_the_crash": of,
        "of_these_at_work_afterwards": kept,
        "handed_in": len(course.handed_in),
        "hub_mib": hub_bytes >> 20,
        "server_with_kernel_mib": round(statistics.median(course.server_bytes) / 2**20),
        "median_seconds": {what: round(statistics.median(took), 2) for what, took in course.seconds.items()},
        "longest_seconds": {what: round(max(took), 2) for what, took in course.seconds.items()},
    }
    print(json.dumps(figures, indent=2), file=sys.stderr)
    if path := os.environ.get("LABKIT_SOAK_FIGURES"):
        Path(path).write_text(json.dumps(figures, indent=2))
