"""``labkit progress``: print the progress of all labs, or of one notebook."""

from __future__ import annotations

import argparse
import os
from typing import Any

from mlsys_labkit._frontends.progress import notebook, store
from mlsys_labkit._frontends.progress.catalogue import labs
from mlsys_labkit.errors import LabkitError


def add_parser(subparsers: Any) -> None:
    """Add ``progress`` to the ``labkit`` command."""
    parser = subparsers.add_parser(
        "progress", help="list which tasks pass the checks that students see", description=__doc__
    )
    parser.add_argument("notebook", nargs="?", help="a lab's notebook; default: print a row for each lab")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the progress and return 0."""
    from mlsys_labkit._frontends.progress.lab_progress import progress_of
    from mlsys_labkit._frontends.progress.overview import overview

    if arguments.notebook is None:
        print(overview())
        return 0
    path = os.path.abspath(arguments.notebook)
    saved = notebook.read(path)
    if saved is None:
        raise LabkitError(f"{arguments.notebook} is no notebook that can be read; name a lab's .ipynb file")
    found = [lab for lab in labs().values() if any(task.name in saved.cells for task in lab.tasks)]
    if not found:
        raise LabkitError(f"{arguments.notebook} holds no task of a lab; the labs are: {', '.join(labs())}")
    print(progress_of(store.load(found[0], path), path))
    return 0
