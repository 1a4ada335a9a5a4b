"""The clean process that everything forks from: ``python -m mlsys_grading.prove.server PLAN``.

It imports once what the labs import, runs no cell itself, and prints the name of each job as its result is complete or,
after a tab, why that cannot be written. For each lab it forks two workers: one runs the stubs, one the solution. At
each task the latter forks a branch for every wrong answer, so that a wrong answer costs its own cells. Should a cell
have started threads, a fork of it could hang; then the wrong answer is replayed from the clean process, at the price of
the cells before it.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

from mlsys_grading import processes
from mlsys_grading.files import write_atomic
from mlsys_grading.prove.forks import Message, Send, Slots, branch, threads_alive, wait_all
from mlsys_grading.prove.plan import SOLUTION, UNSOLVED, LabPlan, ProofPlan, WrongPlan, from_json, job_name
from mlsys_grading.shell import CellSource, Shell


def main() -> None:
    plan = from_json(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    processes.own_descendants()
    processes.end_with_parent()
    shell = Shell()  # before the imports: libraries check for a notebook at import
    _import(plan.modules)
    server = _Server(plan, shell)
    wait_all([pid for lab in plan.labs for pid in server.start(lab)])


def _import(modules: Iterable[str]) -> None:
    for name in modules:
        with contextlib.suppress(Exception):  # the cell that imports the module will report the error
            importlib.import_module(name)
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)  # a fork after a multi-threaded matmul hangs


class _Server:
    def __init__(self, plan: ProofPlan, shell: Shell) -> None:
        self._plan, self._shell = plan, shell
        self._slots = Slots(plan.jobs)

    def start(self, lab: LabPlan) -> list[int]:
        """Fork the two workers of a lab."""
        cells = [CellSource(**cell) for cell in lab.cells]
        stubs = [replace(cell, source=lab.stubs.get(str(cell.index), cell.source)) for cell in cells]

        def replay(message: Message) -> int:
            wrong = next(one for one in lab.wrong if one.job == message["replay"])
            return self._branch(wrong.job, lambda send: self._replay(lab, cells, wrong, send))

        return [
            self._branch(job_name(lab.name, SOLUTION), lambda send: self._run_solution(lab, cells, send), replay),
            self._branch(job_name(lab.name, UNSOLVED), lambda send: self._run_unsolved(lab, stubs, send)),
        ]

    def _run_solution(self, lab: LabPlan, cells: list[CellSource], send: Send) -> None:
        os.chdir(lab.cwd)
        for cell in cells:
            for wrong in (one for one in lab.wrong if one.index == cell.index):
                if threads_alive() == 1:
                    send({"branched": self._branch(wrong.job, partial(self._run, _with_wrong(cells, wrong)))})
                else:
                    send({"replay": wrong.job})
            self._run([cell], send)

    def _run_unsolved(self, lab: LabPlan, stubs: list[CellSource], send: Send) -> None:
        os.chdir(lab.cwd)
        self._run(stubs, send)

    def _replay(self, lab: LabPlan, cells: list[CellSource], wrong: WrongPlan, send: Send) -> None:
        os.chdir(lab.cwd)
        for cell in cells:
            if cell.index < wrong.index:
                send({"start": cell.name})
                self._shell.run(cell)
        self._run(_with_wrong(cells, wrong), send)

    def _run(self, cells: list[CellSource], send: Send) -> None:
        for cell in cells:
            send({"start": cell.name})
            send({"ran": self._shell.run(cell)})

    def _branch(self, job: str, work: Callable[[Send], None], fork_for: Callable[[Message], int] | None = None) -> int:
        finish = partial(self._deliver, job)
        return branch(work, finish, self._slots, self._plan.cell_seconds, self._plan.memory_bytes, fork_for)

    def _deliver(self, job: str, result: Message) -> None:
        said = job
        try:
            write_atomic(Path(self._plan.results) / f"{job}.json", json.dumps(result))
        except OSError as error:
            said += f"\t{error.strerror}: {error.filename}"
        os.write(1, f"{said}\n".encode())  # one short write: lines of several processes never mix


def _with_wrong(cells: list[CellSource], wrong: WrongPlan) -> list[CellSource]:
    """Return the cells from the wrong answer's, which it replaces, to the last that it needs."""
    rest = [cell for cell in cells if wrong.index <= cell.index <= wrong.last]
    return [replace(cell, source=wrong.source) if cell.index == wrong.index else cell for cell in rest]


if __name__ == "__main__":
    main()
