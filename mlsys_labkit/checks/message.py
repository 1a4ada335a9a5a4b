"""The one error of all checks, and the one shape of its text."""

from __future__ import annotations

import traceback
from pathlib import Path

from mlsys_labkit.errors import LabkitError

_KIT = str(Path(__file__).parents[1])
_RED, _PLAIN = "\x1b[31m", "\x1b[39m"


class CheckError(AssertionError, LabkitError):
    """A check did not hold. Its text has a headline and up to four labelled lines."""

    def _render_traceback_(self) -> list[str]:
        """What IPython prints: the reader's own lines and the message. Frames of the kit would only bury it."""
        lines = []
        for error in (self.__cause__, self):  # the student's exception first, where it is what did not hold
            if error:
                lines += [f"{_RED}line {at.lineno}:{_PLAIN} {at.line}" for at in _readers_frames(error) if at.line]
                lines += ["", f"{_RED}{type(error).__name__}{_PLAIN}: {error}", ""]
        return lines[:-1]


def _readers_frames(error: BaseException) -> list[traceback.FrameSummary]:
    frames = traceback.extract_tb(error.__traceback__)
    return [frame for frame in frames if "IPython" not in frame.filename and not frame.filename.startswith(_KIT)]


def failure(
    headline: str, *, expected: str = "", actual: str = "", meaning: str = "", next_step: str = ""
) -> CheckError:
    """Compose the error; empty parts are left out.

    Example:
        >>> print(failure("y: wrong shape", expected="(2, 3)", actual="(3, 2)", next_step="transpose the result"))
        y: wrong shape
          expected  (2, 3)
          actual    (3, 2)
          next      transpose the result
    """
    parts = {"expected": expected, "actual": actual, "meaning": meaning, "next": next_step}
    lines = [f"  {label:<8}  {text}" for label, text in parts.items() if text]
    return CheckError("\n".join([headline, *lines]))


def count(value: float) -> str:
    """A number of things in full, with thin groups: 67 149 824. Fractions keep six digits."""
    return f"{int(value):,}".replace(",", " ") if float(value).is_integer() else f"{value:.6g}"
