"""The labs of a checkout, by name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from mlsys_grading.lab.lab import Lab, read_lab
from mlsys_labkit.errors import LabkitError

_NAME = re.compile(r"lab\d\d_[a-z0-9_]+")


def find_root(start: Path | None = None) -> Path:
    """Return the checkout around ``start`` (default: here): the nearest folder with pyproject.toml and solutions/."""
    start = (start or Path.cwd()).resolve()
    for folder in (start, *start.parents):
        if (folder / "pyproject.toml").is_file() and (folder / "solutions").is_dir():
            return folder
    raise LabkitError(
        f"no checkout with pyproject.toml and solutions/ at {start} or above; cd into one, or name it with --root"
    )


def lab_names(root: Path) -> list[str]:
    """Return the names of all labs of a checkout, sorted."""
    return sorted(
        folder.name for folder in (root / "solutions").iterdir() if folder.is_dir() and _NAME.fullmatch(folder.name)
    )


def choose(root: Path, wanted: Iterable[str] = ()) -> list[str]:
    """Return the labs that ``wanted`` names (names, unique beginnings such as ``lab01``, or paths); all if it is empty.

    Raises LabkitError with the known names for one that fits none or several.

    Example:
        >>> choose(find_root(), ["lab01"])  # doctest: +SKIP
        ['lab01_linear_algebra']
    """
    known = lab_names(root)
    if not known:
        raise LabkitError(f"no labs in {root / 'solutions'}; a lab is a folder such as lab01_linear_algebra")
    chosen = []
    for name in wanted:
        stem = Path(name).stem
        found = [stem] if stem in known else [lab for lab in known if stem and lab.startswith(stem)]
        if len(found) != 1:
            problem = f"{name!r} could be {', '.join(found)}" if found else f"there is no lab {name!r}"
            raise LabkitError(f"{problem}; the labs are: {', '.join(known)}")
        chosen += found
    return sorted(set(chosen)) or known


def read_labs(root: Path, wanted: Iterable[str] = ()) -> list[Lab]:
    """Read the labs that :func:`choose` finds."""
    return [read_lab(root, name) for name in choose(root, wanted)]
