"""Threads that a rank starts: they go on while other ranks have their turn, and see the globals of those."""

from __future__ import annotations

import sys
import threading

from mlsys_labkit.ranks.student_lines import at, of_thread


class OtherThreads:
    """The threads that began after this object was made, looked at whenever the turn passes on.

    Attributes:
        findings: a sentence for each that was inside the program's own code then.
    """

    def __init__(self) -> None:
        self._before = set(threading.enumerate())
        self._owners: dict[threading.Thread, int] = {}
        self._told: dict[threading.Thread, str] = {}

    @property
    def findings(self) -> tuple[str, ...]:
        return tuple(self._told.values())

    def look(self, rank: int) -> None:
        """Look at the threads as ``rank`` stops; those that are new are its own."""
        others = {*threading.enumerate()} - self._before - self._told.keys()
        stacks = sys._current_frames() if others else {}
        for thread in others:
            owner = self._owners.setdefault(thread, rank)
            frame = stacks.get(thread.ident or 0)
            if frame is not None and (frames := of_thread(frame)):
                self._told[thread] = (
                    f"a thread of rank {owner} runs on while other ranks have their turn, and sees their globals"
                    f"{at(frames[-1][:2])}; join it before the rank communicates, or take backend='gloo'"
                )
