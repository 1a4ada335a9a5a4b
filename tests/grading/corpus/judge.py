"""A judge that examines submissions of the corpus as the graders do, and looks for files and processes they leave."""

from __future__ import annotations

import os
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from mlsys_grading.examine.notebook import UnreadableError, read_cells
from mlsys_grading.examine.plan import make_plan
from mlsys_grading.examine.run import Examined, examine_submission
from mlsys_grading.fork_server.client import ForkServer
from mlsys_grading.sandbox.confine import Sandbox
from mlsys_grading.sandbox.limits import SandboxLimits
from mlsys_grading.sandbox.watch import tree
from mlsys_grading.time_limits import TimeLimits
from tests.grading.corpus.submission import Submission, source

MODULES = (
    "mlsys_grading.kernel.started",
    "numpy",
    "torch",
    "torch.testing",
    "IPython",
    "mlsys_labkit",
    "mlsys_labkit.checks",
    "matplotlib",
    "plotly",
    "mlsys_grading.examine.examiner",
    "mlsys_grading.boundary.student",
)
TIME_LIMITS = TimeLimits(call_seconds=4, cell_seconds=8, wall_seconds=90)
LIMITS = SandboxLimits(memory_bytes=1500 << 20, scratch_bytes=256 << 20)
_USERS = 2000
_FIRST_USER = (1 << 28) + _USERS * os.getpid()  # user ids of this run alone, which identify its processes


@dataclass
class Bait:
    """Targets outside the sandbox that submissions attack: files that anyone may write, and ports that listen."""

    folder: Path
    heard: list[str] = field(default_factory=list)
    port: int = 0

    def __post_init__(self) -> None:
        others = self.folder / "submitted" / "grace" / "lab91_corpus"
        others.mkdir(parents=True)
        (others / "lab91_corpus.ipynb").write_bytes(Submission("grace", "honest", "").file())
        self.restore()

    def restore(self) -> None:
        """Put everything back as it was."""
        (self.folder / "gradebook.db").unlink(missing_ok=True)
        sqlite3.connect(self.folder / "gradebook.db").close()
        for path in self.folder.glob("*.ipynb"):
            path.unlink()
        for path in (self.folder, *self.folder.rglob("*")):
            path.chmod(0o777)

    @property
    def words(self) -> dict[str, str]:
        return {"FOLDER": str(self.folder), "PORT": str(self.port), "ABSTRACT": f"bait-{self.port}"}

    def files(self) -> dict[str, tuple[bytes, int]]:
        """Return every file's content and time of last change."""
        found = sorted(path for path in self.folder.rglob("*") if path.is_file())
        return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in found}

    @contextmanager
    def listening(self) -> Iterator[Bait]:
        """Keep a secret, and listen on a port of this machine and on an abstract name, which no mount hides."""
        ports = [socket.create_server(("127.0.0.1", 0))]
        self.port = ports[0].getsockname()[1]
        os.environ["GRADERS_TOKEN"] = f"bait-token-{self.port:012d}"
        ports.append(socket.socket(socket.AF_UNIX))
        ports[1].bind(f"\0bait-{self.port}")
        ports[1].listen()
        for each in ports:
            threading.Thread(target=self._listen, args=(each,), daemon=True).start()
        try:
            yield self
        finally:
            for each in ports:
                each.shutdown(socket.SHUT_RDWR)
                each.close()

    def _listen(self, port: socket.socket) -> None:
        while True:
            try:
                connection, _ = port.accept()
            except OSError:
                return
            self.heard.append(f"a connection to {port.getsockname()!r}")
            connection.close()


class Judge:
    """An examiner of submissions, one after another or several at a time, with one fork server."""

    def __init__(self, server: ForkServer, bait: Bait) -> None:
        self.server, self.bait = server, bait
        self._users = iter(range(_FIRST_USER, _FIRST_USER + _USERS, 2))
        self._source = source()["cells"]
        reference = self._examine(make_plan(self._source, self._source), None)
        assert not reference.trouble, reference.trouble
        assert all(verdict.passed for verdict in reference.marks), failures(reference)
        self.contract = reference.contract

    def examine(self, submission: Submission) -> Examined:
        """Return the verdicts on a submission, read from a file; an unreadable file counts as an empty notebook."""
        path = self.bait.folder / f"{submission.name.replace(' ', '_')}-{threading.get_ident()}.ipynb"
        path.write_bytes(submission.file(self.bait.words))
        try:
            cells = read_cells(path)
        except UnreadableError:
            cells = []
        finally:
            path.unlink()
        return self._examine(make_plan(self._source, cells), self.contract)

    def _examine(self, plan: object, contract: object) -> Examined:
        sandbox = Sandbox(limits=LIMITS, user=next(self._users))
        return examine_submission(self.server, plan, contract, TIME_LIMITS, sandbox)  # type: ignore[arg-type]

    def left_running(self, patience_seconds: float = 10) -> list[str]:
        """Return the processes that a submission left: the server's children, and those of the corpus's user ids."""
        until = time.monotonic() + patience_seconds
        while True:
            left = [pid for pid in tree(self.server.pid) if pid != self.server.pid and _alive(pid)]
            left += [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _is_ours(pid)]
            if not left or time.monotonic() > until:
                return [f"{pid}: {_status(pid)}" for pid in sorted(set(left))]
            time.sleep(0.05)


def failures(examined: Examined) -> str:
    return "; ".join(f"{each.name}: {each.error[:200]}" for each in examined.marks if not each.passed)


def _status(pid: int) -> str:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return " ".join(line for line in lines if line.startswith(("Name", "State", "PPid", "Uid", "NSpid")))
    except OSError:
        return ""


def _alive(pid: int) -> bool:
    return bool(_status(pid)) and "State:\tZ" not in _status(pid)


def _is_ours(pid: int) -> bool:
    try:
        return _FIRST_USER <= os.stat(f"/proc/{pid}").st_uid < _FIRST_USER + _USERS and _alive(pid)
    except OSError:
        return False
