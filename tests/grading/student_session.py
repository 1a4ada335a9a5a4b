"""A session with a confined student's process that has run one cell."""

from __future__ import annotations

import socket
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mlsys_grading.boundary import proxies
from mlsys_grading.boundary.errors import StudentGoneError
from mlsys_grading.boundary.session import Session
from mlsys_grading.boundary.wire import Wire
from mlsys_grading.fork_server.client import ForkServer
from mlsys_grading.fork_server.request import ForkRequest


class Course:
    """A student's notebook of one cell, and stand-ins for what it defines."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return proxies.function(self.session, name, None)

    def class_(self, name: str, *special: str) -> Any:
        return proxies.student_class(self.session, name, set(special))


@contextmanager
def student_session(
    server: ForkServer, source: str, records: dict[str, type] | None = None, **options: Any
) -> Iterator[Course]:
    ours, theirs = socket.socketpair()
    cells = [(1, "cell", "import numpy as np, torch, dataclasses, enum\n" + textwrap.dedent(source))]
    job = {"cells": cells, "records": list(records or {})}
    with server.fork(ForkRequest("mlsys_grading.boundary.student:serve", job), [theirs]):
        session = Session(Wire(ours), dict(records or {}), call_seconds=600, **options)
        assert session.ask("run", 1) == ["cell", None]
        assert session.ask("run", 1) is None
        yield Course(session)
        session.end(StudentGoneError("over"))
