"""Values on a command line, for ``add_argument(type=...)``."""

from __future__ import annotations

import argparse
import re


def count(text: str) -> int:
    """Parse a whole number from 1 to 999,999,999. Raises ArgumentTypeError for anything else.

    Example:
        >>> count("4")
        4
    """
    if not re.fullmatch(r"0*[1-9][0-9]{0,8}", text):
        raise argparse.ArgumentTypeError(f"expected a whole number from 1, got {text!r}")
    return int(text)
