"""Last tests of this folder, in the group of all that start a Hub: no process, mount, group or file is left."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from mlsys_grading.hub import limits
from mlsys_grading.hub.limits import enforcement
from tests.hub.hub_process import FOLDERS, MARK, SHARED, until

pytestmark = [pytest.mark.xdist_group("hub"), pytest.mark.timeout(900)]
# User ids of people: of a Hub that root starts (hub/accounts.py), and of the ordinary user of hub_process.py.
PEOPLE = (range(1_900_000_000, 2_000_000_001), range(3_000_000, 3_065_536))
BROWSER = ("chromium", "playwright")  # one for all tests of this process, other folders' too


def groups() -> set[Path]:
    return {group for folder in enforcement().folders.values() for group in folder.glob("labkit-server-*")}


def accounts() -> dict[str, bytes]:
    """Return the users of this machine, and the user ids that it lends."""
    return {name: path.read_bytes() for name in ("passwd", "group", "subuid") if (path := Path("/etc", name)).exists()}


BEFORE, ACCOUNTS = groups(), accounts()


def left() -> list[str]:
    """List processes, mounts, control groups and files that the tests of this folder have left."""
    found = of_hubs("tests/hub/", FOLDERS)
    dead = (group for group in groups() if not psutil.pid_exists(int(group.name.rpartition("-")[2])))
    found += [f"group {group}" for group in dead if group not in BEFORE]
    for path in Path("/dev/shm").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if any(path.stat().st_uid in uids for uids in PEOPLE):
                found.append(f"file {path}")
    return found


def of_hubs(tests: str, folders: Sequence[Path]) -> list[str]:
    """List processes and mounts of the Hubs in ``folders``, and children of the tests whose names begin so."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    return processes(tests, folders) + [f"mount {line}" for line in mounts if any(str(one) in line for one in folders)]


def processes(tests: str, folders: Sequence[Path]) -> list[str]:
    """List processes of a Hub's folder, and children of the tests here, which inherit pytest's variables."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            about, words = process.environ(), " ".join(process.cmdline())
            ours = about.get("MLSYS_HUB_TESTS") == MARK and about.get("PYTEST_CURRENT_TEST", "").startswith(tests)
            ours |= any(str(folder) in f"{words} {about.get('HOME', '')}" for folder in folders)
            if ours and process.pid != os.getpid() and not any(name in words for name in BROWSER):
                found.append(f"process {process.pid} ({process.status()}): {words[:200]}")
    return found


def test_hub_tests_leave_nothing_behind() -> None:
    SHARED.close()  # the Hub that the tests before this one shared; this is the last of them
    # The servers ended with it. The next Hub that starts removes their control groups, in this call.
    limits._prepared.cache_clear()
    limits._prepared()
    found: list[str] = []

    def nothing() -> bool:
        found[:] = left()
        return not found

    with contextlib.suppress(AssertionError):
        until("what has been ended is gone", nothing, 60)
    assert found == []
    assert accounts() == ACCOUNTS
