"""The cache of compiled files, shared by independent processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mlsys_labkit.cuda.cache import Cache

ENTRY_BYTES = 1000
LIMIT_BYTES = 10 * ENTRY_BYTES
BEGIN = f"""
import sys
from pathlib import Path
from mlsys_labkit.cuda.cache import Cache

def fill(folder):
    (folder / "file").write_bytes(bytes({ENTRY_BYTES}))

cache = Cache(Path(sys.argv[1]), limit_bytes={LIMIT_BYTES})
"""
# Forty entries, twenty of them under names that the other processes use, too: what was fetched can be read to the end.
BUSY = (
    BEGIN
    + """
mine = []
for number in range(40):
    mine.append(cache.fetch(f"shared-{number}" if number % 2 else f"{sys.argv[2]}-{number}", fill))
    cache.clean()
    for entry in mine:
        (entry / "file").read_bytes()
"""
)
USER = (
    BEGIN
    + """
for name in sys.argv[2:]:
    cache.fetch(name, fill)
print("fetched", flush=True)
sys.stdin.read()
"""
)


def fill(folder: Path) -> None:
    (folder / "file").write_bytes(bytes(ENTRY_BYTES))


def make_old(folder: Path, *names: str, days: int = 1) -> None:
    """Make cache entries that were last used ``days`` ago."""
    long_ago = time.time() - 86_400 * days
    for name in names:
        (folder / name).mkdir(exist_ok=True)
        fill(folder / name)
        os.utime(folder / name, (long_ago, long_ago))


def entries(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.is_dir()}


@contextmanager
def process_that_uses(folder: Path, *names: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", USER, str(folder), *names]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "fetched\n"
        yield process


def test_an_entry_is_made_once(tmp_path: Path) -> None:
    cache, made = Cache(tmp_path), []

    def make(folder: Path) -> None:
        made.append(folder)
        (folder / "file").write_text("content")

    first = cache.fetch("entry", make)
    assert cache.fetch("entry", make) == first == tmp_path / "entry"
    assert (first / "file").read_text() == "content"
    assert len(made) == 1
    assert entries(tmp_path) == {"entry"}
    assert not list(tmp_path.glob("*.lock"))


def test_an_entry_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def make(folder: Path) -> None:
        (folder / "half").write_text("half")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        Cache(tmp_path).fetch("entry", make)
    assert not entries(tmp_path)
    assert not list(tmp_path.glob("*.lock"))


def test_the_entry_used_longest_ago_goes_first(tmp_path: Path) -> None:
    for days, name in enumerate(("newest", "middle", "oldest"), start=1):
        make_old(tmp_path, name, days=days)
    Cache(tmp_path, limit_bytes=2 * ENTRY_BYTES + ENTRY_BYTES // 2).clean()
    assert entries(tmp_path) == {"newest"}, "three quarters of the limit are room for one"


def test_processes_that_drop_old_entries_at_once_do_not_trip_over_each_other(tmp_path: Path) -> None:
    make_old(tmp_path, *(f"old-{number}" for number in range(500)))
    running = [
        subprocess.Popen([sys.executable, "-c", BUSY, str(tmp_path), name], stderr=subprocess.PIPE, text=True)
        for name in ("a", "b", "c")
    ]
    for process in running:
        said = process.communicate()[1]
        assert process.returncode == 0, said
    assert not [name for name in entries(tmp_path) if name.startswith("old-")]


def test_what_was_made_just_now_is_dropped_once_its_process_has_ended(tmp_path: Path) -> None:
    with process_that_uses(tmp_path, *(f"entry-{number}" for number in range(50))):
        Cache(tmp_path, LIMIT_BYTES).clean()
        assert len(entries(tmp_path)) == 50
    Cache(tmp_path, LIMIT_BYTES).clean()
    assert 0 < len(entries(tmp_path)) * ENTRY_BYTES <= LIMIT_BYTES
    assert not list(tmp_path.glob(".used-by-*")), "nor does the process's list stay"


@pytest.mark.parametrize("killed", [False, True])
def test_an_entry_stays_as_long_as_a_process_lives_that_fetched_it(tmp_path: Path, killed: bool) -> None:
    make_old(tmp_path, *(f"old-{number}" for number in range(30)))
    with process_that_uses(tmp_path, "used", "old-7") as process:
        make_old(tmp_path, "used", "old-7", days=9)  # by a notebook that stood open over the holidays
        Cache(tmp_path, LIMIT_BYTES).clean()
        assert {"used", "old-7"} < entries(tmp_path)
        assert len(entries(tmp_path)) * ENTRY_BYTES <= LIMIT_BYTES
        if killed:
            process.kill()
    Cache(tmp_path, ENTRY_BYTES).clean()
    assert not entries(tmp_path)


def test_a_folder_that_was_emptied_under_a_process_is_filled_again_and_guarded_again(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    cache = Cache(folder, ENTRY_BYTES // 2)
    cache.fetch("entry", fill)
    for path in (*folder.glob("*/*"), *folder.glob(".[a-z]*")):
        path.unlink()
    (folder / "entry").rmdir()
    cache.fetch("entry", fill)
    cache.clean()
    with process_that_uses(folder, "other"):
        pass
    subprocess.run([sys.executable, "-c", BEGIN + "cache.limit_bytes = 0; cache.clean()", str(folder)], check=True)
    assert entries(folder) == {"entry"}


def test_the_bytes_of_folders_in_an_entry_count(tmp_path: Path) -> None:
    deep = tmp_path / "headers" / "a" / "b"
    deep.mkdir(parents=True)
    (deep / "file").write_bytes(bytes(20 * ENTRY_BYTES))
    Cache(tmp_path, LIMIT_BYTES).clean()
    assert not entries(tmp_path)


def test_entries_are_dropped_while_others_are_made_without_being_asked(tmp_path: Path) -> None:
    make_old(tmp_path, *(f"old-{number}" for number in range(30)))
    cache = Cache(tmp_path, LIMIT_BYTES)
    cache.fetch("first", fill)
    long_ago = time.time() - 600
    os.utime(tmp_path / ".cleaned", (long_ago, long_ago))
    cache.fetch("second", fill)
    assert {"first", "second"} < entries(tmp_path)
    assert len(entries(tmp_path)) * ENTRY_BYTES <= LIMIT_BYTES


def test_half_made_entries_of_a_dead_process_go_and_those_being_made_stay(tmp_path: Path) -> None:
    make_old(tmp_path, ".making-1-dead")
    (tmp_path / ".making-2-alive").mkdir()
    Cache(tmp_path, LIMIT_BYTES).clean()
    assert entries(tmp_path) == {".making-2-alive"}
