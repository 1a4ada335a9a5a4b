"""``labkit release DIR``: write the repository that students get, and search it for solutions and hidden tests."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from mlsys_grading.arguments import need, root_of


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
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    need("jinja2")
    root = root_of(arguments)
    from mlsys_grading.release.verb import release_verb

    return release_verb(arguments, root)
