"""The notebook that this process runs: its shell, its cells' numbers by file name, and its display."""

from __future__ import annotations

import importlib
import sys
from functools import lru_cache
from typing import Any


def cell_label(filename: str) -> str:
    """Return ``In[3]`` for the file name that IPython gave to cell 3; "" for other files and outside a notebook.

    Reference: IPython, ``IPython.core.compilerop.CachingCompiler``.

    Example:
        >>> cell_label("train.py")
        ''
    """
    number = cell_number(filename)
    return "" if number is None else f"In[{number}]"


def cell_number(filename: str, shell: Any = None) -> int | None:
    """Return 3 for the file name that IPython gave to the third cell that ran; None for other files.

    Outside a notebook the result is None. ``shell`` defaults to the shell of this process.

    Example:
        >>> cell_number("train.py") is None
        True
    """
    shell = shell or current_shell()
    if shell is None:
        return None
    if not hasattr(shell.compile, "format_code_name"):
        return _by_name(shell, filename)
    label = shell.compile.format_code_name(filename)
    return int("".join(filter(str.isdecimal, label[1]))) if label else None


def current_shell() -> Any:
    """Return IPython's shell of this process; None outside IPython.

    Example:
        >>> current_shell() is None
        True
    """
    return getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()


def display(value: object, text: str, **options: Any) -> None:
    """Display ``value`` in a notebook, and print ``text`` elsewhere.

    Example:
        >>> display({"text/html": "<b>3</b>"}, "3", raw=True)
        3
    """
    if current_shell() is None:
        print(text)
    else:
        importlib.import_module("IPython.display").display(value, **options)


def _by_name(shell: Any, filename: str) -> int | None:
    """Find the cell by computing the file name of every cell again, the latest first.

    IPython 7, which Colab runs, keeps no table of these names.
    """
    history = shell.history_manager
    cells: list[tuple[str, str]] = list(zip(history.input_hist_raw, history.input_hist_parsed, strict=False))
    for number, (raw, parsed) in reversed(list(enumerate(cells))):
        if number and _name(shell.compile, raw, parsed, number) == filename:
            return number
    return None


@lru_cache(maxsize=1024)  # computing a name digests the whole cell in Python, which is slow
def _name(compiler: Any, raw: str, parsed: str, number: int) -> str:
    return str(compiler.get_code_name(raw, parsed, number))
