"""``ForkableLoop``: the event loop that a kernel's cells run in, which goes on in a fork."""

from __future__ import annotations

import asyncio
import os
import selectors
import signal
import threading
from collections.abc import Coroutine
from contextvars import Context, copy_context
from typing import Any, TypeVar

T = TypeVar("T")
_TURNS = 5  # from a timer that is due, over the future it sets, to the task that waits for it


class ForkableLoop(asyncio.SelectorEventLoop):
    """One event loop and one context for all cells, as in a kernel: a task of one cell is awaited in the next.

    It polls, and so has nothing in the system that a fork would share, but the pipe that wakes it; that is made anew.
    """

    def __init__(self) -> None:
        super().__init__(selectors.PollSelector())
        self._pid = os.getpid()
        self._context: Context = copy_context()

    def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` to its end; an interrupt ends it."""
        self._enter()
        task = self.create_task(work, context=self._context)
        try:
            return self.run_until_complete(task)
        finally:
            if not task.done():  # a signal's exception came between two turns of the loop
                task.cancel()
                self.run_until_complete(asyncio.wait([task]))

    def _enter(self) -> None:
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._close_self_pipe()  # type: ignore[attr-defined]
            self._make_self_pipe()  # type: ignore[attr-defined]
        asyncio.set_event_loop(self)
        if threading.current_thread() is threading.main_thread():  # a signal wakes a cell that awaits
            signal.set_wakeup_fd(self._csock.fileno(), warn_on_full_buffer=False)  # type: ignore[attr-defined]

    @staticmethod
    async def turns() -> None:
        """Let ready tasks run, as they do in a kernel between two cells."""
        for _ in range(_TURNS):
            await asyncio.sleep(0)
