"""The campaign's side of a worker process: requests with a limit in seconds, and an end by the process's own id."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import psutil

from benchmarks.gpu.cases import ROOT


class WorkerEndedError(Exception):
    """A worker that ended, or was ended after its limit, without a reply."""

    def __init__(self, message: str, late: bool, said: Sequence[str]) -> None:
        super().__init__(message)
        self.late = late
        self.said = tuple(said)


class WorkerProcess:
    """One running worker. Each request waits for one line of JSON."""

    def __init__(self, python: str, module: str, *, stand_in: bool = False) -> None:
        command = [python, "-m", "benchmarks.gpu.worker", module, *(["--stand-in"] if stand_in else [])]
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the worker
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, cwd=ROOT, start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))},
        )  # fmt: skip
        self._unread = b""
        self.listed = False

    def cases(self, seconds: float) -> dict[str, dict[str, Any]]:
        """Return the limits of the step's cases by name: the first line that a worker writes."""
        limits: dict[str, dict[str, Any]] = self._reply(seconds)["cases"]
        self.listed = True
        return limits

    def run(self, case: str, seconds: float) -> dict[str, Any]:
        """Return the outcome of one case. Raises WorkerEndedError for a process that ended or was ended."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the process has ended: its reply says so
            self._process.stdin.write(case.encode() + b"\n")
            self._process.stdin.flush()
        return self._reply(seconds)

    def close(self) -> None:
        """End the worker and all processes below it; a notebook's kernel is in a session of its own.

        One that stays goes on to use the GPU, and halves the speed of what is measured next.
        """
        with contextlib.suppress(psutil.NoSuchProcess):
            for one in psutil.Process(self._process.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._log):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()  # type: ignore[union-attr]

    def _reply(self, seconds: float) -> Any:
        assert self._process.stdout is not None
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._unread:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise self._ended(f"still running after {seconds:.0f} s; its process was ended", late=True)
                part = os.read(self._process.stdout.fileno(), 1 << 16)
                if not part:
                    code = self._process.wait()
                    name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
                    raise self._ended(f"the process ended with {name}", late=False)
                self._unread += part
        line, _, self._unread = self._unread.partition(b"\n")
        return json.loads(line)

    def _ended(self, message: str, *, late: bool) -> WorkerEndedError:
        self._log.seek(0)
        said = self._log.read().decode(errors="replace").strip().splitlines()[-6:]
        return WorkerEndedError(message, late, said)
