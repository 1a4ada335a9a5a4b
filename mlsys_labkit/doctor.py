"""``labkit doctor``: what works on this machine, what does not, and how to mend it."""

from __future__ import annotations

import argparse


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Join the ``labkit`` command."""
    parser = verbs.add_parser("doctor", help="say what works on this machine, what does not and how to mend it")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    raise NotImplementedError
