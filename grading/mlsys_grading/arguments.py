"""Arguments that several verbs take."""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from pathlib import Path

from mlsys_grading.lab import find_root
from mlsys_labkit.errors import require


def add_labs(parser: argparse.ArgumentParser) -> None:
    """Add ``[LAB...] [--root DIR]``."""
    parser.add_argument(
        "labs", nargs="*", metavar="LAB", help="full names or unique beginnings such as lab01; default: all"
    )
    parser.add_argument(
        "--root", type=Path, metavar="DIR", help="the checkout; default: the one around the current folder"
    )


GRADED_COURSE_MODULES = ("IPython", "jinja2", "jupytext", "msgpack", "nbformat", "nbgrader", "psutil")
"""Libraries that reading a graded course takes."""


def add_lab(parser: argparse.ArgumentParser) -> None:
    """Add ``LAB``."""
    parser.add_argument("lab", metavar="LAB", help="the full name or a unique beginning such as lab01")


def add_course(parser: argparse.ArgumentParser) -> None:
    """Add ``[--course FOLDER]``."""
    parser.add_argument(
        "--course", type=Path, default=Path(), metavar="FOLDER", help="the course folder (default: this one)"
    )


def add_hub_settings(parser: argparse.ArgumentParser) -> None:
    """Add ``[FILE]``, the settings of a Hub."""
    parser.add_argument(
        "settings", nargs="?", type=Path, metavar="FILE", help="default: binder/hub/hub.toml of the checkout"
    )


def hub_settings_file(given: Path | None) -> Path:
    """Return the settings file ``given``, or that of the checkout. Raises LabkitError if there is no checkout."""
    return (given or find_root(None) / "binder" / "hub" / "hub.toml").resolve()


def need(*modules: str) -> None:
    """Raise MissingExtraError, one line with what to install, unless all of ``modules`` are installed.

    None is imported: torch is the submissions' library, and no grader's.
    """
    for module in modules:
        if find_spec(module) is None:
            require(module, "grading")


def root_of(arguments: argparse.Namespace) -> Path:
    """Return the checkout that ``--root`` names, or the one around the working directory.

    Raises LabkitError if there is none, or a library that reads its labs is missing.
    """
    need("jupytext", "nbformat", "nbgrader", "IPython")
    return find_root(arguments.root)
