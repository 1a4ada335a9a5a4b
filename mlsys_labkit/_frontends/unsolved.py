"""One line in place of the traceback of a task that is not written yet."""

from __future__ import annotations

import linecache
from types import TracebackType
from typing import Any

from mlsys_labkit.errors import LabkitError


def shorten(shell: Any) -> None:
    """Show the error of a stub as one line that names its function; other errors keep their traceback."""
    if not shell.custom_exceptions:  # another extension's handler stays
        shell.set_custom_exc((NotImplementedError,), _show)


def restore(shell: Any) -> None:
    """Show the errors of stubs with their tracebacks again."""
    if shell.custom_exceptions == (NotImplementedError,):
        shell.set_custom_exc((), None)


def unsolved(error: BaseException) -> str | None:
    """Return one line that says which function is not written yet; None for an error that no stub raised.

    Example:
        >>> unsolved(NotImplementedError("'aten::foo' is not implemented for the CPU")) is None
        True
    """
    if isinstance(error, LabkitError):  # of a kernel: its message names the kernel and the line
        return str(error)
    last = _last(error.__traceback__)
    if error.args or last is None:  # with a message it is an error of a library, such as torch
        return None
    code = last.tb_frame.f_code
    if linecache.getline(code.co_filename, last.tb_lineno).strip() != "raise NotImplementedError()":
        return None
    if code.co_name == "<module>":
        return "this cell is not written yet"
    name = getattr(code, "co_qualname", code.co_name).replace("<locals>.", "")
    return f"{name} is not written yet: replace `raise NotImplementedError()` in its cell"


def _last(tb: TracebackType | None) -> TracebackType | None:
    while tb is not None and tb.tb_next is not None:
        tb = tb.tb_next
    return tb


def _show(shell: Any, kind: type[BaseException], error: BaseException, tb: Any, tb_offset: int | None = None) -> None:
    line = unsolved(error)
    if line is None:
        lines = shell.InteractiveTB.structured_traceback(kind, error, tb, tb_offset=tb_offset)
    else:
        lines = [f"\x1b[31mNotImplementedError\x1b[39m: {line}"]
    shell._showtraceback(kind, error, lines)
