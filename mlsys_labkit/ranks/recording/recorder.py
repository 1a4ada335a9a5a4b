"""The recorder of one rank's calls: ``Call`` while it happens, ``Event`` for the trace afterwards."""

from __future__ import annotations

import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from mlsys_labkit.errors import RanksError
from mlsys_labkit.memory.user_line import is_library
from mlsys_labkit.ranks.student_lines import Line
from mlsys_labkit.ranks.trace.events import Event, Kind


@dataclass(slots=True, eq=False)
class Call:
    """One call while it happens; the fields are those of ``Event``. Plain data: it can be sent to another process.

    ``peers`` of a receive from any rank is empty, and ``key`` "", until the message has come.
    """

    rank: int
    kind: Kind
    name: str
    bytes: int = 0
    peers: tuple[int, ...] = ()
    group: tuple[int, ...] = ()
    group_name: str = ""
    tag: int = 0
    operation: str = ""
    dtype: str = ""
    shape: tuple[int, ...] = ()
    key: str = ""
    asynchronous: bool = False
    changed: bool = False
    line: Line | None = None
    start_seconds: float | None = None
    end_seconds: float | None = None
    waited_on: Line | None = None  # where the rank waits for it now
    root: int = -1  # of a broadcast, reduce, gather or scatter

    def event(self) -> Event:
        """Return the call as an event of the trace."""
        return Event(**{name: getattr(self, name) for name in _EVENT_FIELDS})


_EVENT_FIELDS = Event.__dataclass_fields__.keys() & Call.__dataclass_fields__.keys()


class Reporter:
    """A receiver of each call when it is made, on the rank's own thread. Override the methods you need.

    Every communication is ``entered`` once. The rank is ``waiting`` for it from that moment on if ``call.asynchronous``
    is False, else from the later moment when it waits for it (``call.waited_on`` is that line). ``left``: complete.
    """

    def entered(self, call: Call) -> None: ...

    def waiting(self, call: Call) -> None: ...

    def left(self, call: Call) -> None: ...


@dataclass
class RankRecorder:
    """The calls and snapshots of one rank. ``clock`` returns the seconds since the run began, or is None."""

    rank: int
    world_size: int
    reporter: Reporter = field(default_factory=Reporter)
    clock: Callable[[], float] | None = None
    calls: list[Call] = field(default_factory=list)
    snapshots: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))
    _counts: Counter[str] = field(default_factory=Counter)

    def enter(self, call: Call) -> Call:
        """Record that a communication begins: its line, its start time and, where both ends are known, its key."""
        call.rank = self.rank
        call.line, blocking = caller()
        call.asynchronous = call.asynchronous and not blocking
        if call.kind == "collective" or call.peers:
            self.name(call)
        call.start_seconds = self.clock() if self.clock else None
        self.calls.append(call)
        self.reporter.entered(call)
        return call

    def name(self, call: Call) -> None:
        """Set the key of a call, which is the same at both ends or at all members.

        The ends number the messages of a channel alike, and the members the collectives of a group.
        """
        prefix = "" if len(call.group) == self.world_size and call.group_name == "0" else f"group {call.group_name} "
        if call.kind == "collective":
            channel = f"{prefix or 'world '}#"
        else:
            ends = (self.rank, call.peers[0]) if call.kind == "send" else (call.peers[0], self.rank)
            channel = f"{prefix}{ends[0]}>{ends[1]} " + (f"tag {call.tag} #" if call.tag else "#")
        # A rank's message to itself has both ends here: each counts for itself.
        counter = channel + call.kind
        call.key = f"{channel}{self._counts[counter]}"
        self._counts[counter] += 1

    def wait(self, call: Call) -> Call | None:
        """Note that the rank waits for a call; return the wait as a call of its own if the call was asynchronous."""
        waits = None
        if call.asynchronous:
            waits = Call(self.rank, "wait", call.name, peers=call.peers, group=call.group, group_name=call.group_name)
            waits.tag, waits.key = call.tag, call.key
            waits.line = call.waited_on = caller()[0]
            waits.start_seconds = self.clock() if self.clock else None
            self.calls.append(waits)
        self.reporter.waiting(call)
        return waits

    def leave(self, call: Call, waits: Call | None = None) -> None:
        """Note that the call is complete on this rank. An asynchronous call itself ended when it returned."""
        ended = waits or call
        ended.end_seconds = self.clock() if self.clock else None
        if waits:
            waits.peers, waits.key = call.peers, call.key  # known by now, even for a receive from any rank
        call.waited_on = None
        self.reporter.left(call)

    def compute(self, name: str, start_seconds: float | None) -> Call:
        """Note the start of a named piece of computation."""
        call = Call(self.rank, "compute", name, line=caller()[0], start_seconds=start_seconds)
        self.calls.append(call)
        return call

    def events(self) -> tuple[Event, ...]:
        """Return the rank's calls in its program order."""
        return tuple(call.event() for call in self.calls)


def caller() -> tuple[Line | None, bool]:
    """Return the student's own line above torch's and the kit's frames, and True if a blocking send or recv is between.

    The lowest such frame; where no frame is the student's (a thread of autograd's), None. A function with a variable
    ``__tracebackhide__``, pytest's mark for helpers, is passed over: the line that called it is more useful.
    """
    if elsewhere := getattr(_bound, "elsewhere", None):
        return elsewhere  # type: ignore[no-any-return]
    frame: FrameType | None = sys._getframe(1)
    blocking = False
    while frame is not None:
        code = frame.f_code
        if not is_library(code.co_filename) and "__tracebackhide__" not in code.co_varnames:
            return (code.co_filename, frame.f_lineno), blocking
        if code.co_name in ("send", "recv") and code.co_filename.endswith("distributed_c10d.py"):
            blocking = True
        frame = frame.f_back
    return None, blocking


_bound = threading.local()


def bind(recorder: RankRecorder | None) -> None:
    """Set the rank that runs on this thread from now on."""
    _bound.recorder = recorder


def current() -> RankRecorder:
    """Return the recorder of the rank that runs on this thread. Raises RanksError without one."""
    recorder = getattr(_bound, "recorder", None)
    if not isinstance(recorder, RankRecorder):
        raise RanksError("this belongs into a function that ranks.run runs, or into a %%ranks cell: no rank runs here")
    return recorder


@contextmanager
def called_elsewhere(blocking: bool) -> Iterator[None]:
    """Record calls inside without a line: another process made them. ``blocking`` is as ``caller`` returns it."""
    _bound.elsewhere = (None, blocking)
    try:
        yield
    finally:
        _bound.elsewhere = None


def running() -> RankRecorder | None:
    """Return the recorder of the rank that runs on this thread, or None."""
    return getattr(_bound, "recorder", None)
