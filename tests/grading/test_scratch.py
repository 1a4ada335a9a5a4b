"""Scratch folders: removed at the end, swept after a kill, and never taken from a running process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mlsys_grading import scratch
from mlsys_grading.report import write

HOLD = """
import sys, time
from pathlib import Path
from mlsys_grading.scratch import scratch_folder
with scratch_folder("labkit", Path(sys.argv[1])) as folder:
    (folder / "file").write_text("x")
    print(folder, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def held(tmp_path, monkeypatch):
    """Start a process that holds a scratch folder in ``tmp_path``, and yield both; the grace period is 0."""
    monkeypatch.setattr(scratch, "GRACE_SECONDS", 0.0)
    process = subprocess.Popen([sys.executable, "-c", HOLD, tmp_path], stdout=subprocess.PIPE, text=True)
    yield process, Path(process.stdout.readline().strip())
    process.kill()
    process.communicate()


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_a_folder_is_gone_at_the_end_unless_it_was_moved(tmp_path):
    with scratch.scratch_folder("labkit", tmp_path) as gone:
        (gone / "file").write_text("x")
    with scratch.scratch_folder("labkit", tmp_path) as moved:
        moved.rename(tmp_path / "kept")
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_a_killed_process_leaves_a_folder_that_the_next_one_sweeps(held, tmp_path):
    process, folder = held
    scratch.sweep("labkit", tmp_path)
    assert folder.is_dir(), "its process is alive"
    kill(process)
    assert folder.is_dir()
    with scratch.scratch_folder("labkit", tmp_path):
        assert not folder.exists()


def test_sweep_leaves_young_other_and_linked_folders(held, tmp_path, monkeypatch):
    process, folder = held
    kill(process)
    others = [tmp_path / "labkit-thursday", tmp_path / "labkit-long-name.scratch", tmp_path / "other-12345678.scratch"]
    for other in others:
        other.mkdir()
    (tmp_path / "labkit-12345678.scratch").symlink_to(others[0])
    scratch.sweep("labkit", tmp_path)
    assert not folder.exists()
    assert all(other.is_dir() for other in others)
    young = tmp_path / "labkit-abcdefgh.scratch"
    young.mkdir()
    monkeypatch.setattr(scratch, "GRACE_SECONDS", 60.0)
    scratch.sweep("labkit", tmp_path)
    assert young.is_dir()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's folder")
def test_another_users_folder_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(scratch, "GRACE_SECONDS", 0.0)
    theirs = tmp_path / "labkit-12345678.scratch"
    theirs.mkdir()
    os.chown(theirs, 65534, 65534)
    scratch.sweep("labkit", tmp_path)
    assert theirs.is_dir()


def test_a_report_that_was_killed_between_its_renames_comes_back(tmp_path, monkeypatch):
    monkeypatch.setattr(scratch, "GRACE_SECONDS", 0.0)
    out, old = tmp_path / "report", tmp_path / ".report-12345678.scratch.old"
    for there, kept in ((False, "old"), (True, "new")):
        old.mkdir()
        (old / write.DATA).write_text("old")
        if there:
            (out / write.DATA).write_text("new")
        with write.staging(out):
            assert (out / write.DATA).read_text() == kept
        assert [path.name for path in tmp_path.iterdir()] == ["report"]
