"""Time of a call on the GPU without its launch: apart from ``lk.bench``, which step ``clocks`` compares with it."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

SPIN_CYCLES = 400_000  # some 0.2 ms, in which the host queues the call and the second event


def seconds_ahead(
    torch: Any, call: Callable[[], object], repeats: int = 30, before: Callable[[], object] | None = None
) -> float:
    """Return the median seconds of ``call`` between two events that the GPU reaches when all is queued.

    ``before`` runs ahead of each call and is not timed, such as a flush of the cache.
    """
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        if before is not None:
            before()
        torch.cuda._sleep(SPIN_CYCLES)
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e-3)
    return statistics.median(times)
