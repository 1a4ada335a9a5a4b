"""One submission through both processes: starts them, carries out the examiner's requests, collects the verdicts."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import signal
import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import inf
from typing import Any

from mlsys_grading.examine.crowding import Crowding
from mlsys_grading.examine.pairs import Pairs
from mlsys_grading.examine.plan import HUNG_TWICE, ExaminerCell, SubmissionPlan, bound_names
from mlsys_grading.fork_server.client import Ended, Forked, ForkServer
from mlsys_grading.fork_server.request import ForkRequest
from mlsys_grading.lab.inputs import input_at
from mlsys_grading.processes import used_seconds, waited_seconds
from mlsys_grading.result import CellMark
from mlsys_grading.sandbox.confine import FAILED, Sandbox
from mlsys_grading.sandbox.watch import tree
from mlsys_grading.time_limits import TimeLimits

_GRACE_SECONDS = 10.0
_READ_SECONDS = 1.0
_USERS = 400_000  # more than all first processes of submissions have, see ``Sandbox.user``
_STUDENT = "mlsys_grading.boundary.student:serve"
_BY_A_CELL = ("memory", "processes", "busy")


@dataclass(frozen=True)
class Examined:
    """The outcome of one submission.

    Attributes:
        marks: one for every test cell of the source, in order.
        failed_cells: name of a student's cell -> what it raised.
        restarts: how often the student's process had to be started anew.
        contract: what calls did beside returning plain data.
        trouble: why the verdicts cannot be trusted to be the student's doing: the machine's, or ours. Empty: they can.
    """

    marks: tuple[CellMark, ...]
    failed_cells: Mapping[str, str] = field(default_factory=dict)
    restarts: int = 0
    contract: Mapping[str, list[str]] = field(default_factory=dict)
    trouble: str = ""
    seconds: float = 0.0

    @property
    def points(self) -> float:
        return sum(mark.points for mark in self.marks)


def examine_submission(
    server: ForkServer,
    plan: SubmissionPlan,
    contract: Mapping[str, list[str]] | None = None,
    time_limits: TimeLimits | None = None,
    sandbox: Sandbox | None = None,
    pairs: Pairs | None = None,
) -> Examined:
    """Examine one submission.

    Args:
        server: has imported what the lab imports, and ``mlsys_grading.examine.examiner``.
        plan: of the submission.
        contract: of the reference solution; None for the reference solution itself.
        sandbox: for the student's process; the examiner gets one like it, and the user after it. None: no sandbox.
        pairs: of the server, which may have made the two processes ahead.
    """
    own = pairs or Pairs(server)
    try:
        return _Examination(server, plan, contract, time_limits or TimeLimits(), sandbox, own).run()
    finally:
        if pairs is None:
            own.close()


class _Examination:
    def __init__(
        self,
        server: ForkServer,
        plan: SubmissionPlan,
        contract: Mapping[str, list[str]] | None,
        time_limits: TimeLimits,
        sandbox: Sandbox | None,
        pairs: Pairs,
    ) -> None:
        self._server, self._plan, self._contract = server, plan, contract
        self._time_limits, self._given_sandbox, self._pairs = time_limits, sandbox, pairs
        self._told: dict[str, dict[str, Any]] = {}
        self._failed: dict[str, str] = {}
        self._over: dict[str, Any] | None = None
        self._student: Forked | None = None
        self._others: dict[int, Forked] = {}
        self._trouble = ""
        self._looking = contextlib.ExitStack()
        self._crowding: Crowding | None = None
        self._begun = ""
        self._left_out: set[str] = set()
        self._slow: set[str] = set()
        self._hung: dict[str, int] = {}

    def run(self) -> Examined:
        """Examine until all cells have a mark; an examiner that a cell ends is followed by one without that cell."""
        started = time.monotonic()
        until = started + self._time_limits.wall_seconds
        try:
            trouble = self._examine()
            while not self._over and not trouble and time.monotonic() < until:
                self._left_out.add(self._begun)
                trouble = self._examine()
        finally:
            self._looking.close()
        return self._examined(trouble, time.monotonic() - started)

    def _examine(self) -> str:
        """Run one examiner to its end; return the machine's trouble, if that ended it, else ""."""
        cells = tuple(cell for cell in self._plan.examiner if cell.name not in self._left_out)
        job = {
            "plan": replace(self._plan, examiner=cells).to_plain(),
            "contract": None if self._contract is None else dict(self._contract),
            "cell_seconds": self._time_limits.cell_seconds,
            "call_seconds": self._time_limits.call_seconds,
        }
        self._begun, self._started_others = "", 0
        self._cells = [(cell.position, cell.name, cell.source) for cell in self._plan.student]
        terms = self._given_sandbox, self._time_limits.wall_seconds
        pair = self._pairs.take(*terms)
        self._sandbox, self._student, self._examiner = pair.sandbox, pair.student, pair.examiner
        try:
            with pair.control:
                pair.start(self._student_job(self._cells), job)
                self._pairs.prepare(*terms)
                why = self._listen(pair.control, pair.examiner)
                is_over = why or self._trouble or self._over is not None
                ended = Ended(-1, why) if is_over else pair.examiner.wait()
        finally:
            self._end_all()
        if self._trouble or self._over is not None:
            return self._trouble
        # A kill from outside, or no processor time on an overloaded machine, is not caused by the student.
        by_a_cell = ended.why in _BY_A_CELL or (not ended.why and ended.code not in (-signal.SIGKILL, FAILED))
        if self._begun and by_a_cell:
            message = f"the test ended its examiner: {ended.why or ended.code}"
            error = {"kinds": ["ExaminerEndedError"], "message": message}
            told = {"name": self._begun, "passed": False, "error": error, "printed": "", "seconds": 0.0}
            self._told.setdefault(self._begun, told)
            return ""
        if ended.why == "wall":
            return self._starved()
        return f"the examiner ended early ({ended.why or f'status {ended.code}'})"

    def _starved(self) -> str:
        """Return the machine's trouble if others had the processors for most of the time of a submission."""
        waited, wall = self._crowding.denied_seconds if self._crowding else 0.0, self._time_limits.wall_seconds
        return f"the machine is too busy: of {wall:g} s it waited {waited:.3g} s" if waited > wall / 2 else ""

    def _end_all(self) -> None:
        """End all processes. Where the student's answered to the end, what it does from now on changes no mark.

        Of a rank, or a measured call, only the end tells whether something else killed it, and took a mark with it.
        """
        first = [each for each in (self._student, self._examiner) if each]
        for each in (*first, *self._others.values()):
            each.abandon()  # so that all end at the same time
        if self._over is not None and self._over["answers"] and not self._trouble:
            for each in first:
                self._pairs.end_later(each)
            self._student = None
            self._end_students()
            return
        self._end_students()
        self._examiner.end()

    def _abandon_students(self) -> None:
        for each in (self._student, *self._others.values()):
            if each:
                each.abandon()

    def _end_students(self) -> None:
        self._abandon_students()
        for each in (self._student, *self._others.values()):
            if each:
                ended = each.wait()
                each.end()
                # No process in a sandbox can send this signal to its first process, and a limit would be named.
                if self._sandbox and ended == Ended(-signal.SIGKILL):
                    self._trouble = "a student's process was killed by something else on this machine"
        self._student, self._others = None, {}

    def _start_student(self) -> tuple[Forked, socket.socket]:
        self._end_students()
        self._student, link = self._fork_student(self._student_job(self._cells), self._sandbox)
        return self._student, link

    def _fork_student(self, job: dict[str, Any], sandbox: Sandbox | None) -> tuple[Forked, socket.socket]:
        theirs, link = socket.socketpair()
        request = ForkRequest(_STUDENT, job, sandbox, self._time_limits.wall_seconds)
        return self._server.begin(request, [theirs]), link

    def _another_sandbox(self, alone: bool, number: int) -> Sandbox | None:
        """Return the sandbox of a further process, which is the ``number``th."""
        if self._sandbox is None:
            return None
        # The kernel counts pipes, files in flight and processes for each user.
        sandbox = replace(self._sandbox, user=self._sandbox.user + number * _USERS, shows_processes=False)
        if alone:  # memory of children, or files in memory, would not count as its own
            sandbox = replace(sandbox, limits=replace(sandbox.limits, children=1, scratch_bytes=1 << 20))
        return sandbox

    def _student_job(
        self, cells: list[tuple[int, str, str]], whole: bool = True, alone: bool = False, number: int = 0
    ) -> dict[str, Any]:
        locked, solutions = (
            tuple(cell.source for cell in self._plan.examiner if cell.kind == kind) for kind in ("locked", "solution")
        )
        answers = None if whole else [cell.name for cell in self._plan.examiner]
        return {
            "cells": [(at, name, source if self._hung.get(name, 0) < HUNG_TWICE else "") for at, name, source in cells],
            "defined": [*self._hung, *(() if whole else self._slow)],
            "records": _class_names(locked, ast.ClassDef | ast.Assign),
            "live": _class_names(solutions, ast.ClassDef),
            "whole": answers,
            "witnessed": alone and self._sandbox is not None,
            "apart": number > 0 and self._sandbox is not None,
        }

    def _listen(self, control: socket.socket, examiner: Forked) -> str:
        """Carry out the examiner's requests until it ends; returns "busy" or "stalled" when it hangs."""
        limits = self._time_limits
        silence_seconds = 2 * limits.cell_seconds + limits.call_seconds + _GRACE_SECONDS
        control.settimeout(silence_seconds)
        used_before, read_at = 0.0, -inf
        with control.makefile("r", encoding="utf-8") as lines:
            try:
                for line in lines:
                    if time.monotonic() > read_at + _READ_SECONDS:  # far less than a silence
                        used_before, read_at = used_seconds(examiner.pid), time.monotonic()
                    for kind, told in json.loads(line).items():
                        getattr(self, f"_on_{kind}")(told, control)
                    if self._over is not None or self._trouble:
                        return ""
            except TimeoutError:
                return "busy" if used_seconds(examiner.pid) - used_before > silence_seconds / 4 else "stalled"
            except (BrokenPipeError, ConnectionResetError):
                pass  # it ended before the answer was sent
        return ""

    def _on_begun(self, told: str, control: socket.socket) -> None:
        self._begun = told

    def _on_verdict(self, told: dict[str, Any], control: socket.socket) -> None:
        self._told.setdefault(told["name"], told)
        self._begun = ""

    def _on_failed(self, told: list[str], control: socket.socket) -> None:
        name, error = told
        self._failed[name] = error

    def _on_interrupt(self, told: Any, control: socket.socket) -> None:
        if self._student:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._student.pid, signal.SIGINT)

    def _on_restart(self, told: dict[str, Any], control: socket.socket) -> None:
        if told["left_out"] is not None:
            _, name, _ = self._cells.pop(told["left_out"])
            self._failed[name] = "ended the process, or did not end itself"
            self._hung[name] = HUNG_TWICE
        student, link = self._start_student()
        student.wait_until_there()
        socket.send_fds(control, [b"."], [link.fileno()])
        link.close()

    def _on_another(self, told: dict[str, Any], control: socket.socket) -> None:
        """Start another process that runs the student's cells, for a rank or a measured call: it shares no memory."""
        self._started_others += 1
        number, alone = self._started_others, told["alone"]
        job = self._student_job(self._cells, told["whole"], alone, number)
        other, link = self._fork_student(job, self._another_sandbox(alone, number))
        self._others[number] = other
        socket.send_fds(control, [other.peak_bytes().to_bytes(8, "little")], [link.fileno()])
        link.close()

    def _on_peak(self, reset: bool, control: socket.socket) -> None:
        control.sendall(self._others[self._started_others].peak_bytes(reset).to_bytes(8, "little"))

    def _on_end(self, number: int, control: socket.socket) -> None:
        if number in self._others:
            self._others[number].abandon()

    def _on_slow(self, name: str, control: socket.socket) -> None:
        self._slow.add(name)

    def _on_hung(self, name: str, control: socket.socket) -> None:
        self._hung[name] = self._hung.get(name, 0) + 1

    def _on_standing(self, told: Any, control: socket.socket) -> None:
        found = map(_standing, self._roots())
        waited, used = map(sum, zip((0.0, 0.0), *found, strict=True))
        of_examiner = waited_seconds(self._examiner.pid)
        control.sendall(struct.pack("<4d", waited, used, self._look().own_seconds, of_examiner))

    def _look(self) -> Crowding:
        """Return the record of how the processors were divided; it begins when something has taken a while."""
        if self._crowding is None:
            pinned = self._sandbox.cpus if self._sandbox else ()
            cores = len(pinned or os.sched_getaffinity(0))
            self._crowding = self._looking.enter_context(Crowding(self._roots, cores))
        return self._crowding

    def _roots(self) -> list[int]:
        """Return the first processes of the student's trees that have started."""
        found = [each.pid_if_started for each in (self._student, *tuple(self._others.values())) if each]
        return [pid for pid in found if pid]

    def _on_starved(self, told: str, control: socket.socket) -> None:
        self._trouble = told

    def _on_over(self, told: dict[str, Any], control: socket.socket) -> None:
        self._over = told

    def _examined(self, trouble: str, seconds: float) -> Examined:
        marks = (_mark(cell, self._told.get(cell.name)) for cell in self._plan.examiner if cell.kind == "test")
        over = self._over or {"restarts": 0, "contract": {}}
        return Examined(tuple(marks), self._failed, over["restarts"], over["contract"], trouble, seconds)


