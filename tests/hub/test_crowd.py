"""Soak test with a crowd on one Hub: log in, start a server, run a cell of lab 00, save, hand in, stop.

As many people at once as the free memory holds, each by HTTP as JupyterLab sends it, and three in a real JupyterLab.
In the middle the Hub, then its proxy, then the course's service get SIGKILL. A request that fails just then is sent
once more, as people reload a page. Nothing that was saved or handed in is lost, and no one reaches another's server.

``LABKIT_SOAK_STUDENTS`` is the size of the crowd, ``LABKIT_SOAK_AT_ONCE`` how many have a server at the same time.
Figures are printed, and written to the file ``LABKIT_SOAK_FIGURES``; no test asserts on them.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from mlsys_grading.hub.accounts import Accounts
from mlsys_grading.hub.command import _make_sources
from mlsys_labkit._base.limits import memory_free_bytes
from tests.conftest import ROOT
from tests.hub.crowd import (
    LAB,
    NOTEBOOK,
    Crowd,
    finish_in_browser,
    log_in,
    open_in_browser,
    report,
    servers,
    sources,
    watch,
    work,
)
from tests.hub.hub_process import PATIENCE_SECONDS, Hub, needs_hub, until

pytestmark = [
    needs_hub,
    pytest.mark.soak,
    pytest.mark.browser,
    pytest.mark.xdist_group("hub"),
    pytest.mark.timeout(3 * 3600),
]
STUDENTS = int(os.environ.get("LABKIT_SOAK_STUDENTS", "200"))
IN_BROWSERS = 3
SERVER_BYTES = 256 << 20  # of a server with the kernel of lab 00, which has imported the kit
OTHERS_BYTES = 4 << 30  # for the system, the Hub, the course and the browser


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    """Yield a Hub with lab 00 in the course, all labs in the homes, and pages that give tests JupyterLab's state."""
    shutil.copytree(ROOT / "solutions" / LAB, tmp_path / "solutions" / LAB)
    _make_sources(tmp_path)
    made = Hub(tmp_path, students=names())
    with open(made.folder / "singleuser" / "jupyter_server_config.py", "a") as settings:
        settings.write("c.LabApp.expose_app_in_browser = True\n")
    with made:
        yield made


def names() -> tuple[str, ...]:
    return tuple(f"student{number:03}" for number in range(STUDENTS))


def at_once() -> int:
    fitting = (memory_free_bytes() - OTHERS_BYTES) // SERVER_BYTES
    return int(os.environ.get("LABKIT_SOAK_AT_ONCE") or max(1, min(STUDENTS, fitting)))


def test_a_crowd_loses_nothing_while_every_part_of_the_hub_is_killed(hub: Hub, browser: Any) -> None:
    crowd, people, began = Crowd(hub), names(), time.monotonic()
    crowd.up.set()
    in_browsers, others = people[:IN_BROWSERS], people[IN_BROWSERS:]
    wave, done = at_once(), threading.Event()
    pages = {name: hub.open_page(browser, name) for name in in_browsers}
    for page in pages.values():
        page.click("#start")
    with ThreadPoolExecutor(wave + 1) as pool:
        watching = pool.submit(watch, crowd, done)
        ends = [min(len(others), (at // wave + 1) * wave) for at in range(len(others))]
        jobs = [pool.submit(work, crowd, *each) for each in zip(others, people, ends, strict=False)]
        try:
            for page in pages.values():
                open_in_browser(crowd, page)
            half = lambda: len(crowd.handed_in) >= len(others) // 2 or crowd.failed  # noqa: E731
            until("half of the crowd has handed in", half, 4 * 3600)
            crowd.kill_all_parts()
            for name, page in pages.items():
                finish_in_browser(crowd, page, name)
            for job in jobs:
                job.result(4 * 3600)
        finally:
            done.set()
            for job in jobs:
                job.cancel()
            watching.result()
            report(crowd, time.monotonic() - began)
    assert crowd.failed == []
    check(crowd)
    for name in in_browsers:
        log_in(hub, name).stop_server()
    until("no server is left", lambda: not servers(hub))


def check(crowd: Crowd) -> None:
    """Compare homes and the exchange with what was saved, and collect as the instructor."""
    hub = crowd.hub
    owners = {person.uid: person.name for person in Accounts(hub.state).people()}
    found: dict[str, list[list[str]]] = {}
    for folder in (hub.state / "exchange/mlsys/inbound").iterdir():
        name = owners[folder.stat().st_uid]
        assert folder.name.split("+")[:2] == [name, LAB]
        found.setdefault(name, []).append(sources(folder / f"{LAB}.ipynb"))
    assert set(found) == set(names())
    for name, saved in crowd.saved.items():
        assert sources(hub.state / "homes" / name / NOTEBOOK) == saved
        assert all(each == saved for each in found[name]), name
    grace, course = hub.log_in("grace"), f"{hub.url}/services/mlsys/formgrader"
    until("the course", lambda: grace.session.get(course, timeout=PATIENCE_SECONDS).status_code == 200)
    headers = {"X-XSRFToken": grace.token("/services/mlsys/")}
    told = grace.session.post(f"{course}/api/assignment/{LAB}/collect", headers=headers, timeout=PATIENCE_SECONDS)
    assert told.json()["success"], told.text
    collected = hub.state / "course" / "submitted"
    assert {name: sources(collected / name / LAB / f"{LAB}.ipynb") for name in names()} == crowd.saved
