"""A release that fails half-way, is killed, or runs beside another."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from mlsys_grading.lab import read_labs
from mlsys_grading.release import place
from mlsys_grading.release.settings import ReleaseSettings
from mlsys_grading.release.tree import student_tree
from tests.grading.course import Course
from tests.grading.release_helpers import files, release

pytestmark = pytest.mark.usefixtures("settled_git")


@pytest.fixture
def next_release(course: Course, out: Path) -> place.Change:
    """Make a folder with one release and a student's file; return the change to the next release."""
    (course.root / "LICENSE").write_text("free")
    (course.root / "mlsys_labkit" / "old").mkdir()
    (course.root / "mlsys_labkit" / "old" / "a.py").write_text("a = 1")
    assert release(course, out) == 0
    (out / "mine.txt").write_text("mine")
    (course.root / "LICENSE").unlink()
    shutil.rmtree(course.root / "mlsys_labkit" / "old")
    (course.root / "CITATION.cff").write_text("cite me")
    (course.root / "mlsys_labkit" / "new").mkdir()
    (course.root / "mlsys_labkit" / "new" / "b.py").write_text("b = 1")
    course.edit(course.source, "# ## Scale", "# ## Scale, corrected")
    tree = student_tree(course.root, read_labs(course.root), ReleaseSettings(), datetime(2026, 1, 1, tzinfo=UTC))
    return place.change(out, tree.files)


def steps(monkeypatch: pytest.MonkeyPatch, stop: int, error: BaseException) -> list[str]:
    """Let the ``stop``-th rename, copy, removal or writing raise ``error``; returns what was done."""
    done: list[str] = []

    def counted(real: object, name: str) -> object:
        def call(*arguments: object, **keywords: object) -> object:
            done.append(name)
            if len(done) == stop:
                raise error
            return real(*arguments, **keywords)  # type: ignore[operator]

        return call

    monkeypatch.setattr(place.os, "replace", counted(os.replace, "replace"))
    monkeypatch.setattr(place.shutil, "copy2", counted(shutil.copy2, "copy"))
    monkeypatch.setattr(place.Path, "unlink", counted(Path.unlink, "unlink"))
    monkeypatch.setattr(place.Path, "write_bytes", counted(Path.write_bytes, "write"))
    return done


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=["full", "Ctrl-C"])
def test_stopped_release_leaves_the_old_one_whole(out: Path, next_release: place.Change, error: BaseException) -> None:
    old = files(out)
    for stop in range(1, 99):
        with pytest.MonkeyPatch.context() as patch, contextlib.suppress(type(error)):
            done = steps(patch, stop, error)
            place.put(out, next_release)
        if len(done) < stop:
            break
        assert files(out) == old, f"stopped at step {stop}, {done[-1]}"
    assert stop > 15, "the steps were not seen"
    assert {"CITATION.cff", "mlsys_labkit/new/b.py", "mine.txt"} <= set(files(out))
    assert {"LICENSE", "mlsys_labkit/old/a.py"}.isdisjoint(files(out))
    assert not (out / "mlsys_labkit" / "old").exists()


def test_next_release_undoes_a_killed_one(
    course: Course, out: Path, next_release: place.Change, capsys: pytest.CaptureFixture[str]
) -> None:
    """Clean-up is disabled and the run stopped at each step in turn, because a killed process cleans up nothing."""
    old, unfinished = files(out), 0
    for stop in range(1, 99):
        with pytest.MonkeyPatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
            done = steps(patch, stop, KeyboardInterrupt())
            patch.setattr(place, "undo_unfinished", lambda folder: None)
            place.put(out, next_release)
        if len(done) < stop:
            break
        if place.is_unfinished(out):
            unfinished += 1
            if unfinished == 3:
                assert release(course, out, "--check") == 1
                assert "a run was killed in the midst of it" in capsys.readouterr().err
        place.undo_unfinished(out)
        assert files(out) == old, f"killed at step {stop}, {done[-1]}"
    assert unfinished > 5
    assert release(course, out) == 0
    assert release(course, out, "--check") == 0


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_release_killed_by_sigkill_is_all_or_nothing(course: Course, out: Path) -> None:
    """Killed as soon as it moves files into place, and a while later each time: the next run finds all or nothing."""
    many = [course.root / "mlsys_labkit" / f"part{number}.py" for number in range(800)]
    code = "import sys; from mlsys_labkit._frontends.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "release", str(out), "--root", str(course.root)]
    journal, unfinished = out / place.NEXT / "journal.json", 0
    for path in many:
        path.write_text("number = 0\n")
    assert release(course, out) == 0
    for number in range(1, 9):
        old = files(out)
        for path in many:
            path.write_text(f"number = {number}\n")
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        while process.poll() is None and not journal.exists():
            time.sleep(1e-4)
        for _ in range(number * 20_000):  # a little further on each time, whatever the machine
            pass
        process.kill()
        process.wait()
        unfinished += place.is_unfinished(out)
        place.undo_unfinished(out)
        if files(out) != old:
            assert release(course, out, "--check") == 0
    assert unfinished > 1


@pytest.fixture
def locked(out: Path) -> Iterator[Path]:
    out.mkdir()
    lock = os.open(out, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    yield out
    os.close(lock)


def test_second_release_into_a_folder_is_refused(
    course: Course, locked: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert release(course, locked) == 2
    assert "another labkit release is at work" in capsys.readouterr().err