def _standing(root: int) -> tuple[float, float]:
    """Return the longest wait of one process of a tree for a processor, and the time that all of them used one."""
    pids = tree(root)
    return max(map(waited_seconds, pids), default=0.0), sum(map(used_seconds, pids))


def _mark(cell: ExaminerCell, told: dict[str, Any] | None) -> CellMark:
    """Compute the points of a test cell from the examiner's verdict; ``told`` is None if the cell never ran."""
    none = CellMark(cell.name, 0.0, cell.points, claim=cell.claim)
    if told is None:
        return replace(none, error="the cell was never reached")
    credit = told.get("credit")
    if told["passed"] and credit is not None and not 0 <= credit <= cell.points:
        return replace(none, error=f"the test ends in {credit:g}, expected 0 to {cell.points:g} points")
    error = told["error"] or {"kinds": [], "message": ""}
    line = " ".join(": ".join([*error["kinds"][:1], *filter(None, [error["message"]])]).split())
    points = 0.0 if not told["passed"] else cell.points if credit is None else credit
    return replace(
        none,
        points=points,
        error=line,
        kinds=tuple(error["kinds"]),
        failed_input=input_at(cell.source, error.get("statement")),
        printed=told["printed"],
        seconds=told["seconds"],
    )


@lru_cache(maxsize=16)  # the lab's classes are the same for every submission
def _class_names(sources: tuple[str, ...], kind: Any) -> list[str]:
    found = (pair for source in sources for pair in bound_names(source).items())
    return [name for name, statement in found if isinstance(statement, kind)]
