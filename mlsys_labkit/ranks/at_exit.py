"""Functions that a rank's program leaves to ``atexit``: they run at the end of the rank, as at that of a process."""

from __future__ import annotations

import atexit
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any
from unittest.mock import patch

from mlsys_labkit.ranks.local.program import belongs

_Left = list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]]


class _OfRank(threading.local):
    """The functions that the program of this thread's rank has registered; None outside of a program."""

    left: _Left | None = None


_of_rank = _OfRank()
_register, _unregister = atexit.register, atexit.unregister


@contextmanager
def registered_by_rank() -> Iterator[None]:
    """Let ``atexit.register`` keep what a rank's program registers for the end of the rank."""
    if atexit.register is _kept:
        yield
        return
    with patch.multiple(atexit, register=_kept, unregister=_dropped):
        yield


@contextmanager
def run_at_end() -> Iterator[None]:
    """Run what was registered within, the last one first; what one raises is printed and ends no other."""
    left: _Left = []
    _of_rank.left = left
    try:
        yield
    finally:
        while left:
            function, arguments, options = left.pop()
            try:
                function(*arguments, **options)
            except Exception:  # as Python does it
                traceback.print_exc()
        _of_rank.left = None


def _kept(function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Callable[..., Any]:
    left = _of_rank.left
    if left is None or not _is_programs(sys._getframe(1).f_globals):  # a library's ends with the process that holds it
        _register(function, *arguments, **options)
    else:
        left.append((function, arguments, options))
    return function


def _dropped(function: Callable[..., Any], /) -> None:
    if (left := _of_rank.left) is not None:
        left[:] = [each for each in left if each[0] != function]
    _unregister(function)


def _is_programs(space: dict[str, Any]) -> bool:
    module = sys.modules.get(space.get("__name__", ""))
    return isinstance(module, ModuleType) and vars(module) is space and belongs(module)
