"""CPU threads of a step: few for a small model, and never all cores of a machine that other programs use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

_WEIGHTS_A_THREAD = 4_000_000


def threads_for(weights: int, cores: float) -> int:
    """Return the useful number of threads for a model of so many weights on so many usable cores.

    A step of a small model is shorter than its threads' waits for each other. And each of its some hundred operations
    waits for the slowest thread, so that one core which another program uses delays all of them: of four cores or more,
    a quarter is left free. On four cores, one of them in use, a decode step of 3.5 million weights took 2.7 ms with one
    thread and 260 ms with four, one of 344 million 48 ms with three and 42 to 350 ms with four.

    Example:
        >>> threads_for(3_500_000, cores=4), threads_for(344_000_000, cores=4), threads_for(10**9, cores=1.5)
        (1, 3, 1)
    """
    whole = max(1, int(cores))
    return max(1, min(weights // _WEIGHTS_A_THREAD, whole - whole // 4))


@contextmanager
def threads_at_most(count: int | None) -> Iterator[None]:
    """Limit torch to ``count`` threads inside; a lower limit stays.

    Example:
        >>> with threads_at_most(1):
        ...     torch.get_num_threads()
        1
    """
    before = torch.get_num_threads()
    if count is None or before <= count:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
