"""Executes one notebook: the body of one worker process, which ends with the notebook."""

from __future__ import annotations

import logging
import os
import re
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.kernelspec import NoSuchKernel
from jupyter_client.manager import AsyncKernelManager
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from papermill.exceptions import PapermillExecutionError
from papermill.execute import execute_notebook

from mlsys_grading.report import lab_page
from mlsys_grading.run import processes
from mlsys_grading.run.job import Job
from mlsys_grading.run.result import CellTime, Failure, NotebookResult

START_SECONDS = 60
LOG_TAIL_LINES = 20
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def work(job: Job, environment: dict[str, str], events: Connection) -> None:
    """Execute ``job``, report ``("cell", number, done)`` at each code cell and ``("done", result)`` at the end."""
    processes.own_descendants()
    os.environ.clear()
    os.environ.update(environment)
    _redirect_output(job.log)
    logging.getLogger("papermill").setLevel(logging.CRITICAL)  # the log is the kernel's; failures have their own words
    try:
        result = lab_page.write_page(job, run_notebook(job, events.send))
        events.send(("done", result))
        events.close()
    finally:
        processes.end_descendants()
        # Not sys.exit: half-open sockets to a dead kernel would keep the interpreter from ending.
        os._exit(0)


def run_notebook(job: Job, tell: Callable[[tuple[Any, ...]], None]) -> NotebookResult:
    """Execute the notebook of ``job`` in this process's environment; every way to fail becomes a :class:`Failure`."""
    started = time.monotonic()
    watch = _Watch(tell)
    failure: Failure | None = None
    oom_kills = processes.oom_kills()
    try:
        notebook = nbformat.read(job.notebook, as_version=4)
        nbformat.validate(notebook)
        watch.source = notebook
        kernel = notebook.metadata.get("kernelspec", {}).get("name", "python3")
        watch.manager = AsyncKernelManager(
            kernel_name=kernel, transport="ipc", connection_file=str(job.sockets / "k.json")
        )
        _ = watch.manager.kernel_spec  # a missing kernel is said here, before a cell is started
        execute_notebook(
            job.notebook,
            job.executed,
            parameters={"smoke": job.smoke, "seed": job.seed} if _has_parameters(notebook) else None,
            kernel_name=kernel,
            language="python",
            progress_bar=False,
            start_timeout=START_SECONDS,
            execution_timeout=job.cell_seconds,
            cwd=job.cwd,
            km=watch.manager,
            store_widget_state=False,
            on_cell_start=watch.start,
            on_cell_executed=watch.executed,
        )
        failure = watch.unfinished()
    except PapermillExecutionError as error:
        failure = watch.locate(error)
    except CellTimeoutError:
        failure = watch.fail("cell timeout", f"cell still running after {job.cell_seconds:g} s (--timeout-cell)")
    except (DeadKernelError, RuntimeError) as error:
        failure = _died(watch, error, job, processes.oom_kills() > oom_kills)
    except NoSuchKernel as error:
        failure = Failure("set-up", f"kernel {error.name!r} is not installed; run: {_install_line(error.name)}")
    except (
        nbformat.reader.NotJSONError,
        nbformat.ValidationError,
        UnicodeDecodeError,
        KeyError,
        AttributeError,
    ) as error:
        failure = Failure("unreadable", f"{job.notebook.name} is not a valid notebook: {_first_line(error)}")
    except OSError as error:
        failure = Failure("set-up", f"{error.strerror or error}: {error.filename or job.notebook}")
    return NotebookResult(
        name=job.name,
        title=job.title,
        status="failed" if failure else "passed",
        fingerprint=job.fingerprint,
        seconds=time.monotonic() - started,
        cells_total=job.cells_total,
        cells=tuple(watch.times),
        peak_bytes=watch.peak_bytes or None,
        failure=failure,
    )


