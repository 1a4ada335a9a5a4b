"""``labkit run``: choose, execute, report."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from mlsys_grading.arguments import root_of
from mlsys_grading.files import named
from mlsys_grading.lab import read_labs
from mlsys_grading.report import environment, roofline_figure, write
from mlsys_grading.report.clock import clock
from mlsys_grading.report.result import NotebookResult, RunResult
from mlsys_grading.run import pool
from mlsys_grading.run.job import NotebookJob
from mlsys_grading.run.progress import RunProgress
from mlsys_grading.run.sources import NotebookSource, from_folder, from_labs, kit_digest
from mlsys_grading.scratch import scratch_folder

# The path of a Unix socket has room for 103 bytes on macOS, and ours end in /labkit-00000000.scratch/00000000/k-ipc-1.
_LONGEST_PLACE = 60


def run_verb(arguments: Namespace) -> int:
    """Execute the labs that ``arguments`` name, write the report, and return the exit code.

    Raises:
        LabkitError: the run could not start.
        KeyboardInterrupt: Ctrl-C, after the report of what was finished has been written.
    """
    out = (arguments.out or _default_out(arguments)).resolve()
    with write.staging(out) as stage, scratch_folder("labkit", _place_for_sockets()) as scratch:
        sources = _sources(arguments, scratch)
        run = _execute(arguments, sources, stage, scratch, before=write.read_notebooks(out), out=out)
        figure, caption = roofline_figure.draw(
            measure=not (arguments.no_roofline or run.interrupted), smoke=arguments.smoke
        )
        with named(out):
            write.fill(stage, run, figure, caption)
            write.publish(stage, out)
    page = _shown(out / "index.html")
    print(f"{run.count('passed')} of {len(run.notebooks)} passed in {clock(run.seconds)}; report: {page}")
    if run.interrupted:
        raise KeyboardInterrupt
    return 0 if run.passed else 1


def _execute(
    arguments: Namespace,
    sources: Sequence[NotebookSource],
    stage: Path,
    scratch: Path,
    before: dict[str, NotebookResult],
    out: Path,
) -> RunResult:
    from mlsys_labkit._base.limits import usable_cores

    started, clock_started = datetime.now(UTC).astimezone(), time.monotonic()
    machine = environment.machine()
    kit = kit_digest()
    prints = {
        source.name: sha256(f"{source.digest} {kit} {arguments.smoke} {arguments.seed}".encode()).hexdigest()
        for source in sources
    }
    kept: list[NotebookResult] = []
    if arguments.resume:
        known = [before[source.name] for source in sources if source.name in before]
        kept = [
            replace(notebook, resumed=True, begun_seconds=0.0)
            for notebook in known
            if notebook.status == "passed" and notebook.fingerprint == prints[notebook.name]
        ]
        write.keep_pages(out, stage, kept)
    rest = [source for source in sources if source.name not in {notebook.name for notebook in kept}]

    cores = max(1, int(usable_cores()))
    at_once = max(1, min(arguments.jobs or cores, len(rest)))
    threads = max(1, cores // at_once)
    weights = _weights(rest, before)
    # Longest first: a long notebook that starts last would leave the other cores idle at the end.
    rest.sort(key=lambda source: -weights[source.name])
    jobs = [_job(arguments, source, stage, scratch, threads, prints[source.name]) for source in rest]
    progress = RunProgress(sys.stdout, weights, {source.name: source.code_cells for source in rest})
    if kept:
        print(f"{len(kept)} unchanged since they passed; {len(rest)} to run", flush=True)
    try:
        finished, interrupted = pool.execute(jobs, at_once, arguments.timeout_notebook, progress)
    finally:
        progress.close()
    finished = [_with_page(result, jobs) for result in finished]
    results = {result.name: result for result in [*kept, *finished]}
    return RunResult(
        notebooks=tuple(results.get(source.name) or _not_run(source) for source in sources),
        started=started.isoformat(timespec="seconds"),
        seconds=time.monotonic() - clock_started,
        jobs=at_once,
        threads_per_kernel=threads,
        smoke=arguments.smoke,
        seed=arguments.seed,
        interrupted=interrupted,
        machine=machine,
        versions=environment.versions(),
    )


def _sources(arguments: Namespace, scratch: Path) -> list[NotebookSource]:
    if arguments.notebooks is not None:
        return from_folder(arguments.notebooks, arguments.labs)
    return from_labs(read_labs(root_of(arguments), arguments.labs), scratch)


def _weights(sources: Sequence[NotebookSource], before: dict[str, NotebookResult]) -> dict[str, float]:
    """Return the expected seconds of each notebook: the last report's, or a guess from its number of cells."""
    known = {source.name: before[source.name].seconds for source in sources if source.name in before}
    cells = sum(source.code_cells for source in sources if source.name in known)
    pace = sum(known.values()) / cells if cells else 1.0
    return {source.name: known.get(source.name, max(source.code_cells, 1) * pace) for source in sources}


def _job(
    arguments: Namespace, source: NotebookSource, stage: Path, scratch: Path, threads: int, fingerprint: str
) -> NotebookJob:
    sockets = Path(tempfile.mkdtemp(dir=scratch, prefix=""))
    return NotebookJob(
        name=source.name,
        title=source.title,
        notebook=source.notebook,
        executed=stage / "notebooks" / f"{source.name}.ipynb",
        page=stage / "notebooks" / f"{source.name}.html",
        log=sockets / "log.txt",
        cwd=source.cwd,
        sockets=sockets,
        fingerprint=fingerprint,
        smoke=arguments.smoke,
        seed=arguments.seed,
        cell_seconds=arguments.timeout_cell,
        threads=threads,
        cells_total=source.code_cells,
    )


def _with_page(result: NotebookResult, jobs: Sequence[NotebookJob]) -> NotebookResult:
    """Write the page that a killed worker could not, from the notebook that papermill had saved."""
    if result.page is not None or result.status == "interrupted":
        return result
    from mlsys_grading.report.lab_page import write_page

    job = next(job for job in jobs if job.name == result.name)
    return write_page(job.page, job.executed, job.notebook, result)


def _not_run(source: NotebookSource) -> NotebookResult:
    return NotebookResult(source.name, source.title, "not run", "", cells_total=source.code_cells)


def _default_out(arguments: Namespace) -> Path:
    root = Path.cwd() if arguments.notebooks is not None else root_of(arguments)
    return root / "build" / "report"


def _place_for_sockets() -> Path:
    place = tempfile.gettempdir()
    return Path(place if len(os.fsencode(place)) <= _LONGEST_PLACE else "/tmp")


def _shown(path: Path) -> str:
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
