"""``labkit hub backup`` and ``labkit hub restore``: copies of everything that a Hub keeps, and the way back.

A backup is a folder named by its time in UTC. The databases are copied first: a submission that arrives between them
and the files is in the exchange, and the next collection finds it.
"""

from __future__ import annotations

import argparse
import calendar
import contextlib
import os
import re
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from mlsys_grading.arguments import add_hub_settings, hub_settings_file
from mlsys_grading.files import named
from mlsys_grading.hub.namespace import become_root_of_a_namespace
from mlsys_grading.hub.settings import HubSettings, read_settings
from mlsys_labkit.errors import LabkitError

_STAMP = "%Y-%m-%dT%H%M%SZ"
_NAME = re.compile(r"\d{4}-\d\d-\d\dT\d{6}Z")
_HUB, _BOOK, _FILES, _EXCHANGE = "jupyterhub.sqlite", "gradebook.db", "files.tar.gz", "exchange.tar.gz"
# Of the running Hub alone. The databases are copied on their own.
_LEFT_OUT = ("./jupyterhub.sqlite*", "./course/gradebook.db*", "./tmp", "./logs", "./proxy.pid", "./hub.pid")
_A_FILE_CHANGED = 1  # tar's exit code: the file is in the next backup
_LOCK_SECONDS = 60


