"""Disk that folders use, measured by a program of its own: it may take minutes, and must not hold up the Hub."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path


def disk_usage(paths: Sequence[Path]) -> list[int]:
    """Return the bytes of disk of each of ``paths``, folder or file; what is gone is left out.

    A file with several names counts once. Reference: man 1 du.
    """
    if not paths:
        return []
    words = ["nice", "-n", "19", "du", "--summarize", "--block-size=1", "--one-file-system", "--"]
    told = subprocess.run([*words, *map(os.fspath, paths)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    return [int(line.split(b"\t", 1)[0]) for line in told.splitlines()]
