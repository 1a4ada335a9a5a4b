"""Findings of shared memory: what an access conflicts with, in words, and the line to change."""

from __future__ import annotations

from typing import Any

from mlsys_labkit.triton_trace.gluon.history import Touch
from mlsys_labkit.triton_trace.gluon.partitions import Partition
from mlsys_labkit.triton_trace.gluon.shared import SharedView
from mlsys_labkit.triton_trace.interpret.run import InterpreterRun
from mlsys_labkit.triton_trace.recorder import Line


def check(run: InterpreterRun, me: Partition, view: SharedView, what: str, writes: bool) -> None:
    """Report the accesses that one conflicts with, and a read of bytes that nothing has written."""
    verb = "writes" if writes else "reads"
    unordered = list(view.allocation.history.unordered(view.span, me.clock, writes))
    for touch in unordered:
        kind, message, cause = _conflict(me, touch, writes)
        run.misuse(kind, f"{verb} shared memory ({what}) {message}", cause)
    if (
        run.traced and not writes and not unordered
    ):  # a launch that is not traced goes on with the bytes of a GPU's past
        missing = int((~view.allocation.written[view.span.mask()]).sum())
        if missing:
            run.misuse(
                "unwritten_shared",
                f"reads {missing:,} bytes of the shared memory of {view.allocation.line} that nothing has written; a "
                "GPU has any value there",
                count=missing,
            )


def check_fenced(run: InterpreterRun, view: SharedView, what: str) -> None:
    """Report writes that the asynchronous proxy perhaps does not see.

    Triton's compiler inserts some of these fences, so a launch that is not traced goes on.
    """
    for touch in view.allocation.history.unfenced(view.span) if run.traced else ():
        run.misuse(
            "missing_fence",
            f"reads by {what} what the {touch.what} of {touch.line} wrote, with no fence_async_shared() between them",
        )


def _conflict(me: Partition, touch: Touch, writes: bool) -> tuple[str, str, Line | None]:
    operation = touch.operation
    if operation is None:
        verb = "writes" if touch.writes else "reads"
        where = f"partition {touch.actor} {verb} in {touch.line} ({touch.what})"
        return "shared_race", f"that {where}, with no mbarrier between the two", None
    the = f"the {touch.what} of {touch.line}"
    if writes:
        still = "writes" if touch.writes else "reads"
        return "buffer_reuse", f"that {the} still {still}: {operation.advice}", None
    return _early_read(me, operation, the)


def _early_read(me: Partition, operation: Any, the: str) -> tuple[str, str, Line | None]:
    """Explain a read of what an asynchronous copy has not brought yet."""
    barrier = operation.barrier
    if barrier is None:
        if operation.committed:
            return "missing_wait", f"before {the} has brought it: {operation.advice}", None
        return "missing_commit", f"that {the} writes, and no commit_group() came after it", operation.line
    if barrier.announced == 0:
        return "missing_expect", f"that {the} brings, and no mbarrier.expect announced its bytes", operation.line
    if passed := barrier.passed.get(me.number):
        line, parity = passed
        return "wrong_phase", f"before {the} has brought it: phase {parity} was complete before the copy", line
    return "missing_wait", f"before {the} has brought it: {operation.advice}", None
