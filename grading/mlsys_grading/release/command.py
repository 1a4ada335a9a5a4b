"""``labkit release DIR``: the repository that students get, with nothing in it that they should not read."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlsys_grading.arguments import need, root_of
from mlsys_labkit.errors import LabkitError

if TYPE_CHECKING:
    from mlsys_grading.lab import Lab
    from mlsys_grading.release.hidden import HiddenLines
    from mlsys_grading.release.place import Change
    from mlsys_grading.release.settings import ReleaseSettings
    from mlsys_grading.release.tree import Tree

_SHOWN = 20  # most lines shown of a list


def add_parser(subparsers: Any) -> None:
    """Add the verb ``release`` to ``labkit``."""
    parser = subparsers.add_parser(
        "release", help="write the repository that students get: labs, kit, no solutions", description=__doc__
    )
    parser.add_argument(
        "folder",
        type=Path,
        metavar="DIR",
        help="a new or empty folder, a clone of an empty repository, or one that holds an earlier release",
    )
    parser.add_argument("--root", type=Path, metavar="CHECKOUT", help="default: the one around the current folder")
    parser.add_argument("--settings", type=Path, metavar="FILE", help="default: grading/release.toml of the checkout")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 with what differs if DIR is not this release"
    )
    parser.add_argument("--commit", action="store_true", help="commit the release in DIR, a git repository")
    parser.add_argument(
        "--force", action="store_true", help="overwrite files in DIR that no release wrote, or that were edited since"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Release, and return 0 (released, or DIR is this release) or 1 (findings, hidden lines, or differences)."""
    from mlsys_grading.lab import choose, read_labs
    from mlsys_grading.release import git, place
    from mlsys_grading.release.hidden import hidden_lines
    from mlsys_grading.release.settings import FILE, ReleaseSettings, read_settings
    from mlsys_grading.release.tree import SOURCES

    need("jinja2")
    root, folder = root_of(arguments), arguments.folder.absolute()
    given = arguments.settings or root / FILE
    settings = read_settings(given) if arguments.settings or given.is_file() else ReleaseSettings()
    _refuse_place(folder, root, arguments.force, arguments.commit)
    labs = read_labs(root)
    released = [lab for lab in labs if lab.name in choose(root, settings.labs)]
    if problems := _findings(labs, released):
        return _tell(problems, "nothing was released: mend the labs first")
    hidden = hidden_lines(labs)
    if arguments.check:
        return _check(folder, _tree(root, released, settings, folder), hidden)
    with place.alone(folder):
        place.undo_unfinished(folder)
        tree = _tree(root, released, settings, folder)
        if problems := _leaks(folder, tree, hidden):
            return _tell(problems, "nothing was released: it would give these away")
        what = place.change(folder, tree.files)
        if what.theirs and not arguments.force:
            edited = [f"{folder / path}: no release wrote it as it is now" for path in what.theirs]
            return _tell(edited, "nothing was released; move these away, or run again with --force to overwrite them")
        if not what.is_none:
            place.put(folder, what)
        if git.is_changed(root, SOURCES):
            print(f"note: {root} holds changes that are not committed, and the release has them", file=sys.stderr)
        for path in what.kept:
            print(f"note: {folder / path} was edited and is no part of the release any more; it stays", file=sys.stderr)
        print(_summary(tree, what, hidden))
        if arguments.commit and git.commit(folder, tree.files, _message(tree)):
            print(f"committed in {folder}; look at it, then run: git -C {folder} push")
    return 0


def _refuse_place(folder: Path, root: Path, force: bool, commit: bool) -> None:
    from mlsys_grading.release import git
    from mlsys_grading.release.manifest import SUMS
    from mlsys_grading.release.place import NEXT

    real = folder.resolve()
    if real.is_relative_to(root.resolve()) or root.resolve().is_relative_to(real):
        raise LabkitError(f"{folder} is within the checkout {root} or around it; name a folder beside it")
    if folder.exists() and not folder.is_dir():
        raise LabkitError(f"{folder} is a file; name a folder")
    if (folder / ".git").exists() and not git.is_repository(folder):  # its history could not be searched
        raise LabkitError(f"{folder} is a repository that git cannot read; see: git -C {folder} status")
    holds = {each.name for each in folder.iterdir()} - {".git", NEXT} if folder.is_dir() else set()
    if holds and SUMS not in holds and not force:
        raise LabkitError(
            f"{folder} holds {min(holds)} and no earlier release; name an empty folder, or add --force "
            "to keep what is there and overwrite files of the same name"
        )
    if commit and not (folder.is_dir() and git.is_repository(folder)):
        raise LabkitError(f"--commit: {folder} is no git repository of its own; run: git init {folder}")


