"""Answers to a test's probes of student code, measured in student's processes made for one call."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from mlsys_grading.boundary import proxies
from mlsys_grading.boundary.contract import Contract
from mlsys_grading.boundary.errors import BoundaryError, ContractError, ProtocolError, StudentGoneError
from mlsys_grading.boundary.session import Session
from mlsys_grading.boundary.wire import Wire
from mlsys_grading.counters.peak import Readings, new_resident_bytes
from mlsys_grading.examine.grader_link import GraderLink, time_standing_still
from mlsys_grading.examine.plan import HUNG_TWICE

if TYPE_CHECKING:
    from mlsys_grading.counters.relay import RankRelay

_CALL_TRACED = "mlsys_labkit.memory.call_traced"
_RUN_RANKS = "mlsys_labkit.checks.ranks.run_ranks"


class ProbeAnswers:
    """The probes of one submission.

    Args:
        link: to the grader, which starts processes.
        records, exceptions: the examiner's classes that sessions share.
        cell_seconds, call_seconds: how long a cell, and one call, may take.
        blamed: returns the name of the student's cell that ended a process which had run so many; "" for none.

    Attributes:
        position: of the examiner's cell that runs: other processes run the student's cells up to there.
        relay: the processes of the ranks, once there are any.
    """

    def __init__(
        self,
        link: GraderLink,
        records: dict[str, type],
        exceptions: dict[str, type[Exception]],
        cell_seconds: float,
        call_seconds: float,
        blamed: Callable[[int], str],
    ) -> None:
        self.position = 0
        self.relay: RankRelay | None = None
        self._link, self._records, self._exceptions = link, records, exceptions
        self._cell_seconds, self._call_seconds = cell_seconds, call_seconds
        self._blamed_for = blamed
        self._hung: dict[str, int] = {}

    def answer(self, main: Session, name: str, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Answer a probe by counters outside the student's process, or by its reply; ``main`` is its session."""
        of_student = getattr(args[0], "__labkit_student__", "") if args else ""
        if name == _RUN_RANKS and of_student:
            from mlsys_grading.counters.relay import RankRelay  # with it comes torch.distributed, which one lab needs

            self.relay = self.relay or RankRelay(
                lambda whole: self._start(whole, Contract())[0],
                lambda session, whole: self._catch_up(session, whole, Contract())[0],
            )
            return self.relay.run(name, args, keywords, main.seeded)
        if name == _CALL_TRACED and of_student and not _has_stand_ins((args[1:], keywords)):
            return self._call_measured(main, name, args, keywords)
        return main.probe(name, args, keywords)

    def _start(self, whole: bool, contract: Contract, alone: bool = False) -> tuple[Session, int]:
        """Start another student's process; return its session and its resident bytes."""
        student, resident_bytes, number = self._link.start_another(whole, alone)
        session = Session(
            Wire(student, shares=False),
            self._records,
            contract,
            self._call_seconds,
            standing=self._link.standing,
            ended=partial(self._link.end_another, number),
        )
        session.exceptions = self._exceptions
        return session, resident_bytes

    def _call_measured(self, main: Session, name: str, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Make the call in a process of its own, whose memory is read from outside."""
        called = args[0].__labkit_student__
        whole, again = False, True
        while True:
            session, forked = self._start(whole, main.contract, alone=True)
            try:
                session, forked = self._catch_up(session, whole, main.contract, forked)
                session.seed(main.seeded)
                before = self._link.peak_bytes(reset=True)
                answer = session.probe(name, args, keywords)
                readings = Readings(forked, before, self._link.peak_bytes(), session.sent_bytes)
                held = session.contract.held(f"memory before {called}", before - forked)
                trace, new_bytes = answer[1], new_resident_bytes(readings, held)
                if new_bytes is not None:
                    unseen = max(0, new_bytes - trace.peak_new_bytes - trace.python_peak_bytes)
                    beside = session.contract.held(f"memory beside {called}", unseen)
                    trace.resident_peak_bytes = max(0, new_bytes - (unseen if beside is None else beside))
                return answer
            except NameError:
                if whole:
                    raise
                whole = True  # an answer uses what a cell of the submission's own computes
            except BoundaryError as error:
                if not (again and isinstance(error, ProtocolError | StudentGoneError)):
                    main.broken = ContractError(str(error))
                    raise
                again = False  # its watcher may have met a library's child, which asks ldconfig something and is gone
            finally:
                main.printed += session.printed
                session.end(BoundaryError("this process is not needed any more"))

    def _catch_up(self, session: Session, whole: bool, contract: Contract, forked: int = 0) -> tuple[Session, int]:
        """Run in the new process the cells that the first one has run; that takes none of the test's time.

        A cell that does not end here, or ends the process, is left out of another one. Returns the session that has
        caught up, and what ``_start`` told of its process (``forked``, for the one that is given).
        """
        with time_standing_still():
            while True:
                with suppress(BoundaryError):
                    while session.ask("run", self.position, seconds=self._cell_seconds) is not None:
                        session.ran += 1
                        self._link.report_progress()
                    return session, forked
                name = self._blamed_for(session.ran)
                self._hung[name] = self._hung.get(name, 0) + 1
                if not name or self._hung[name] > HUNG_TWICE:
                    raise session.dead or BoundaryError("a cell could not be run again")
                self._link.report_hung(name)
                session, forked = self._start(whole, contract, alone=bool(forked))


def _has_stand_ins(value: Any) -> bool:
    """Return True if the value contains an object that lives in the student's process."""
    if isinstance(value, dict):
        return any(map(_has_stand_ins, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(_has_stand_ins, value))
    return isinstance(value, proxies.Remote)
