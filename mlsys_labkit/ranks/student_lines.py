"""The student's own lines that a rank is at: from a traceback, a living thread, or faulthandler's file."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable
from types import FrameType

from mlsys_labkit.memory.user_line import describe, is_library

Line = tuple[str, int]  # file, line number
Frames = tuple[tuple[str, int, str], ...]  # (file, line number, function), outermost first

_SHOWN_CHARACTERS = 72  # of a line
_CRASH_LINE = re.compile(r'^  File "(.+)", line (\d+) in (.+)$', re.MULTILINE)


def of_traceback(raised: BaseException) -> Frames:
    """Return the student's frames that an exception passed through."""
    return _own((frame, number) for frame, number in traceback.walk_tb(raised.__traceback__))


def of_thread(frame: FrameType) -> Frames:
    """Return the student's frames on the stack of a thread."""
    return _own(reversed(list(traceback.walk_stack(frame))))


def of_crash(text: str) -> Frames:
    """Return the student's frames in faulthandler's text about one thread."""
    found = [(file, int(line), function) for file, line, function in _CRASH_LINE.findall(text)]
    return tuple(frame for frame in reversed(found) if not is_library(frame[0]))


def raising(error: BaseException) -> str:
    """Describe the error that ended a rank: "raised ValueError: too short"."""
    if isinstance(error, SystemExit):
        return f"called sys.exit({error})"
    return f"raised {type(error).__name__}" + (f": {error}" if str(error) else "")


def told(frames: Frames) -> str:
    """Format frames as Python does. Call it in the notebook's process, which has the source of its cells."""
    return "".join(traceback.StackSummary.from_list([(*frame, None) for frame in frames]).format()).rstrip("\n")


def _own(frames: Iterable[tuple[FrameType, int]]) -> Frames:
    found = ((frame.f_code.co_filename, number, frame.f_code.co_name) for frame, number in frames)
    return tuple(frame for frame in found if not is_library(frame[0]))


def line_text(line: Line | None) -> str:
    """Return "In[3]:5: dist.send(x, 1)", for messages; "" where the line is not known."""
    if line is None:
        return ""
    place, source = describe(*line)
    source = source if len(source) <= _SHOWN_CHARACTERS else f"{source[:_SHOWN_CHARACTERS]} ..."
    return f"{place}: {source}" if source else place


def at(line: Line | None) -> str:
    """Return ``line_text`` in brackets, to be added to a sentence; "" where the line is not known."""
    text = line_text(line)
    return f" ({text})" if text else ""
