"""The engine with workers that fail, and the inputs that a job's name depends on; no server is needed."""

from __future__ import annotations

import io
import itertools
import json
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mlsys_grading.files import write_files
from mlsys_grading.grade import work as work_module
from mlsys_grading.grade.engine import GradingEngine, open_engine
from mlsys_grading.grade.job import Bounds, GradingJob
from mlsys_grading.grade.modules import modules_of
from mlsys_grading.grade.progress import GradingProgress
from mlsys_grading.grade.store import Store
from mlsys_grading.result import CellMark, Result
from mlsys_grading.sandbox.limits import SandboxLimits
from mlsys_grading.time_limits import TimeLimits
from mlsys_labkit.cuda.cache import Cache
from mlsys_labkit.errors import LabkitError

CELLS = [{"cell_type": "code", "source": "x = 1", "metadata": {"nbgrader": {"grade_id": "f", "solution": True}}}]


def job(student: str = "ada", **changes: Any) -> GradingJob:
    given = {"lab": "lab91", "source": CELLS, "submission": CELLS, "contract": {}, "modules": (), "bounds": Bounds()}
    return GradingJob.of(student=student, **{**given, **changes})


def answer(text: str) -> str:
    found = GradingJob.from_json(text)
    mark = CellMark("f_test", 2.0, 2.0)
    return json.dumps({"result": Result(found.name, found.lab, found.student, (mark,)).to_json(), "contract": {}})


def die(text: str) -> str:
    if GradingJob.from_json(text).student == "bob":
        os._exit(1)
    return answer(text)


class Failing:
    """Work that fails for some students, a number of times."""

    def __init__(self, fails: dict[str, int], how: Callable[[GradingJob], str]) -> None:
        self.fails, self.how = Counter(fails), how
        self.tries: Counter[str] = Counter()
        self.lock = threading.Lock()

    def __call__(self, text: str) -> str:
        found = GradingJob.from_json(text)
        with self.lock:
            self.tries[found.student] += 1
            failing = self.tries[found.student] <= self.fails[found.student]
        return self.how(found) if failing else answer(text)


def raising(_: GradingJob) -> str:
    raise ConnectionResetError("the worker is gone")


def telling(found: GradingJob) -> str:
    return json.dumps({"result": work_module.infrastructure(found, "no\nroom").to_json(), "contract": None})


@pytest.mark.parametrize("how", [raising, telling, lambda _: "no JSON", lambda _: '{"result": "{}"}'])
def test_failed_job_is_retried_once_and_then_reported(how: Callable[[GradingJob], str]) -> None:
    work = Failing({"bob": 1, "cyd": 2, "dan": 99}, how)
    with ThreadPoolExecutor(2) as executor:
        done = [
            each.result
            for each in GradingEngine(executor, 2, work).run(job(name) for name in ("ada", "bob", "cyd", "dan"))
        ]
    assert {each.student: each.status for each in done} == {
        "ada": "graded",
        "bob": "graded",
        "cyd": "infrastructure",
        "dan": "infrastructure",
    }
    assert work.tries == {"ada": 1, "bob": 2, "cyd": 2, "dan": 2}
    apart = next(each for each in done if each.student == "dan")
    assert apart.marks == ()
    assert apart.why
    assert "\n" not in apart.why


def test_any_executor_runs_jobs_and_a_broken_one_is_an_error() -> None:
    with ProcessPoolExecutor(2, mp_context=get_context("forkserver")) as executor:
        done = [each.result for each in GradingEngine(executor, 2, answer).run(job(name) for name in ("ada", "bob"))]
        assert sorted(each.student for each in done if each.status == "graded") == ["ada", "bob"]
        with pytest.raises(LabkitError, match="takes no more jobs"):
            list(GradingEngine(executor, 2, die).run([job("bob")]))


def test_jobs_are_read_as_there_is_room() -> None:
    read = 0

    def jobs() -> Iterator[GradingJob]:
        nonlocal read
        for number in range(50):
            read += 1
            yield job(f"s{number}")

    with ThreadPoolExecutor(2) as executor:
        for at, _ in enumerate(GradingEngine(executor, 2, answer).run(jobs())):
            assert read <= at + 1 + 2 * 2 + 2 * 2, "what is done, what is under way, and what has just been done"
    assert read == 50


def test_a_jobs_name_depends_on_all_that_marks_depend_on_and_on_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    other = [CELLS[0] | {"source": "x = 2"}]
    name = job().name
    assert job("bob").name == name, "equal work, equal marks"
    assert job(source=[CELLS[0] | {"outputs": [1], "execution_count": 7}]).name == name
    assert job(source=[CELLS[0] | {"source": ["x ", "= 1"]}]).name == name, "as nbformat may write it"
    different = {
        job(submission=other).name,
        job(submission=[CELLS[0] | {"attachments": {"a.png": {"image/png": "AA"}}}]).name,
        job(source=other).name,
        job(lab="lab92").name,
        job(bounds=Bounds(sandbox=False)).name,
        job(bounds=Bounds(limits=SandboxLimits(memory_bytes=1 << 30))).name,
        job(bounds=Bounds(time_limits=TimeLimits(1, 2, 3))).name,
    }
    monkeypatch.setattr("mlsys_grading.grade.job._code_digest", lambda: "other graders")
    different.add(job().name)
    assert len(different | {name}) == 9