def _tree(root: Path, labs: list[Lab], settings: ReleaseSettings, folder: Path) -> Tree:
    """Make the release, with the date of the last one if nothing else differs."""
    from mlsys_grading.release.manifest import RELEASE
    from mlsys_grading.release.place import change
    from mlsys_grading.release.tree import student_tree
    from mlsys_labkit._base.released import read_release

    tree = student_tree(root, labs, settings, _date(root))
    if (folder / RELEASE).is_file():
        same = tree.dated(read_release(folder / RELEASE).date)
        if change(folder, same.files).is_none:
            return same
    return tree


def _date(root: Path) -> datetime:
    """Return the date of the commit, so that a release can be made again; https://reproducible-builds.org/specs/source-date-epoch/."""
    from mlsys_grading.release.git import commit_date

    if seconds := os.environ.get("SOURCE_DATE_EPOCH"):
        if not seconds.isdecimal():
            raise LabkitError(f"SOURCE_DATE_EPOCH is {seconds!r}; write seconds since 1970, or unset it")
        return datetime.fromtimestamp(int(seconds), UTC)
    return commit_date(root) or datetime.now(UTC).replace(microsecond=0)


def _findings(labs: list[Lab], released: list[Lab]) -> list[str]:
    from mlsys_grading.build.lint import lint

    found = lint(labs)
    return [str(each) for lab in released for each in found[lab.name] if not each.warns]


def _leaks(folder: Path, tree: Tree, hidden: HiddenLines) -> list[str]:
    """Find hidden lines in the files to release, and in the folder's files and history, which would be pushed too."""
    from mlsys_grading.release import git
    from mlsys_grading.release.search import search

    files: list[Iterable[tuple[str, bytes]]] = [((path, file.data) for path, file in tree.files.items())]
    if folder.is_dir():
        others = (path for path in git.files_of(folder) if path not in tree.files)
        files.append((path, (folder / path).read_bytes()) for path in others)
    if git.is_repository(folder):
        files.append(git.every_object(folder))
    return [leak for each in files for leak in search(each, hidden)]


def _check(folder: Path, tree: Tree, hidden: HiddenLines) -> int:
    from mlsys_grading.release import place

    what = place.change(folder, tree.files)
    problems = [f"{folder / path}: edited" for path in what.theirs]
    problems += [f"{folder / path}: stale or missing" for path in what.files if path not in what.theirs]
    problems += [f"{folder / path}: no part of the release any more" for path in (*what.remove, *what.kept)]
    if place.is_unfinished(folder):
        problems.insert(0, f"{folder}: a run was killed in the midst of it")
    problems += _leaks(folder, tree, hidden)
    if problems:
        return _tell(problems, f"run: labkit release {folder}")
    print(f"{folder} is the release of this checkout")
    return 0


def _tell(problems: list[str], then: str) -> int:
    for problem in problems[:_SHOWN]:
        print(problem, file=sys.stderr)
    more = f"{len(problems) - _SHOWN} more; " if len(problems) > _SHOWN else ""
    print(f"labkit release: {more}{then}", file=sys.stderr)
    return 1


def _summary(tree: Tree, what: Change, hidden: HiddenLines) -> str:
    done = "unchanged" if what.is_none else f"{len(what.files)} files written, {len(what.remove)} removed"
    return (
        f"{len(tree.release.labs)} labs, kit {tree.release.version}: {done}; "
        f"{len(tree.files)} files searched for {len(hidden)} hidden lines, none found"
    )


def _message(tree: Tree) -> str:
    return f"Release {tree.release.version} of {tree.release.date:%Y-%m-%d %H:%M} UTC"