def add_parsers(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verbs ``hub backup`` and ``hub restore`` to ``labkit``."""
    parser = verbs.add_parser(
        "hub backup",
        help="copy a Hub's data, while it runs",
        description="Make a backup in the folder backup.folder of the settings, and remove the oldest beyond "
        "backup.keep. Prints the path of the new backup.",
    )
    add_hub_settings(parser)
    parser.add_argument("--to", type=Path, metavar="FOLDER", help="instead of backup.folder")
    parser.set_defaults(run=_run_backup)
    parser = verbs.add_parser(
        "hub restore",
        help="replace a Hub's data by a backup",
        description="Restore a backup. The state folder that was there stays, under a name that ends in .before-TIME. "
        "Refused while anything runs on that state folder.",
    )
    parser.add_argument("backup", type=Path, metavar="BACKUP", help="the folder of one backup")
    add_hub_settings(parser)
    parser.set_defaults(run=_run_restore)


def _run_backup(arguments: argparse.Namespace) -> int:
    settings = _settings(arguments)
    made = back_up(settings, arguments.to.resolve() if arguments.to else settings.backup_folder)
    print(f"labkit hub backup: {sum(path.stat().st_size for path in made.iterdir()) / 1e6:.1f} MB in {made}")
    return 0


def _run_restore(arguments: argparse.Namespace) -> int:
    settings = _settings(arguments)
    aside = restore(settings, arguments.backup.resolve())
    print(
        f"labkit hub restore: {settings.state} is that of {arguments.backup}" + (f"; before: {aside}" if aside else "")
    )
    return 0


def _settings(arguments: argparse.Namespace) -> HubSettings:
    settings = read_settings(hub_settings_file(arguments.settings))
    become_root_of_a_namespace(settings.state)
    return settings


def backups(folder: Path) -> list[Path]:
    """Return the complete backups in ``folder``, the oldest first."""
    there = folder.iterdir() if folder.is_dir() else ()
    return sorted(path for path in there if _NAME.fullmatch(path.name) and (path / _FILES).is_file())


def time_of(backup: Path) -> int:
    """Return the time of a backup, in seconds since the epoch.

    Example:
        >>> time_of(Path("1970-01-02T000001Z"))
        86401
    """
    return calendar.timegm(time.strptime(backup.name, _STAMP))


def back_up(settings: HubSettings, folder: Path) -> Path:
    """Make a backup of a Hub that may be running, and return its folder.

    Raises LabkitError if a database is missing or damaged; then no older backup is removed.
    """
    state, exchange = settings.state, settings.exchange_folder.resolve()
    when = time.time()
    while (made := folder / time.strftime(_STAMP, time.gmtime(when))).exists():  # of this second
        when += 1
    part = folder / f".{made.name}.{os.getpid()}.part"
    with named(folder):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        part.mkdir(mode=0o700)
    try:
        _copy_database(state / _HUB, part / _HUB)
        book, handed_in = state / "course" / _BOOK, state / "course" / "submitted"
        # Before the first lab there is none. Later, a missing gradebook is a loss that the backup must not hide.
        if book.exists() or (handed_in.is_dir() and any(handed_in.iterdir())):
            _copy_database(book, part / _BOOK)
        shutil.copyfile(settings.file, part / "hub.toml")
        if not exchange.is_relative_to(state):
            _pack(exchange, part / _EXCHANGE, [])
        inside = [f"./{folder.relative_to(state)}"] if folder.is_relative_to(state) else []
        _pack(state, part / _FILES, [*_LEFT_OUT, *inside])
        part.rename(made)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    for old in backups(folder)[: -settings.backup.keep] if settings.backup.keep else ():
        shutil.rmtree(old)
    return made


def restore(settings: HubSettings, backup: Path) -> Path | None:
    """Put a backup in the place of the state folder; return the new name of the folder that was there.

    Raises LabkitError, and changes nothing, if a process of a Hub runs on the state folder or the backup is damaged.
    """
    from mlsys_grading.hub.running import at_work, claim

    state, exchange = settings.state, settings.exchange_folder.resolve()
    if found := at_work(state):
        raise LabkitError(f"{found} runs on {state}; nothing was changed. First: labkit hub --stop {settings.file}")
    for name in (_HUB, _BOOK):
        if name == _HUB or (backup / name).exists():
            _check_database(backup / name)
    part = state.with_name(f".{state.name}.{os.getpid()}.part")
    stamp = time.strftime(_STAMP, time.gmtime())
    aside = state.with_name(f"{state.name}.before-{stamp}")
    with named(part):
        part.mkdir(mode=0o700, parents=True)
    try:
        _unpack(backup / _FILES, part)
        shutil.copyfile(backup / _HUB, part / _HUB)
        if (backup / _BOOK).exists():
            shutil.copyfile(backup / _BOOK, part / "course" / _BOOK)
            owner = (part / "course").stat()
            os.chown(part / "course" / _BOOK, owner.st_uid, owner.st_gid)
        if state.exists():
            claim(state)  # a Hub that starts now ends at this lock
            state.rename(aside)
        part.rename(state)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    if (backup / _EXCHANGE).exists():
        if exchange.exists():
            exchange.rename(exchange.with_name(f"{exchange.name}.before-{stamp}"))
        exchange.mkdir(parents=True)
        _unpack(backup / _EXCHANGE, exchange)
    return aside if aside.exists() else None


@contextlib.contextmanager
def _opened(path: Path, mode: str) -> Iterator[sqlite3.Connection]:
    try:
        with contextlib.closing(
            sqlite3.connect(f"{path.as_uri()}?mode={mode}", uri=True, timeout=_LOCK_SECONDS)
        ) as link:
            yield link
    except sqlite3.Error as error:
        raise LabkitError(f"{path}: {error}") from None


def _copy_database(path: Path, to: Path) -> None:
    with _opened(path, "rw") as link, _opened(to, "rwc") as copy:
        link.backup(copy)
    _check_database(to, path)


def _check_database(path: Path, origin: Path | None = None) -> None:
    with _opened(path, "rw") as link:
        told = link.execute("PRAGMA integrity_check").fetchone()[0]
    if told != "ok":
        raise LabkitError(f"{origin or path} is damaged: {' '.join(told.split())}")


def _pack(folder: Path, archive: Path, without: list[str]) -> None:
    words = ["--create", "--gzip", "--file", str(archive), "--numeric-owner", "--warning=no-file-ignored"]
    words += [f"--exclude={pattern}" for pattern in without]
    _tar([*words, "--anchored", f"--directory={folder}", "."])


def _unpack(archive: Path, folder: Path) -> None:
    words = ["--extract", "--gzip", "--file", str(archive), "--numeric-owner", "--preserve-permissions"]
    _tar([*words, "--same-owner", f"--directory={folder}"])


def _tar(words: list[str]) -> None:
    done = subprocess.run(["tar", *words], capture_output=True, text=True, errors="replace")
    if done.returncode not in (0, _A_FILE_CHANGED) or (done.returncode and "--extract" in words):
        raise LabkitError(f"tar: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
