"""The body of one worker process, which executes one notebook and ends with it."""

from __future__ import annotations

import logging
import os
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

from mlsys_grading import processes
from mlsys_grading.report.lab_page import write_page
from mlsys_grading.report.result import Failure, NotebookResult
from mlsys_grading.run.job import NotebookJob
from mlsys_grading.run.watch import Watch, first_line, plain

START_SECONDS = 60
LOG_TAIL_LINES = 20


def work(job: NotebookJob, environment: dict[str, str], events: Connection) -> None:
    """Execute ``job``; send ``("cell", number, grade_id, done)`` at each code cell, ``("done", result)`` at the end."""
    processes.own_descendants()
    processes.end_with_asker()
    os.environ.clear()
    os.environ.update(environment)
    _redirect_output(job.log)
    logging.getLogger("papermill").setLevel(logging.CRITICAL)  # the log is for the kernel's output
    try:
        result = write_page(job.page, job.executed, job.notebook, run_notebook(job, events.send))
        events.send(("done", result))
        events.close()
    finally:
        processes.end_descendants()
        # Not sys.exit: half-open sockets to a dead kernel would keep the interpreter from ending.
        os._exit(0)


def run_notebook(job: NotebookJob, tell: Callable[[tuple[Any, ...]], None]) -> NotebookResult:
    """Execute the notebook of ``job`` in this process's environment; every way to fail becomes a :class:`Failure`."""
    started = time.monotonic()
    watch = Watch(tell)
    failure = _execute(job, watch)
    ran = {"cells": tuple(watch.times), "peak_bytes": watch.peak_bytes or None, "failure": failure}
    return job.result("failed" if failure else "passed", seconds=time.monotonic() - started, **ran)


def _execute(job: NotebookJob, watch: Watch) -> Failure | None:
    try:
        notebook = nbformat.read(job.notebook, as_version=4)  # type: ignore[no-untyped-call]
        nbformat.validate(notebook)
    except OSError as error:
        return Failure("unreadable", f"cannot read {job.notebook}: {error.strerror}")
    except Exception as error:  # a file that is no notebook can break any layer of the reader
        return Failure("unreadable", f"{job.notebook.name} is not a valid notebook: {first_line(error)}")
    kernel = notebook.metadata.get("kernelspec", {}).get("name", "python3")
    manager = AsyncKernelManager(kernel_name=kernel, transport="ipc", connection_file=str(job.sockets / "k.json"))
    watch.follow(notebook, manager)
    oom_kills = processes.oom_kills()
    try:
        _ = manager.kernel_spec  # raises for a missing kernel before anything starts
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
            km=manager,
            store_widget_state=False,
            on_cell_start=watch.start,
            on_cell_executed=watch.executed,
        )
    except NoSuchKernel as error:
        install = f"python -m ipykernel install --sys-prefix --name {error.name}"
        return Failure("set-up", f"kernel {error.name!r} is not installed; run: {install}")
    except PapermillExecutionError as error:
        return watch.locate(error)
    except CellTimeoutError:
        return watch.fail("cell timeout", f"cell still running after {job.cell_seconds:g} s (--timeout-cell)")
    except (DeadKernelError, RuntimeError) as error:
        return _died(watch, error, job, processes.oom_kills() > oom_kills)
    except OSError as error:
        return watch.fail("set-up", f"{error.strerror or error}: {error.filename or job.executed}")
    return watch.unfinished()


def _died(watch: Watch, error: Exception, job: NotebookJob, out_of_memory: bool) -> Failure:
    process = watch.process
    code = process.poll() if process is not None else None
    said = _tail(job.log)
    if isinstance(error, RuntimeError) and not isinstance(error, DeadKernelError) and code is None:
        return watch.fail("kernel died", f"the kernel did not start: {first_line(error)}", traceback=said)
    if code == -9 and out_of_memory:
        return watch.fail("out of memory", "the kernel was killed for lack of memory; see its peak", traceback=said)
    return watch.fail("kernel died", f"the kernel died: {_exit_text(code)}", traceback=said)


def _exit_text(code: int | None) -> str:
    if code is None:
        return "it does not answer"
    if code >= 0:
        return f"it exited with code {code}"
    hint = ", as the out-of-memory killer does" if code == -signal.SIGKILL else ""
    return f"it was ended by {signal.Signals(-code).name}{hint}"


def _tail(log: Path) -> str:
    try:
        lines = plain(log.read_text(errors="replace")).splitlines()
    except OSError:
        return ""
    return "\n".join(line for line in lines[-LOG_TAIL_LINES:] if line.strip())


def _has_parameters(notebook: nbformat.NotebookNode) -> bool:
    return any("parameters" in cell.metadata.get("tags", []) for cell in notebook.cells)


def _redirect_output(log: Path) -> None:
    """Send output that bypasses IPython, such as a crash's last lines, to ``log`` and not into the progress bar."""
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(target, 1)
    os.dup2(target, 2)
    os.close(target)