@given(
    st.lists(st.fixed_dictionaries({"cell_type": st.just("code"), "source": st.text(), "metadata": st.just({})})),
    st.one_of(st.none(), st.dictionaries(st.text(), st.lists(st.text()))),
)
def test_jobs_survive_json(cells: list[dict[str, Any]], contract: dict[str, list[str]] | None) -> None:
    made = job(submission=cells, contract=contract, modules=("a", "b"))
    assert GradingJob.from_json(made.to_json()) == made


def test_store_ignores_partial_files_of_a_killed_grader(tmp_path: Path) -> None:
    store, result = Store(tmp_path), Result("job1", "lab91", "ada", (CellMark("f", 1.0, 2.0),))
    assert store.result("lab91", "ada") is None
    store.put(result)
    assert store.result("lab91", "ada") == result
    assert not store.is_written(result, "")
    write_files(store.written_note(result, ""))
    assert store.is_written(result, "")
    assert not store.is_written(result, "2030-01-01 00:00:00 UTC"), "a later time may cost points"
    assert not store.is_written(replace(result, job="job2"), "")
    for path in tmp_path.rglob("*.json"):
        path.write_text(path.read_text()[:-5])
    assert store.result("lab91", "ada") is None
    assert not store.is_written(result, "")
    store.put_contract("lab91", "job1", {"f": ["returns itself"]})
    assert store.contract("lab91", "job1") == {"f": ["returns itself"]}
    assert store.contract("lab91", "job2") is None


def test_modules_are_read_off_magics_too_and_broken_cells_are_passed_over() -> None:
    cells = [
        {"cell_type": "code", "source": "%load_ext mlsys_labkit.cuda\n!ls"},
        {"cell_type": "code", "source": ["def broken(:\n"]},
        {"cell_type": "markdown", "source": "import nothing"},
        {"cell_type": "code", "source": "from plotly import graph_objects as go"},
    ]
    found = modules_of(cells)
    assert {"mlsys_labkit.cuda", "plotly", "plotly.graph_objects"} <= set(found)
    assert "nothing" not in found


class Interrupt(BaseException):
    """The exception of a Ctrl-C."""


@pytest.mark.parametrize("moment", range(40))
def test_no_thread_waits_for_ever_after_an_interrupt(moment: int) -> None:
    """A Ctrl-C comes at one of the moments of the engine's loop; each thread still hands in its result, and ends."""
    over, events = threading.Event(), itertools.count()
    is_waiting = False

    def tick(running: int) -> None:
        nonlocal is_waiting
        is_waiting = True

    def trace(*_: object) -> object:
        if is_waiting and next(events) == moment:
            raise Interrupt
        return trace

    executor = ThreadPoolExecutor(2)
    engine = GradingEngine(executor, 2, lambda text: answer(text) if over.wait() else "")
    before = sys.gettrace()
    sys.settrace(trace)  # called at each line of Python that this thread runs
    try:
        with pytest.raises(Interrupt):
            list(engine.run((job(f"s{at}") for at in range(4)), tick))
    finally:
        sys.settrace(before)
    over.set()
    ending = threading.Thread(target=executor.shutdown, daemon=True)
    ending.start()
    ending.join(60)
    assert not ending.is_alive()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_bar_shows_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("mlsys_grading.grade.progress.time.monotonic", lambda: now[0])
    screen = Terminal()
    progress = GradingProgress(screen, 10)
    assert progress.eta_seconds() is None
    progress.advance(graded=False)
    assert progress.eta_seconds() is None, "what was skipped says nothing of the pace"
    now[0] = 110.0
    progress.advance("ada  5/5")
    assert progress.eta_seconds() == pytest.approx(80.0)
    assert "2/10" in screen.getvalue()
    assert "about 1:20 left" in screen.getvalue()
    progress.close()
    assert screen.getvalue().endswith("\r\x1b[K")


def test_lent_files_come_first_and_are_only_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lent" / "headers-1").mkdir(parents=True)
    monkeypatch.setenv("LABKIT_CUDA_LENT", str(tmp_path / "lent"))
    cache = Cache(tmp_path / "own")
    assert cache.fetch("headers-1", pytest.fail) == tmp_path / "lent" / "headers-1"
    made = cache.fetch("headers-2", lambda folder: (folder / "x").touch())
    assert made == tmp_path / "own" / "headers-2"
    assert [path.name for path in (tmp_path / "lent").iterdir()] == ["headers-1"]


@pytest.mark.parametrize("name", ["", "dask", "dask:", "slurm", "local:4"])
def test_invalid_engine_is_refused(name: str) -> None:
    with pytest.raises(LabkitError, match="expected local, dask:ADDRESS"), open_engine(name, 1):
        pass
