"""The examiner: runs the locked cells and the tests, with stand-ins for the solutions' names, and judges them.

It runs confined as well: a test is trusted, what it is fed is not. Its verdicts leave on a socket that the student's
process never had. A verdict is a pass only when the cell ran without an error, the conversation with the student's
process is still alive, and no contract was broken, whatever the cell did with the errors it met.
"""

from __future__ import annotations

import ast
import builtins
import dataclasses
import enum
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from mlsys_grading.boundary import proxies
from mlsys_grading.boundary.contract import Contract
from mlsys_grading.boundary.errors import BoundaryError, ContractError, ProtocolError, StarvedError, StudentSilentError
from mlsys_grading.boundary.rehearsal import rehearse
from mlsys_grading.boundary.session import Session
from mlsys_grading.boundary.wire import Wire
from mlsys_grading.examine.cell_credit import credit_of, least_credit
from mlsys_grading.examine.grader_link import CellTimeoutError, GraderLink
from mlsys_grading.examine.kernels import cuda_cell, is_cuda, is_triton
from mlsys_grading.examine.plan import ExaminerCell, SubmissionPlan, bound_names
from mlsys_grading.examine.probe_answers import ProbeAnswers
from mlsys_grading.shell import CellSource, Shell
from mlsys_labkit._base import probes

_TEXT = 2000
_SLOW_SHARE = 1 / 3  # of a cell's time: as many seconds again for each rank would use up the submission's


