"""A disk that is really full: a few kilobytes of tmpfs, which only root can mount."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.grading.course import Course
from tests.grading.run_helpers import labkit


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Mount an empty file system of 40 kB."""
    place = tmp_path / "disk"
    place.mkdir()
    try:
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40k", "tmpfs", place], capture_output=True)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if mounted.returncode:
        pytest.skip("cannot mount a small file system")
    yield place
    subprocess.run(["umount", place], check=True)


def verb(course: Course, *arguments: object, temporary: Path | None = None) -> tuple[int, str]:
    environment = dict(os.environ) | ({"TMPDIR": str(temporary)} if temporary else {})
    command = [labkit(), *map(str, arguments), "--root", str(course.root)]
    done = subprocess.run(command, cwd=course.root, env=environment, capture_output=True, text=True, timeout=600)
    return done.returncode, done.stderr


def one_line(said: str) -> bool:
    return said.count("\n") == 1 and said.startswith("labkit: No space left on device: ")


def test_build_leaves_the_old_notebook(course: Course, disk: Path) -> None:
    (disk / "full").write_bytes(b"x" * 36 * 1024)
    (course.root / "labs").symlink_to(disk, target_is_directory=True)
    code, said = verb(course, "build")
    assert code == 2
    assert one_line(said), said
    assert [path.name for path in disk.rglob("*") if path.is_file()] == ["full"]


def test_run_leaves_no_report(course: Course, disk: Path) -> None:
    code, said = verb(course, "run", "--no-roofline", "--out", disk / "report")
    assert code == 2
    assert one_line(said), said
    assert list(disk.iterdir()) == []


def test_prove_says_where_room_is_missing(course: Course, disk: Path) -> None:
    (disk / "full").write_bytes(b"x" * 20 * 1024)  # there is room for the plan, and not for the results
    code, said = verb(course, "prove", temporary=disk)
    assert code == 2
    assert one_line(said), said
    assert "TMPDIR" in said
    assert [path.name for path in disk.iterdir()] == ["full"]
