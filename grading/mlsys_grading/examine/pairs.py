"""Pairs of processes, of which each examines one submission: the student's process and the examiner.

Making the sandboxes of a pair, and taking them down, takes as long as running some of a submission's cells. A pair may
be made while the submission before is examined. It waits with nothing of any student in it, and is used once.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mlsys_grading.fork_server.client import Forked, ForkServer, ForkServerError
from mlsys_grading.fork_server.waiting import send_job, waiting_request
from mlsys_grading.sandbox.confine import Sandbox

_STUDENT, _EXAMINER = "mlsys_grading.boundary.student:ready", "mlsys_grading.examine.examiner:ready"
USERS_OF_PAIRS = 4
"""User ids that ``Pairs`` use, from the sandbox's own on: two for each of the pairs that may be there at a time."""


class WaitingPair:
    """A student's process and an examiner, confined and connected to each other, that wait for their jobs.

    Attributes:
        sandbox: of the student's process; the examiner has the next user.
        student, examiner: the processes.
        control: to the examiner.
    """

    def __init__(self, server: ForkServer, sandbox: Sandbox | None, wall_seconds: float) -> None:
        self.sandbox, self._server, self._wall_seconds = sandbox, server, wall_seconds
        self._orders: list[socket.socket] = []
        to_examiner, to_student = socket.socketpair()
        self.control, to_grader = socket.socketpair()
        self.student = self._begin(_STUDENT, sandbox, [to_examiner])
        beside = replace(sandbox, user=sandbox.user + 1) if sandbox else None
        try:
            self.examiner = self._begin(_EXAMINER, beside, [to_student, to_grader])
        except ForkServerError:
            self.control.close()
            self._close_orders()
            self.student.end()
            raise

    def start(self, of_student: Mapping[str, Any], of_examiner: Mapping[str, Any]) -> None:
        """Send both their jobs, and wait until they are there. Their time begins now."""
        for each in (self.student, self.examiner):
            each.let_begin()
        for orders, job in zip(self._orders, (of_student, of_examiner), strict=True):
            with contextlib.suppress(OSError):  # it has ended, which the examination notices
                send_job(orders, dict(job))
        self._close_orders()
        for each in (self.student, self.examiner):
            each.wait_until_there()

    def waits(self) -> bool:
        """Return True if both processes are there."""
        return not (self.student.has_ended() or self.examiner.has_ended())

    def end(self) -> None:
        """End a pair that was not started."""
        self._close_orders()
        self.control.close()
        for each in (self.student, self.examiner):
            each.abandon()
        for each in (self.student, self.examiner):
            each.end()

    def _begin(self, function: str, sandbox: Sandbox | None, sockets: Sequence[socket.socket]) -> Forked:
        orders, theirs = socket.socketpair()
        self._orders.append(orders)
        return self._server.begin(waiting_request(function, sandbox, self._wall_seconds), [theirs, *sockets])

    def _close_orders(self) -> None:
        for each in self._orders:
            each.close()


class Pairs:
    """The pairs of one fork server: one at work, one that may wait for the next submission, and one that ends.

    Args:
        server: forks their processes.
        ahead: whether to make a pair while another is at work.

    Example:
        >>> pairs = Pairs(server, ahead=True)  # doctest: +SKIP
        >>> pair = pairs.take(sandbox, 60.0)  # doctest: +SKIP
    """

    def __init__(self, server: ForkServer, ahead: bool = False) -> None:
        self._server, self._ahead = server, ahead
        self._waiting: WaitingPair | None = None
        self._terms: tuple[Sandbox | None, float] | None = None
        self._ending: list[Forked] = []
        self._made = 0

    def take(self, sandbox: Sandbox | None, wall_seconds: float) -> WaitingPair:
        """Return the pair that waits, if it has this sandbox and is alive, or else a new one. It is the caller's."""
        pair, self._waiting = self._waiting, None
        if pair is not None:
            if self._terms == (sandbox, wall_seconds) and pair.waits():
                return pair
            pair.end()
        return self._make(sandbox, wall_seconds)

    def prepare(self, sandbox: Sandbox | None, wall_seconds: float) -> None:
        """Make the pair that the next ``take`` with the same arguments returns, if this one works ahead."""
        if self._ahead and self._waiting is None:
            with contextlib.suppress(ForkServerError):  # the next submission will say so
                self._waiting = self._make(sandbox, wall_seconds)
                self._terms = sandbox, wall_seconds

    def end_later(self, forked: Forked) -> None:
        """End a process without waiting for that; it is gone before its user id is used again."""
        forked.abandon()
        self._ending.append(forked)

    def close(self) -> None:
        """End the pair that waits, and wait for what is ending."""
        if self._waiting is not None:
            self._waiting.end()
            self._waiting = None
        self._finish_ending()

    def _make(self, sandbox: Sandbox | None, wall_seconds: float) -> WaitingPair:
        self._finish_ending()
        if sandbox is not None:
            sandbox = replace(sandbox, user=sandbox.user + self._made % USERS_OF_PAIRS)
        self._made += 2
        return WaitingPair(self._server, sandbox, wall_seconds)

    def _finish_ending(self) -> None:
        while self._ending:
            self._ending.pop().end()
