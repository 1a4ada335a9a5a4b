"""One run in real processes, from the notebook's side: send the orders, read the replies, report how ranks ended."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from mlsys_labkit.errors import RanksError
from mlsys_labkit.ranks.errors import DeadlockError, MismatchError, RankError
from mlsys_labkit.ranks.output_columns import Columns
from mlsys_labkit.ranks.processes.call_history import CallHistory
from mlsys_labkit.ranks.processes.channel import pack, unpack
from mlsys_labkit.ranks.processes.log_files import LogTail, TextTail
from mlsys_labkit.ranks.processes.pool import RankPool, RankProcess
from mlsys_labkit.ranks.processes.worker import Order
from mlsys_labkit.ranks.result import Run
from mlsys_labkit.ranks.student_lines import Frames, at, of_crash, told
from mlsys_labkit.ranks.trace.deadlock import RankState, diagnosis
from mlsys_labkit.ranks.trace.events import RunTrace
from mlsys_labkit.ranks.trace.findings import make_trace, unmatched

_LOOK_SECONDS = 0.05  # between looks at what ranks have printed and called
_QUIET_LOOKS = 2  # without a change before ranks that wait for each other count as a deadlock
_SETTLE_SECONDS = 0.15  # after a first failure: the report of the rank that caused it may arrive later
_DUMP_SECONDS = 5.0  # for faulthandler to begin its file on a busy machine
_WHERE_SECONDS = 0.5  # for a rank to report its line; one that holds the GIL cannot


@dataclass
class _Watched:
    """One rank during a run."""

    process: RankProcess
    text: TextTail
    log: LogTail
    result: bytes | None = None
    imported: Sequence[str] = ()  # torch's modules that it loaded
    raised: tuple[str, bytes | None, Frames, float] | None = None  # what, the exception, where, when
    left_from: Frames = ()  # where it called os._exit
    where: Frames | None = None

    @property
    def rank(self) -> int:
        return self.process.birth.rank

    @property
    def failed(self) -> bool:
        return self.raised is not None or self.process.exit_code is not None


def run_in_processes(
    call: Callable[..., Any],
    arguments: Sequence[Sequence[Any]],
    backend: str,
    timeout_seconds: float,
    memory: bool = False,
    quiet: bool = False,
) -> Run:
    """Call ``call(*arguments[rank])`` on every rank, each a process of its own, and wait for all of them.

    Raises RankError, DeadlockError, MismatchError, RanksError or KeyboardInterrupt; all ranks have ended by then.

    Example:
        >>> run_in_processes(max, [(1, 2), (3, 4)], "gloo", timeout_seconds=60).values
        [2, 4]

    Reference: PyTorch documentation, "Distributed communication package: torch.distributed".
    """
    packed = [pack((call, [*own]), f"rank {rank} is given", call, *own) for rank, own in enumerate(arguments)]
    pool = RankPool.current()
    with pool.lock:
        session = _Session(pool, pool.ranks(len(arguments), backend), backend, quiet)
        try:
            session.begin(packed, memory)
            session.watch(timeout_seconds)
            pool.import_before(session.imported())
            return session.run()
        except BaseException as error:
            pool.end_ranks()
            if isinstance(error, RanksError):
                error.trace = session.trace()
            raise
        finally:
            session.columns.close()
            pool.prepare_next()


class _Session:
    def __init__(self, pool: RankPool, ranks: Sequence[RankProcess], backend: str, quiet: bool) -> None:
        self._pool, self._backend = pool, backend
        self._ranks = [
            _Watched(rank, TextTail(rank.birth.path("output")), LogTail(rank.birth.path("calls"))) for rank in ranks
        ]
        self._history = CallHistory(len(ranks))
        self.columns = Columns(len(ranks), quiet=quiet)

    def begin(self, calls: Sequence[bytes], memory: bool) -> None:
        began, folder, path = time.monotonic(), os.getcwd(), tuple(sys.path)
        for rank, call in zip(self._ranks, calls, strict=True):
            if rank.process.channel:
                with contextlib.suppress(OSError):  # if it is dead, the host will report it
                    rank.process.channel.send("run", Order(call, began, folder, path, dict(os.environ), memory))

    def watch(self, timeout_seconds: float) -> None:
        """Watch the ranks until all are done."""
        quiet, next_look, deadline = 0, 0.0, time.monotonic() + timeout_seconds
        while not all(rank.result is not None for rank in self._ranks):
            self._hear(_LOOK_SECONDS)
            if any(rank.failed for rank in self._ranks):
                self._settle()
                raise self._failure()
            now = time.monotonic()
            if now < next_look:
                continue
            next_look = now + _LOOK_SECONDS
            quiet = 0 if self._look() else quiet + 1
            if self._history.mismatch:
                raise MismatchError(self._history.mismatch)
            if quiet >= _QUIET_LOOKS and (text := diagnosis(self._states())):
                raise DeadlockError(text)
            if now >= deadline:
                raise self._timeout(timeout_seconds)
        self._look(final=True)
        if self._history.mismatch:  # gloo, for example, receives a message into a longer buffer without an error
            raise MismatchError(self._history.mismatch)

    def run(self) -> Run:
        records = [unpack(rank.result) for rank in self._ranks if rank.result is not None]
        return Run.of(records, self.columns.outputs, self._backend)

    def imported(self) -> list[str]:
        return list(dict.fromkeys(name for rank in self._ranks for name in rank.imported))

    def trace(self) -> RunTrace:
        return make_trace(self._history.events(), self._backend)

    def _hear(self, seconds: float) -> None:
        for process, message in self._pool.hear(seconds):
            rank = self._ranks[process.birth.rank]
            match message:
                case ("done", result, imported):
                    rank.result, rank.imported = result, imported
                case ("failed", *raised):
                    rank.raised = (raised[0], raised[1], raised[2], raised[3])
                case ("exits", where):
                    rank.left_from = where
                case ("where", where):
                    rank.where = where

    def _look(self, final: bool = False) -> bool:
        """Read what ranks have printed and called; return True if they have called anything."""
        called = False
        for rank in self._ranks:
            self.columns.write(rank.rank, rank.text.read(final))
            if records := rank.log.read():
                self._history.feed(rank.rank, records)
                called = True
        self.columns.refresh()
        return called

    def _states(self) -> list[RankState]:
        return self._history.states(rank.rank for rank in self._ranks if rank.result is not None)

    def _settle(self) -> None:
        until = time.monotonic() + _SETTLE_SECONDS
        while (left := until - time.monotonic()) > 0:
            self._hear(left)
        self._look(final=True)

    def _failure(self) -> RanksError:
        """Return the error of the rank that failed first. One that left without a message failed before its peers."""
        if self._history.mismatch:  # gloo's errors after a mismatch do not mention it
            return MismatchError(self._history.mismatch)
        failed = [rank for rank in self._ranks if rank.failed]
        first = min(failed, key=lambda rank: rank.raised[3] if rank.raised else 0.0)
        alike = [rank for rank in failed if rank.raised and first.raised and rank.raised[0] == first.raised[0]]
        first = alike[0] if alike else first
        if first.raised:
            what, exception, where, _ = first.raised
            return _error(first.rank, what, where, unpack(exception) if exception else None)
        where = first.left_from or of_crash(_read(first.process, "crash"))
        return _error(first.rank, _obituary(first.process.exit_code), where)

    def _timeout(self, seconds: float) -> RanksError:
        busy = [rank for rank in self._ranks if rank.result is None]
        waiting = {state.rank for state in self._states() if state.waiting}  # before the question changes it
        for rank in busy:
            if rank.process.channel:
                with contextlib.suppress(OSError):
                    rank.process.channel.send("where")
        until = time.monotonic() + _WHERE_SECONDS
        while (left := until - time.monotonic()) > 0 and any(rank.where is None for rank in busy):
            self._hear(left)
        for rank in busy:
            if rank.where is None:
                rank.where = _dumped(rank.process)
        self._look(final=True)
        first = min(busy, key=lambda rank: rank.rank in waiting)  # a rank that only waits is not the one that hangs
        what = f"did not come to an end within {seconds:g} s"
        if others := [rank.rank for rank in busy if rank is not first]:
            what += f" (nor did {_ranks(others)})"
        error = _error(first.rank, what, first.where or ())
        # A wait in C++, as DDP's for its gradients, is in no state, but the call has no counterpart.
        for sentence in islice(unmatched(self.trace().events).values(), 1):
            error.add_note(f"By then, {sentence}")
        return error


def _error(rank: int, what: str, where: Frames, cause: BaseException | None = None) -> RankError:
    line = where[-1][:2] if where else None
    error = RankError(f"rank {rank} {what}{at(line)}", rank, line)
    error.__cause__ = cause
    if where:
        (cause or error).add_note(f"Traceback of rank {rank} (most recent call last):\n{told(where)}")
    return error


def _ranks(numbers: Sequence[int]) -> str:
    return f"rank {numbers[0]}" if len(numbers) == 1 else f"ranks {', '.join(map(str, numbers))}"


def _obituary(code: int | None) -> str:
    if code is None or code >= 0:
        return f"left its process with exit status {code}"
    if code == -signal.SIGKILL:
        return "was killed (SIGKILL): by the system for want of memory, unless someone did it by hand"
    return f"was ended by {signal.Signals(-code).name} ({signal.strsignal(-code)})"


def _dumped(rank: RankProcess) -> Frames:
    """Return the frames of a rank that cannot answer, written by faulthandler in a signal handler, without the GIL."""
    if sys.platform == "win32":
        return ()
    with contextlib.suppress(OSError):
        os.kill(rank.pid, signal.SIGUSR1)
    until = time.monotonic() + _DUMP_SECONDS
    while not _read(rank, "crash") and time.monotonic() < until:
        time.sleep(_LOOK_SECONDS)
    time.sleep(_LOOK_SECONDS)  # faulthandler writes line by line, so the file may be incomplete
    return of_crash(_read(rank, "crash"))


def _read(rank: RankProcess, what: str) -> str:
    try:
        return rank.birth.path(what).read_text("utf-8", "replace")
    except OSError:
        return ""