class _Watch:
    """Follows papermill through a notebook: which cell runs, how long each took, how large the kernel grew."""

    def __init__(self, tell: Callable[[tuple[Any, ...]], None]) -> None:
        self.source: nbformat.NotebookNode | None = None
        self.manager: AsyncKernelManager | None = None
        self.times: list[CellTime] = []
        self.peak_bytes = 0
        self._tell = tell
        self._cell: nbformat.NotebookNode | None = None
        self._number: int | None = None
        self._since = 0.0
        self._injected = 0

    def start(self, cell: nbformat.NotebookNode, cell_index: int) -> None:
        injected = "injected-parameters" in cell.metadata.get("tags", [])
        self._injected += injected
        self._cell = cell
        self._number = None if injected else cell_index + 1 - self._injected
        self._since = time.monotonic()
        if cell.cell_type == "code" and not injected:
            self._tell(("cell", self._number, len(self.times)))

    def executed(self, cell: nbformat.NotebookNode, cell_index: int, execute_reply: object) -> None:
        if self._number is not None:
            self.times.append(CellTime(self._number, time.monotonic() - self._since, grade_id(cell)))
        process = self.process
        if process is not None:
            self.peak_bytes = max(self.peak_bytes, processes.high_water_bytes(process.pid))

    @property
    def process(self) -> Any:
        provisioner = self.manager.provisioner if self.manager else None
        return getattr(provisioner, "process", None)

    def fail(self, kind: Any, message: str, **more: Any) -> Failure:
        return Failure(kind, message, cell=self._number, grade_id=grade_id(self._cell), **more)

    def locate(self, error: PapermillExecutionError) -> Failure:
        traceback = plain("\n".join(error.traceback))
        # The first frame that is a cell's is the failing cell itself; deeper ones may lie in cells above it.
        frame = re.search(rf"Cell In\[{error.exec_count}\], line (\d+)", traceback)
        line = int(frame.group(1)) if frame else None
        lines = error.source.splitlines()
        return self.fail(
            "exception",
            f"{error.ename}: {_first_line(error.evalue)}" if error.evalue else str(error.ename),
            line=line,
            source_line=lines[line - 1].strip() if line and line <= len(lines) else "",
            exception=error.ename,
            traceback=traceback,
        )

    def unfinished(self) -> Failure | None:
        """A cell that calls ``sys.exit(0)`` ends the notebook early, and papermill calls that a success."""
        expected = sum(bool(cell.cell_type == "code" and cell.source.strip()) for cell in self.source.cells)  # type: ignore[union-attr]
        if len(self.times) >= expected:
            return None
        return self.fail(
            "exception", f"SystemExit: {expected - len(self.times)} cells were never run", exception="SystemExit"
        )


def grade_id(cell: nbformat.NotebookNode | None) -> str | None:
    return cell.metadata.get("nbgrader", {}).get("grade_id") if cell is not None else None


def plain(text: str) -> str:
    """``text`` without terminal colours."""
    return _ANSI.sub("", text)


def _died(watch: _Watch, error: Exception, job: Job, out_of_memory: bool) -> Failure:
    process = watch.process
    code = process.poll() if process is not None else None
    said = _tail(job.log)
    if isinstance(error, RuntimeError) and not isinstance(error, DeadKernelError) and code is None:
        return watch.fail("kernel died", f"the kernel did not start: {_first_line(error)}", traceback=said)
    if code == -9 and out_of_memory:
        return watch.fail("out of memory", "the kernel was killed for lack of memory; see its peak", traceback=said)
    return watch.fail("kernel died", f"the kernel died: {_exit_text(code)}", traceback=said)


def _exit_text(code: int | None) -> str:
    if code is None:
        return "it does not answer"
    if code >= 0:
        return f"it exited with code {code}"
    return f"it was ended by {signal.Signals(-code).name}"


def _tail(log: Path) -> str:
    try:
        lines = plain(log.read_text(errors="replace")).splitlines()
    except OSError:
        return ""
    return "\n".join(line for line in lines[-LOG_TAIL_LINES:] if line.strip())


def _has_parameters(notebook: nbformat.NotebookNode) -> bool:
    return any("parameters" in cell.metadata.get("tags", []) for cell in notebook.cells)


def _install_line(kernel: str) -> str:
    return f"python -m ipykernel install --sys-prefix --name {kernel}"


def _first_line(error: object) -> str:
    lines = plain(str(error)).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _redirect_output(log: Path) -> None:
    """Send what the kernel prints past IPython, a crash's last words for one, to ``log``, not into the progress bar."""
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(target, 1)
    os.dup2(target, 2)
    os.close(target)
