"""Marks in a rank's program: ``task`` names a piece of computation, ``snapshot`` keeps a tensor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mlsys_labkit.errors import RanksError
from mlsys_labkit.ranks.recording.recorder import current


@contextmanager
def task(name: str, seconds: float | None = None) -> Iterator[None]:
    """Name a piece of computation in the run's trace, as a "compute" event.

    ``seconds`` is how long it is said to take, for a run on the virtual clock (``ranks.replay``); without it the event
    has the measured time, or none on the local backend, where ranks take turns.

    Raises RanksError outside a run, and for a negative time.

    Example:
        >>> from mlsys_labkit import ranks
        >>> def work():
        ...     with ranks.task("F0", seconds=1e-3):
        ...         pass
        >>> ranks.run(work, 1, backend="local").trace.of(0)[0].seconds
        0.001

    Reference: D. Narayanan et al., "PipeDream", SOSP 2019: pipelines as forward and backward tasks.
    """
    recorder = current()
    if seconds is not None and not seconds >= 0:
        raise RanksError(f"task {name!r} cannot take {seconds} s; give seconds >= 0, or none")
    start = recorder.clock() if recorder.clock else None
    call = recorder.compute(name, start)
    try:
        yield
    finally:
        if seconds is not None:
            call.start_seconds = start if start is not None else 0.0
            call.end_seconds = call.start_seconds + seconds
        else:
            call.end_seconds = recorder.clock() if recorder.clock else None


def snapshot(name: str, tensor: Any) -> None:
    """Append a copy of ``tensor`` to the list ``run.snapshots[name][rank]``.

    Raises RanksError outside a run, and for an object that is not a tensor.

    Example:
        >>> import torch
        >>> from mlsys_labkit import ranks
        >>> def work(x):
        ...     ranks.snapshot("before", x)
        ...     x += 1
        >>> ranks.run(work, 1, backend="local", args=(torch.zeros(2),)).snapshots["before"][0]
        [tensor([0., 0.])]

    Reference: L. Lamport, "Time, Clocks, and the Ordering of Events in a Distributed System", CACM 21(7), 1978: what
    may be said of different ranks' copies.
    """
    import torch

    from mlsys_labkit.ranks.recording.torch_private import unseen

    if not isinstance(tensor, torch.Tensor):
        raise RanksError(f"snapshot({name!r}, ...) keeps tensors; this is a {type(tensor).__name__}")
    kept = current().snapshots[name]
    with unseen():  # the memory of snapshots must not count as the program's
        kept.append(tensor.detach().clone())
