"""Order of machines by the depth that a change reaches in each; the twin of ``model.js``."""

from __future__ import annotations

from collections.abc import Sequence

SCALE_SECONDS = (1e-9, 1e-3, 1e2, 1e4, 6e7)
"""What a change takes, about: an instruction, a launch, a compilation, a placement on an FPGA, a new chip."""


def order(levels: Sequence[Sequence[int]], change: int) -> list[int]:
    """Return the rows of ``levels`` from the machine that takes ``change`` most easily to the hardest.

    Example:
        >>> order([[2, 4], [0, 1], [2, 0]], 0)
        [1, 0, 2]
    """
    return sorted(range(len(levels)), key=lambda row: (levels[row][change], row))
