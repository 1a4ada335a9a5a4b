"""Questions of a release to git: the checkout's files, the date of its commit, every object of a repository."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from mlsys_grading.release.manifest import SUMS, parse_sums
from mlsys_labkit.errors import LabkitError

_TOOLS = {"__pycache__", ".git", ".venv", ".ipynb_checkpoints"}


def is_repository(folder: Path) -> bool:
    """Return whether ``folder`` is the top of a working tree."""
    top = _ask(folder, "rev-parse", "--show-toplevel")
    return top is not None and Path(os.fsdecode(top.rstrip(b"\n"))) == folder.resolve()


def files_of(root: Path) -> list[str]:
    """List the files that git keeps or would add; without git, all but compiled Python and the folders of tools."""
    if is_repository(root):
        names = _names(root, "ls-files", "--cached", "--others", "--exclude-standard")
        return sorted(name for name in set(names) if (root / name).is_file())
    found = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return sorted(path.as_posix() for path in found if not _TOOLS & set(path.parts))


def commit_date(root: Path) -> datetime | None:
    """Return the date of the commit that is checked out, in UTC; None outside git."""
    seconds = _ask(root, "log", "-1", "--format=%ct") if is_repository(root) else None
    return datetime.fromtimestamp(int(seconds), UTC) if seconds else None


def is_changed(root: Path, paths: Sequence[str]) -> bool:
    """Return whether one of these files or folders differs from the commit."""
    return bool(is_repository(root) and _ask(root, "status", "--porcelain", "--", *paths))


def every_object(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield every object of a repository, on a branch or not: contents of files, messages of commits and tags."""
    command = ["git", "-C", str(folder), "cat-file", "--batch-all-objects", "--batch", "--unordered"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        while header := process.stdout.readline():
            name, kind, size = header.split()
            data = process.stdout.read(int(size))
            process.stdout.read(1)  # the newline after each
            if kind != b"tree":
                yield f"git {kind.decode()} {name.decode()[:12]}", data
    if process.returncode:
        raise LabkitError(f"{folder}: git cannot list what it keeps; run: git -C {folder} fsck")


def commit(folder: Path, paths: Iterable[str], message: str) -> bool:
    """Commit a release, including the removal of an earlier one's files, and nothing else.

    False if there was nothing to commit. Raises LabkitError with git's words if it refuses.
    """
    earlier = parse_sums((_ask(folder, "show", f"HEAD:{SUMS}") or b"").decode(), f"{folder}: {SUMS} of the last commit")
    mine = {*paths, SUMS, *(path for path in earlier if not (folder / path).exists())}
    mine &= {*paths, SUMS, *_names(folder, "ls-files")}  # git refuses a path that it has never seen
    _do(folder, mine, "add", "--all", "--force")
    changed = mine & set(_names(folder, "diff", "--cached", "--name-only"))
    if changed:
        _do(folder, changed, "commit", "--quiet", "--message", message)
    return bool(changed)


def _names(folder: Path, *arguments: str) -> list[str]:
    return [os.fsdecode(name) for name in (_ask(folder, *arguments, "-z") or b"").split(b"\0") if name]


def _ask(folder: Path, *arguments: str) -> bytes | None:
    """Return git's output; None if git fails, as it does outside a repository, or is not installed."""
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout


def _do(folder: Path, paths: Iterable[str], *arguments: str) -> None:
    command = ["git", "-C", str(folder), "--literal-pathspecs", *arguments]
    command += ["--pathspec-from-file=-", "--pathspec-file-nul"]
    done = subprocess.run(command, input=os.fsencode("\0".join(paths)), capture_output=True)
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).decode(errors="replace").split())
        raise LabkitError(f"{folder}: the files are there, but git did not commit them ({said}); commit them yourself")
