"""Answers to a test's probes of student code, measured in student's processes made for one call."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

from mlsys_grading.boundary import proxies
from mlsys_grading.boundary.contract import Contract
from mlsys_grading.boundary.errors import BoundaryError, ContractError, ProtocolError, StudentGoneError
from mlsys_grading.boundary.session import Session
from mlsys_grading.boundary.wire import Wire
from mlsys_grading.counters.peak import Readings, new_resident_bytes
from mlsys_grading.examine.grader_link import GraderLink

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
    ) -> None:
        self.position = 0
        self.relay: RankRelay | None = None
        self._link, self._records, self._exceptions = link, records, exceptions
        self._cell_seconds, self._call_seconds = cell_seconds, call_seconds

    def answer(self, main: Session, name: str, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Answer a probe by counters outside the student's process, or by its reply; ``main`` is its session."""
        of_student = getattr(args[0], "__labkit_student__", "") if args else ""
        if name == _RUN_RANKS and of_student:
            from mlsys_grading.counters.relay import RankRelay  # with it comes torch.distributed, which one lab needs

            self.relay = self.relay or RankRelay(lambda whole: self._start(whole, Contract())[0], self._catch_up)
            return self.relay.run(name, args, keywords, main.seeded)
        if name == _CALL_TRACED and of_student and not _has_stand_ins((args[1:], keywords)):
            return self._call_measured(main, name, args, keywords)
        return main.probe(name, args, keywords)

    def _start(self, whole: bool, contract: Contract, alone: bool = False) -> tuple[Session, int]:
        """Start another student's process; return its session and its resident bytes."""
        student, resident_bytes = self._link.start_another(whole, alone)
        session = Session(Wire(student), self._records, contract, self._call_seconds, standing=self._link.standing)
        session.exceptions = self._exceptions
        return session, resident_bytes

    def _call_measured(self, main: Session, name: str, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Make the call in a process of its own, whose memory is read from outside."""
        called = args[0].__labkit_student__
        whole, again = False, True
        while True:
            session, forked = self._start(whole, main.contract, alone=True)
            try:
                self._catch_up(session)
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

    def _catch_up(self, session: Session) -> None:
        """Run in the new process the cells that the first one has run; that takes none of the test's time."""
        left_seconds, _ = signal.setitimer(signal.ITIMER_REAL, 0)
        try:
            while session.ask("run", self.position, seconds=self._cell_seconds) is not None:
                self._link.report_progress()
        finally:
            signal.setitimer(signal.ITIMER_REAL, max(left_seconds, 0.001))


def _has_stand_ins(value: Any) -> bool:
    """Return True if the value contains an object that lives in the student's process."""
    if isinstance(value, dict):
        return any(map(_has_stand_ins, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(_has_stand_ins, value))
    return isinstance(value, proxies.Remote)
