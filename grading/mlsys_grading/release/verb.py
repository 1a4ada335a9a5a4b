"""``labkit release``: from a checkout to the students' repository, which is searched before it is written."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from mlsys_grading.build.lint import lint
from mlsys_grading.lab import Lab, choose, read_labs
from mlsys_grading.release import git, place
from mlsys_grading.release.hidden import HiddenLines, hidden_lines
from mlsys_grading.release.manifest import RELEASE, SUMS
from mlsys_grading.release.search import search
from mlsys_grading.release.settings import FILE, ReleaseSettings, read_settings
from mlsys_grading.release.tree import SOURCES, Tree, student_tree
from mlsys_labkit._base.released import read_release
from mlsys_labkit.errors import LabkitError

_SHOWN = 20  # most lines shown of a list


def release_verb(arguments: Namespace, root: Path) -> int:
    """Release, and return 0 (released, or DIR is this release) or 1 (findings, hidden lines, or differences)."""
    folder = arguments.folder.absolute()
    given = arguments.settings or root / FILE
    settings = read_settings(given) if arguments.settings or given.is_file() else ReleaseSettings()
    _refuse_place(folder, root, arguments.force, arguments.commit)
    labs = read_labs(root)
    released = [lab for lab in labs if lab.name in choose(root, settings.labs)]
    found = lint(labs)
    if problems := [str(each) for lab in released for each in found[lab.name] if not each.warns]:
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
        done = "unchanged" if what.is_none else f"{len(what.files)} files written, {len(what.remove)} removed"
        searched = f"{len(tree.files)} files searched for {len(hidden)} hidden lines, none found"
        release = tree.release
        print(f"{len(release.labs)} labs, kit {release.version}: {done}; {searched}")
        message = f"Release {release.version} of {release.date:%Y-%m-%d %H:%M} UTC"
        if arguments.commit and git.commit(folder, tree.files, message):
            print(f"committed in {folder}; look at it, then run: git -C {folder} push")
    return 0


def _refuse_place(folder: Path, root: Path, force: bool, commit: bool) -> None:
    real = folder.resolve()
    if real.is_relative_to(root.resolve()) or root.resolve().is_relative_to(real):
        raise LabkitError(f"{folder} is within the checkout {root} or around it; name a folder beside it")
    if folder.exists() and not folder.is_dir():
        raise LabkitError(f"{folder} is a file; name a folder")
    if (folder / ".git").exists() and not git.is_repository(folder):  # its history could not be searched
        raise LabkitError(f"{folder} is a repository that git cannot read; see: git -C {folder} status")
    holds = {each.name for each in folder.iterdir()} - {".git", place.NEXT} if folder.is_dir() else set()
    if holds and SUMS not in holds and not force:
        raise LabkitError(
            f"{folder} holds {min(holds)} and no earlier release; name an empty folder, or add --force "
            "to keep what is there and overwrite files of the same name"
        )
    if commit and not (folder.is_dir() and git.is_repository(folder)):
        raise LabkitError(f"--commit: {folder} is no git repository of its own; run: git init {folder}")


def _tree(root: Path, labs: list[Lab], settings: ReleaseSettings, folder: Path) -> Tree:
    """Make the release, with the date of the last one if nothing else differs."""
    tree = student_tree(root, labs, settings, _date(root))
    if (folder / RELEASE).is_file():
        same = tree.dated(read_release(folder / RELEASE).date)
        if place.change(folder, same.files).is_none:
            return same
    return tree


def _date(root: Path) -> datetime:
    """Return the date of the commit, so that a release can be made again; https://reproducible-builds.org/specs/source-date-epoch/."""
    if seconds := os.environ.get("SOURCE_DATE_EPOCH"):
        if not seconds.isdecimal():
            raise LabkitError(f"SOURCE_DATE_EPOCH is {seconds!r}; write seconds since 1970, or unset it")
        return datetime.fromtimestamp(int(seconds), UTC)
    return git.commit_date(root) or datetime.now(UTC).replace(microsecond=0)


def _leaks(folder: Path, tree: Tree, hidden: HiddenLines) -> list[str]:
    """Find hidden lines in the files to release, and in the folder's files and history, which would be pushed too."""
    files: list[Iterable[tuple[str, bytes]]] = [((path, file.data) for path, file in tree.files.items())]
    if folder.is_dir():
        others = (path for path in git.files_of(folder) if path not in tree.files)
        files.append((path, (folder / path).read_bytes()) for path in others)
    if git.is_repository(folder):
        files.append(git.every_object(folder))
    return [leak for each in files for leak in search(each, hidden)]


def _check(folder: Path, tree: Tree, hidden: HiddenLines) -> int:
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
