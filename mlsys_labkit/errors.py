"""Errors the kit raises on purpose: one line with what was expected, what came, and what to do next."""

from __future__ import annotations

import importlib
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

_KIT = str(Path(__file__).parent)
_MAGIC = "get_ipython().run_cell_magic("  # the whole cell on one line
_RED, _PLAIN = "\x1b[31m", "\x1b[39m"


class LabkitError(Exception):
    """Base of every deliberate error. Its text is one line, fit to be shown to a student without a traceback."""

    def _render_traceback_(self) -> list[str]:
        return readers_traceback(self)


class MissingExtraError(LabkitError, ImportError):
    """The error for a missing library that an optional extra installs."""


class RanksError(LabkitError):
    """A run of several ranks, or a plan of one, that is not possible or did not finish.

    ``trace`` holds the ``ranks.RunTrace`` recorded until then, where ranks ran.
    """

    trace: Any = None


def readers_traceback(raised: BaseException) -> list[str]:
    """Return the lines that IPython prints: the reader's own lines and the message, without the kit's frames."""
    lines = []
    for error in (raised.__cause__, raised):  # the student's exception first, if it caused this one
        if error:
            frames = [at for at in _readers_frames(error) if at.line and not at.line.startswith(_MAGIC)]
            lines += [f"{_RED}line {at.lineno}:{_PLAIN} {at.line}" for at in frames]
            lines += ["", f"{_RED}{type(error).__name__}{_PLAIN}: {error}", *getattr(error, "__notes__", ()), ""]
    return lines[:-1]


def _readers_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Leave out IPython, the kit, functions that set ``__tracebackhide__``, and libraries below the reader's lines."""
    walked = zip(traceback.extract_tb(error.__traceback__), traceback.walk_tb(error.__traceback__), strict=True)
    frames = [
        line
        for line, (frame, _) in walked
        if "IPython" not in line.filename
        and not line.filename.startswith(_KIT)
        and not frame.f_locals.get("__tracebackhide__")
    ]
    return [frame for frame in frames if "site-packages" not in frame.filename] or frames


def require(module: str, extra: str) -> ModuleType:
    """Import ``module`` or raise a one-line error that names the extra to install.

    Example:
        >>> require("math", "torch").sqrt(4.0)
        2.0
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or module.split(".")[0] != error.name.split(".")[0]:
            raise  # the library is installed but broken: its own traceback is more informative
        raise MissingExtraError(
            f"{module} is not installed; run: pip install 'mlsys-labkit[{extra}]', then restart the kernel"
        ) from None
