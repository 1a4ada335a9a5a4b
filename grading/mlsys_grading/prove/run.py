"""The proving process as its parent sees it: started, followed, and its results judged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mlsys_grading import processes
from mlsys_grading.build.python import imported_names, parse
from mlsys_grading.files import write_atomic
from mlsys_grading.lab import Lab
from mlsys_grading.prove.plan import ProofPlan, job_names, plan_lab
from mlsys_grading.prove.verdict import LabProof, judge
from mlsys_grading.scratch import scratch_folder
from mlsys_grading.time_limits import PROVED_CELL_SECONDS
from mlsys_labkit.errors import LabkitError

MEMORY_BYTES = 4 * 1024**3

Observer = Callable[[int, int, str], None]  # jobs done, jobs in all, the job just done


def prove(
    labs: Sequence[Lab],
    jobs: int,
    cell_seconds: float = PROVED_CELL_SECONDS,
    memory_bytes: int = MEMORY_BYTES,
    observe: Observer = lambda done, total, job: None,
) -> list[LabProof]:
    """Run solutions, stubs and wrong answers of ``labs``, ``jobs`` workers at a time, and judge them.

    A cell may take ``cell_seconds``; a worker may hold ``memory_bytes`` of its own data. Nothing that a cell started is
    left running, also after Ctrl-C. Raises LabkitError if the clean process cannot start.
    """
    with scratch_folder("labkit") as scratch:
        plan = _plan(labs, scratch, jobs, cell_seconds, memory_bytes)
        results = _run(plan, scratch, observe)
    return [judge(lab, results) for lab in labs]


def _plan(labs: Sequence[Lab], scratch: Path, jobs: int, cell_seconds: float, memory_bytes: int) -> ProofPlan:
    plans = []
    for lab in labs:
        cwd = scratch / "labs" / lab.name
        cwd.mkdir(parents=True)
        lab.copy_data(cwd)
        plans.append(plan_lab(lab, cwd))
    results = scratch / "results"
    results.mkdir()
    return ProofPlan(str(results), plans, _modules(labs), max(1, jobs), cell_seconds, memory_bytes)


def _modules(labs: Sequence[Lab]) -> list[str]:
    """Return the modules to import before the forks: those that the labs import."""
    trees = [parse(cell.source) for lab in labs for cell in lab.cells if cell.kind == "code"]
    tops = {name.partition(".")[0] for name in imported_names(trees).values()}
    wanted = {name for name in imported_names(trees).values() if name.islower()} | tops
    return sorted(wanted - {"__future__"})


def _run(plan: ProofPlan, scratch: Path, observe: Observer) -> Mapping[str, Any]:
    write_atomic(scratch / "plan.json", json.dumps(asdict(plan)))
    total, done = len(job_names(plan)), 0
    observe(0, total, "")
    log = scratch / "server.log"
    with log.open("wb") as errors:
        server = subprocess.Popen(
            [sys.executable, "-m", "mlsys_grading.prove.server", str(scratch / "plan.json")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=_environment(scratch),
            start_new_session=True,  # Ctrl-C is ours to handle; the server's tree is then ended as a whole
            text=True,
        )
        try:
            assert server.stdout is not None
            for line in server.stdout:
                job, _, problem = line.rstrip("\n").partition("\t")
                if problem:
                    raise LabkitError(f"{problem}; make room, or set TMPDIR to another place")
                done += 1
                observe(done, total, job)
            server.wait()
        finally:
            processes.kill_tree(server.pid)
            server.wait()
    results = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in Path(plan.results).glob("*.json")}
    if not results:
        said = log.read_text(errors="replace").strip().splitlines() or [f"exit code {server.returncode}"]
        raise LabkitError(f"the proving process ended before its first result ({said[-1]}); run: labkit doctor")
    return results


def _environment(scratch: Path) -> dict[str, str]:
    own = {
        "IPYTHONDIR": str(scratch / "ipython"),  # without a user's start-up files
        "NBGRADER_EXECUTION": "autograde",  # as nbgrader sets it
    }
    return {"MPLBACKEND": "Agg", **os.environ, **processes.thread_variables(1), **own}
