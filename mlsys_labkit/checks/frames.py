"""Tracebacks of a student's own exceptions, without the frames of the check that called the function."""

from __future__ import annotations

from types import TracebackType


def own_frames(error: BaseException) -> TracebackType | None:
    """Return the traceback from the student's first frame on, without the library's frames above it.

    A check that raises ``error`` again sets ``__tracebackhide__``: IPython and pytest leave out the frame of a function
    with such a variable.
    """
    from mlsys_labkit.memory.user_line import is_library

    frames = error.__traceback__
    while frames is not None and frames.tb_next is not None and is_library(frames.tb_frame.f_code.co_filename):
        frames = frames.tb_next
    return frames
