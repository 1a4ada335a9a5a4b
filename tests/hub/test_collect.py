"""Tests of collection: whatever one student puts into the exchange, the work of all others is collected."""

from __future__ import annotations

import logging
import os
import pwd
import shutil
import subprocess
from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo
from pathlib import Path

import pytest
from nbgrader.coursedir import CourseDirectory
from traitlets.config import Config

from mlsys_grading.hub import collect as module
from mlsys_grading.hub.collect import Collect

LAB = "lab01"
STUDENT = pwd.getpwuid(os.getuid()).pw_name  # the user of this process writes the files
NAME = f"{STUDENT}+{LAB}+2026-01-01 00:00:00.000000 UTC+x"


@pytest.fixture
def collect(tmp_path: Path) -> Collect:
    config = Config()
    config.CourseDirectory.root = str(tmp_path / "course")
    config.CourseDirectory.course_id = "mlsys"
    config.CourseDirectory.assignment_id = LAB
    config.Exchange.root = str(tmp_path / "exchange")
    hand_in(tmp_path, f"{STUDENT}+{LAB}+2026-01-01 00:00:00.000000 UTC+good")
    return Collect(coursedir=CourseDirectory(config=config), config=config)


def hand_in(tmp_path: Path, name: str) -> Path:
    folder = tmp_path / "exchange/mlsys/inbound" / name
    folder.mkdir(parents=True)
    (folder / f"{LAB}.ipynb").write_text("{}")
    return folder


def collected(tmp_path: Path) -> Path:
    return tmp_path / "course/submitted" / STUDENT / LAB


def test_deeply_nested_folders_are_left_out(tmp_path: Path, collect: Collect) -> None:
    at = os.open(hand_in(tmp_path, NAME), os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    try:
        collect.start()
    finally:
        subprocess.run(["rm", "-rf", tmp_path / "exchange"], check=True)  # shutil.rmtree, too, calls itself
    assert (collected(tmp_path) / f"{LAB}.ipynb").read_text() == "{}"


def test_ordinary_folders_are_collected(tmp_path: Path, collect: Collect) -> None:
    figures = tmp_path / "exchange/mlsys/inbound" / f"{STUDENT}+{LAB}+2026-01-01 00:00:00.000000 UTC+good" / "a/b/c"
    figures.mkdir(parents=True)
    (figures / "figure.txt").write_text("bytes")
    collect.start()
    assert (collected(tmp_path) / "a/b/c/figure.txt").read_text() == "bytes"


def test_a_submission_from_the_future_is_collected_and_reported(
    tmp_path: Path, collect: Collect, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Set the clock back by two days after a submission."""

    class Earlier(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return datetime.now(tz) - timedelta(days=2)

    monkeypatch.setattr(module, "datetime", Earlier)
    monkeypatch.setattr(collect, "log", logging.getLogger("collect"))
    collect.start()
    assert (collected(tmp_path) / f"{LAB}.ipynb").read_text() == "{}"
    assert [line for line in caplog.messages if "which is yet to come" in line]


@pytest.mark.parametrize("has_older", [True, False])
def test_a_submission_that_broke_off_replaces_no_whole_one(tmp_path: Path, collect: Collect, has_older: bool) -> None:
    """Hand in a whole one, then one whose copy a full disk has ended; or the second alone."""
    older = tmp_path / "exchange/mlsys/inbound" / f"{STUDENT}+{LAB}+2026-01-01 00:00:00.000000 UTC+good"
    if has_older:
        (older / "submission_secret.txt").write_text(128 * "x")
    else:
        shutil.rmtree(older)
    newer = hand_in(tmp_path, f"{STUDENT}+{LAB}+2026-01-02 00:00:00.000000 UTC+x")
    (newer / f"{LAB}.ipynb").write_text('{"cel')
    (newer / "submission_secret.txt").touch()
    collect.start()
    assert (collected(tmp_path) / f"{LAB}.ipynb").read_text() == ("{}" if has_older else '{"cel')


def test_file_growing_before_the_copy_is_left_out(tmp_path: Path, collect: Collect) -> None:
    """Grow the file to 1 GiB of holes before each copy, which would fill them with zeros."""
    notebook = tmp_path / "exchange/mlsys/inbound" / f"{STUDENT}+{LAB}+2026-01-01 00:00:00.000000 UTC+good/{LAB}.ipynb"
    _before_each_copy(collect, lambda: os.truncate(notebook, 1 << 30))
    collect.start()
    assert not collected(tmp_path).exists()


def test_file_changed_before_the_copy_has_not_the_earlier_time(tmp_path: Path, collect: Collect) -> None:
    """Change the file as a student can who is told by inotify that somebody has opened it."""
    notebook = tmp_path / "exchange/mlsys/inbound" / f"{STUDENT}+{LAB}+2026-01-01 00:00:00.000000 UTC+good/{LAB}.ipynb"

    def change() -> None:
        before = notebook.stat().st_ctime
        while notebook.stat().st_ctime == before:  # the kernel's clock of files is a coarse one
            notebook.write_text("late")

    _before_each_copy(collect, change)
    collect.start()
    assert not collected(tmp_path).exists()


def _before_each_copy(collect: Collect, act: Callable[[], None]) -> None:
    files, copy = collect._files, collect.do_copy

    def found(folder: Path) -> object:
        for below, file in files(folder):
            act()
            yield below, file

    def copied(src: str, dest: str, log: object = None) -> None:
        collect._files = found
        copy(src, dest, log)

    collect.do_copy = copied


@pytest.mark.parametrize(
    "when", ["", "no time", "9999999-01-01", "12 noon", "1" * 200, "nan", "2026-01-01 +99:99", "٣"]
)
def test_any_claimed_time_is_collected(tmp_path: Path, collect: Collect, when: str) -> None:
    hand_in(tmp_path, f"{STUDENT}+{LAB}+{when}+x")
    collect.start()
    assert (collected(tmp_path) / f"{LAB}.ipynb").exists()


@pytest.mark.parametrize("name", [b"\xff\xfe\n", b"*+lab01+now+x", b"+++", b"<img src=x onerror=alert(1)>"])
def test_any_folder_name_is_survived(tmp_path: Path, collect: Collect, name: bytes) -> None:
    os.mkdir(os.path.join(os.fsencode(tmp_path / "exchange/mlsys/inbound"), name))
    collect.start()
    assert (collected(tmp_path) / f"{LAB}.ipynb").exists()