class Examiner:
    """An examiner of one submission.

    Args:
        plan: the cells.
        link: to the student's process.
        control: to the grader: verdicts go out as JSON lines, and new student processes come in.
        contract: what calls may do; None to learn it from the reference solution.
        cell_seconds, call_seconds: how long a test cell, and one call within it, may take.
        shell: in which the cells run.
    """

    def __init__(
        self,
        plan: SubmissionPlan,
        link: socket.socket,
        control: socket.socket,
        contract: dict[str, list[str]] | None,
        cell_seconds: float,
        call_seconds: float,
        *,
        shell: Shell,
    ) -> None:
        self._plan, self._link = plan, GraderLink(control)
        self._contract = Contract.from_plain(contract)
        self._cell_seconds, self._call_seconds = cell_seconds, call_seconds
        self._shell = shell
        self._records: dict[str, type] = {}
        self._exceptions: dict[str, type[Exception]] = {}
        self._restarts = 0
        self._credit: float | None = None
        self._cells = list(plan.student)
        self._probes = ProbeAnswers(
            self._link, self._records, self._exceptions, cell_seconds, call_seconds, self._hung_cell
        )
        self._unread = list(plan.student)
        self._kernels: set[str] = set()
        self._triton: Any = None
        self._withheld: dict[str, str] = {}
        self._excused: set[int] = set()
        self._unbound: set[str] = set()
        self._session = self._meet(link)

    def run(self) -> None:
        """Judge every test cell; each verdict leaves as soon as it is known."""
        for at, cell in enumerate(self._plan.examiner):
            self._link.begun = cell.name
            self._link.report_progress()
            if cell.kind == "solution":
                self._bind_in_time(cell)
                continue
            self._prepare(at)
            self._probes.position = cell.position
            verdict = self._judge(cell)
            if isinstance(self._session.dead, StarvedError):
                self._link.say({"starved": str(self._session.dead)})
                return
            if cell.kind == "test":
                self._link.say({"verdict": verdict})
        over = {"contract": self._contract.to_plain(), "restarts": self._restarts, "answers": not self._session.dead}
        self._link.say({"over": over})

    def _judge(self, cell: ExaminerCell) -> dict[str, Any]:
        """Run a cell and describe its outcome.

        Where student code writes to arguments that the reference solution leaves alone, the cell has to pass twice:
        once as if the student had worked on copies, since a test may compute what it expects from its inputs, and once
        with what was written, since a test may look whether its inputs are what they were.
        """
        session = self._session
        session.broken, session.printed = None, ""
        session.scribbles, session.scribbled = False, ""
        started = time.perf_counter()
        error, credits = self._attempt(cell), [self._credit]
        if session.scribbled and error is None and cell.kind == "test":
            session.scribbles = True
            error = self._attempt(cell)
            credits.append(self._credit)
        if error and session.scribbled:
            error["message"] += f" ({session.scribbled})"
        return {
            "name": cell.name,
            "passed": error is None,
            "error": error
            and {"kinds": error["kinds"], "message": _clean(error["message"]), "statement": error.get("statement")},
            "credit": least_credit(credits),
            "printed": _clean(session.printed),
            "seconds": time.perf_counter() - started,
        }

    def _attempt(self, cell: ExaminerCell) -> dict[str, Any] | None:
        """Run a cell once; returns why it did not pass."""
        session = self._session
        error: dict[str, Any] | None = None
        self._credit = None
        ask = partial(self._probes.answer, session)
        try:
            with self._link.deadline(self._cell_seconds), session.seeding(), probes.asked_elsewhere(ask):
                error = self._run(cell)
        except BoundaryError as raised:
            if isinstance(raised, CellTimeoutError):
                session.end(StudentSilentError(str(raised)))
            elif isinstance(raised, StarvedError):
                session.end(raised)
            error = {"kinds": [type(raised).__name__], "message": str(raised)}
        why = session.dead or session.broken
        if why is not None and cell.kind == "test":
            error = {"kinds": [type(why).__name__], "message": str(why)}
        return error

    def _run(self, cell: ExaminerCell) -> dict[str, Any] | None:
        result = self._shell.run(CellSource(cell.position, cell.name, cell.source, cell.kind == "test"))
        if cell.kind == "locked":
            self._note_records(cell.source)
        self._credit = credit_of(result["outputs"])
        error: dict[str, Any] | None = result["error"]
        if error and error["kinds"][0] == "NameError":
            reasons = (why for name, why in self._withheld.items() if f"'{name}'" in error["message"])
            error["message"] = next(reasons, error["message"])
        return error

    def _prepare(self, at: int) -> None:
        """Run the student's cells up to here in the student's process, and fetch the plain values that solutions bind.

        A cell that ends its process is left out of the next one; the examiner's cell waits for that and loses nothing.
        """
        position = self._plan.examiner[at].position
        self._define_kernels(position)
        self._ran_before = self._ran
        while not self._session.dead or (not isinstance(self._session.dead, StarvedError) and self._start_again(at)):
            with suppress(BoundaryError):
                while self._cells[self._ran :] and self._cells[self._ran].position <= position:
                    self._run_next(position)
                for name in [name for name, kind in self._bound.items() if kind == "value"]:
                    self._fetch(name)
                return

    def _run_next(self, position: int) -> None:
        self._running = True
        self._link.report_progress()
        started = time.monotonic()
        try:
            ran = self._session.ask("run", position, seconds=self._cell_seconds)
        except (ContractError, Exception):  # what a cell raises is part of an honest answer
            ran = None
        if type(ran) is not list or len(ran) != 2 or type(ran[1]) not in (str, type(None)):
            self._session.end(ProtocolError("an answer that no cell gives"))
            return
        self._running = False
        name = self._cells[self._ran].name
        self._ran += 1
        if self._session.interrupted:
            ran[1] = f"it took more than {self._cell_seconds:g} s, and was interrupted"
            self._link.report_hung(name)
        elif time.monotonic() - started > _SLOW_SHARE * self._cell_seconds:
            self._link.report_slow(name)
        if ran[1] is not None:
            self._link.say({"failed": [name, _clean(ran[1][:_TEXT])]})

    def _fetch(self, name: str) -> None:
        """Bind a name to the value that the student's process has for it, or to nothing."""
        self._shell.space.pop(name, None)
        if name in self._withheld:
            return
        self._link.report_progress()
        try:
            found = self._session.ask("names", [name])
            if type(found) is dict and name in found:
                self._shell.space[name] = found[name]
        except (BoundaryError, Exception) as error:
            self._withheld[name] = f"{name}: {error}"
            if isinstance(error, BoundaryError) and not isinstance(error, ContractError):
                raise

    def _bind_in_time(self, cell: ExaminerCell) -> None:
        if cell.name in self._unbound:
            return
        self._link.report_progress()
        try:
            with self._link.deadline(self._cell_seconds):
                self._bind(cell)
        except CellTimeoutError:
            self._unbound.add(cell.name)  # not once more for every process that ends
        except StarvedError as error:
            self._session.end(error)

    def _bind(self, cell: ExaminerCell) -> None:
        """Put stand-ins, or kernels made from their text, under the names that the reference solution binds."""
        if is_cuda(cell.source):
            self._shell.run(CellSource(cell.position, cell.name, cuda_cell(cell.source, cell.answer)))
            return
        for name, statement in bound_names(cell.source).items():
            if is_triton(statement):
                self._kernels.add(name)
            elif isinstance(statement, ast.FunctionDef):
                document = ast.get_docstring(statement)
                self._shell.space[name] = proxies.function(self._session, name, document)
                self._bound[name] = "function"
            elif isinstance(statement, ast.ClassDef):
                self._shell.space[name] = self._stand_in(name, statement)
                self._bound[name] = "class"
            elif isinstance(statement, ast.Import | ast.ImportFrom):
                exec(compile(ast.Module([statement], []), cell.name, "exec"), self._shell.space)
            else:
                self._bound[name] = "value"

    def _define_kernels(self, position: int) -> None:
        """Bind the names of kernels to what the student's cells up to here make of them."""
        if not self._kernels:
            return
        if self._triton is None:
            from mlsys_grading.examine.triton_cells import TritonCells  # imports triton

            self._triton = TritonCells(self._shell.space)
        with suppress(CellTimeoutError), self._link.deadline(self._cell_seconds):
            while self._unread and self._unread[0].position <= position:
                cell = self._unread.pop(0)
                if cell.index < 0:
                    self._triton.read_locked(bound_names(cell.source))
                else:
                    self._triton.read(cell.name if cell.name.startswith("cell ") else f"cell {cell.name}", cell.source)
            for name in self._kernels:
                self._shell.space[name] = self._triton.kernel(name)

    def _stand_in(self, name: str, statement: ast.ClassDef) -> type:
        special = {each.name for each in statement.body if isinstance(each, ast.FunctionDef)}
        for base in (each.id for each in statement.bases if isinstance(each, ast.Name)):
            kind = self._shell.space.get(base) or getattr(builtins, base, None)
            if isinstance(kind, type) and issubclass(kind, Exception):
                made = type(name, (kind,), {"__module__": "student"})
                self._session.exceptions[name] = made
                return made
        return proxies.student_class(self._session, name, special)

    def _note_records(self, source: str) -> None:
        for name in bound_names(source):
            kind = self._shell.space.get(name)
            if not isinstance(kind, type):
                continue
            if dataclasses.is_dataclass(kind) or issubclass(kind, enum.Enum) or hasattr(kind, "_fields"):
                self._records[name] = kind
            elif issubclass(kind, Exception):
                self._exceptions[name] = kind

    def _meet(self, link: socket.socket) -> Session:
        self._bound: dict[str, str] = {}
        self._ran, self._ran_before, self._running = 0, 0, False
        session = Session(
            Wire(link), self._records, self._contract, self._call_seconds, self._link.interrupt, self._link.standing
        )
        session.exceptions = self._exceptions
        return session

    def _start_again(self, at: int) -> bool:
        """Ask the grader for a new student's process, without the cell that ended the last one, if it was a cell."""
        self._restarts += 1
        if self._restarts > len(self._plan.student) + len(self._plan.examiner):
            return False  # it ends by itself, whatever is left out
        self._probes.relay = None
        blamed = self._blamed()
        if blamed is not None:
            del self._cells[blamed]
        student = self._link.restart(blamed)
        if student is None:
            return False
        self._session = self._meet(student)
        for cell in self._plan.examiner[:at]:
            if cell.kind == "solution":
                self._bind_in_time(cell)
        return True

    def _blamed(self) -> int | None:
        """Return the place of the cell that ended the process while cells ran: never a locked one."""
        if not self._running:
            return None
        last = self._ran
        # A fork that answers as well is heard of when the next cell runs.
        if isinstance(self._session.dead, ProtocolError):
            if self._ran == self._ran_before and self._ran not in self._excused:
                self._excused.add(self._ran)
                return None  # a test called the one that forked
            last -= 1
        found = [at for at, cell in enumerate(self._cells[: self._ran + 1]) if cell.index >= 0]
        return next((at for at in reversed(found) if at <= last), found[-1] if found else None)

    def _hung_cell(self, ran: int) -> str:
        """Return the name of the cell that ended a process which had run ``ran`` of them: never a locked one's."""
        found = (cell.name for cell in reversed(self._cells[: ran + 1]) if cell.index >= 0)
        return next(found, "")


def _clean(text: str) -> str:
    """Replace half surrogate pairs, and control characters but newlines and tabs, which databases and pages refuse."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    return "".join(each if each >= " " or each in "\n\t" else "�" for each in text)


def ready(sockets: list[socket.socket]) -> Callable[[dict[str, Any]], None]:
    """Make a shell in a fork, and return what then runs the examiner in it, for a job.

    The sockets lead to the student's process and to the grader.
    """
    link, control = sockets
    shell = Shell()
    rehearse(shell)

    def examine(job: dict[str, Any]) -> None:
        plan = SubmissionPlan.from_plain(job["plan"])
        Examiner(plan, link, control, job["contract"], job["cell_seconds"], job["call_seconds"], shell=shell).run()

    return examine
