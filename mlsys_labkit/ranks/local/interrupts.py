"""Ctrl-C, delayed until the main thread next checks the run."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def heard_between_looks() -> Iterator[Callable[[], None]]:
    """Delay Ctrl-C inside the block until the yielded function is called, or until the block ends.

    A KeyboardInterrupt that is raised at any moment can be lost where Python cannot propagate it (in a callback of the
    garbage collector, in ``__del__``), or leave a thread half started.
    """
    before: Any = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield lambda: None
        return
    pressed: list[Any] = []

    def act() -> None:
        if pressed:
            before(*pressed.pop())

    signal.signal(signal.SIGINT, lambda *how: pressed.append(how))
    try:
        yield act
    finally:
        signal.signal(signal.SIGINT, before)
    act()
