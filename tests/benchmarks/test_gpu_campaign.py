"""Tests of the campaign for a GPU machine: ends of cases, its budget, its resumption, and a run over a stand-in."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu.__main__ import main
from benchmarks.gpu.campaign import Campaign, Settings
from benchmarks.gpu.plan import STEPS, Step, chosen_cases, chosen_steps
from mlsys_labkit.cuda.nvidia import nvrtc
from tests.conftest import ROOT
from tests.cuda.stand_in_driver import REASON

ENDINGS = Step("endings", 100, 1, "cases that end in every way", module="tests.benchmarks.ending_cases")
MACHINE = {"gpu": "none", "driver": "", "python": "3", "torch": "2", "triton": "3"}
NEEDS_STAND_IN = pytest.mark.skipif(
    bool(REASON) or not nvrtc.available(),
    reason=REASON or "needs NVIDIA's run-time compiler; run: pip install 'mlsys-labkit[cuda]'",
)


def campaign(out: Path, step: Step = ENDINGS, machine: dict[str, Any] = MACHINE, **settings: Any) -> Campaign:
    made = Campaign(
        Settings(**{"out": out, "before": (), "python": sys.executable, "budget": 100.0} | settings), machine
    )
    made.run([step])
    return made


def outcomes(folder: Path, step: str = "endings") -> dict[str, Any]:
    cases: dict[str, Any] = json.loads((folder / f"{step}.json").read_text())["cases"]
    return cases


def untimed(cases: dict[str, Any]) -> dict[str, Any]:
    """Drop each outcome's time, which differs between two runs of one case."""
    return {name: {key: value for key, value in found.items() if key != "seconds"} for name, found in cases.items()}


# --- One case never costs another its outcome ------------------------------------------------------------------------


def test_each_end_of_a_case_is_its_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HANGING", str(tmp_path / "hanging"))
    ran = campaign(tmp_path)
    found = outcomes(tmp_path)
    names = ("passes", "raises", "dies", "prints", "hangs", "lacks", "alone", "last")
    assert [found[name]["ok"] for name in names] == [True, False, False, True, False, None, True, True]
    assert (found["raises"]["error"], found["raises"]["more"]) == (
        "RuntimeError: first line of the error",
        ["second line"],
    )
    assert "ending_cases.py" in found["raises"]["at"][0]
    assert found["dies"]["error"] == "the process ended with SIGSEGV"
    assert "the last words of the process" in found["dies"]["more"]
    assert found["hangs"]["error"] == "still running after 1 s; its process was ended"
    assert found["lacks"]["not_measured"] == "torch sees no GPU"
    assert len({found[name]["process"] for name in ("passes", "alone", "last")}) == 3
    assert ran.bad == ["endings/raises", "endings/dies", "endings/hangs"]
    assert ran.left == []
    with pytest.raises(ProcessLookupError):  # ended with the worker that started it
        _wait_for_end(int((tmp_path / "hanging").read_text()))
    said = capsys.readouterr().out
    assert "8/8" in said
    assert "eta" in said
    assert "not measured: torch sees no GPU" in said
    assert "8 of 8 cases, 3 bad, 1 not measured" in said
    assert json.loads((tmp_path / "endings.json").read_text())["finished"]


def _wait_for_end(process: int) -> None:
    """Wait until a process is gone; then its id names none. A test run as root sees a zombie of init for a moment."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        os.kill(process, 0)
        state = Path(f"/proc/{process}/stat")
        if state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z":
            raise ProcessLookupError
        time.sleep(0.05)


# --- Budget and resumption -------------------------------------------------------------------------------------------


def test_a_later_call_goes_on_behind_the_cases_that_have_run(tmp_path: Path) -> None:
    first = campaign(tmp_path / "a", replace(ENDINGS, cases=("passes", "raises")))
    assert not json.loads((tmp_path / "a/endings.json").read_text())["finished"]
    before = outcomes(tmp_path / "a")
    some = replace(ENDINGS, cases=("passes", "raises", "last"))
    campaign(tmp_path / "b", some, before=(tmp_path / "a",))
    after = outcomes(tmp_path / "b")
    assert first.left == []
    assert (after["passes"], after["raises"]) == (before["passes"], before["raises"])
    assert after["last"]["ok"]
    text = (tmp_path / "b/endings.json").read_text()
    (tmp_path / "b/endings.json").write_text(text.replace("first line of the error", "mended meanwhile"))
    campaign(tmp_path / "b", some, again=True)
    assert untimed(outcomes(tmp_path / "b")) == untimed(after)
    campaign(tmp_path / "b", some, machine=MACHINE | {"driver": "610.1"})
    assert outcomes(tmp_path / "b")["passes"]["process"] != before["passes"]["process"], "figures of another driver"


def test_a_finished_step_starts_no_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = {"step": "endings", "machine": MACHINE, "finished": True, "cases": {"passes": {"ok": True}}}
    (tmp_path / "endings.json").write_text(json.dumps(record))
    ran = campaign(tmp_path / "new", python="/nowhere/python", before=(tmp_path,))
    assert (ran.left, ran.bad) == ([], [])
    assert capsys.readouterr().out == "== endings: finished before, 1 cases\n"
    assert not (tmp_path / "new" / "endings.json").exists()


def test_a_step_that_cannot_start_is_bad_and_left_to_do(tmp_path: Path) -> None:
    ran = campaign(tmp_path, replace(ENDINGS, module="tests.benchmarks.no_such_step"))
    assert (ran.bad, ran.left) == (["endings/start"], ["endings"])
    assert "No module named 'tests.benchmarks.no_such_step'" in outcomes(tmp_path)["start"]["more"][-1]


def test_results_that_are_no_json_are_measured_again(tmp_path: Path) -> None:
    (tmp_path / "endings.json").write_text('{"cases": {"pas')
    campaign(tmp_path, replace(ENDINGS, cases=("passes",)))
    assert outcomes(tmp_path)["passes"]["ok"]


def test_a_spent_budget_begins_no_case(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran = campaign(tmp_path, budget=0.5)
    assert ran.left == ["endings"]
    assert not (tmp_path / "endings.json").exists()


def test_a_case_that_the_budget_cuts_short_has_no_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANGING", str(tmp_path / "hanging"))
    monkeypatch.setattr("benchmarks.gpu.campaign.LEAST_SECONDS", 0.0)
    monkeypatch.setattr(WorkerLimits, "seconds", 1000.0)
    monkeypatch.setattr("benchmarks.gpu.client.WorkerProcess.cases", WorkerLimits.listed)
    ran = campaign(tmp_path, replace(ENDINGS, cases=("hangs",)), budget=20.0)
    assert ran.left == ["endings"]
    assert outcomes(tmp_path) == {}


class WorkerLimits:
    """A worker's list of cases with other limits."""

    seconds = 1.0

    @staticmethod
    def listed(worker: Any, seconds: float) -> dict[str, Any]:
        limits = worker._reply(seconds)["cases"]
        worker.listed = True
        return {name: {**limit, "seconds": WorkerLimits.seconds} for name, limit in limits.items()}


def test_an_interrupted_call_keeps_outcomes_and_ends_its_workers(tmp_path: Path) -> None:
    code = (
        "import sys; from tests.benchmarks.test_gpu_campaign import *\n"
        "import benchmarks.gpu.__main__ as m; m.chosen_steps = lambda words: (ENDINGS,)\n"
        f"sys.exit(m.main(['--out', {str(tmp_path)!r}, 'endings']))"
    )
    hanging = tmp_path / "hanging"
    environment = os.environ | {"HANGING": str(hanging), "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-c", code], env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        path, deadline = tmp_path / "endings.json", time.monotonic() + 120
        while not (path.exists() and "raises" in path.read_text()) and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130, said
    assert "the next call goes on from here" in said
    assert said.splitlines()[-1].startswith("to do: endings")
    assert outcomes(tmp_path)["passes"]["ok"]


# --- The plan and the command line -----------------------------------------------------------------------------------


def test_steps_take_eight_minutes_at_most_and_the_first_two() -> None:
    assert max(step.seconds for step in STEPS) <= 480
    assert STEPS[0].name == "smoke"
    assert STEPS[0].seconds == 120


def test_words_choose_steps_in_the_order_of_the_plan() -> None:
    steps = chosen_steps(["kernels/reduce*", "smoke", "kernels/program*"])
    assert [step.name for step in steps] == ["smoke", "kernels"]
    assert chosen_cases(steps[1], ["reduce/a", "neural/b", "program/c"]) == ("reduce/a", "program/c")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["smok"], "gpu: there is no step 'smok'; there are: smoke, kernels, exercises"),
        (["--budget", "soon", "smoke"], "'soon' is no number of seconds; give one such as 540"),
        (["--python", "/none/python", "smoke"], "gpu: [Errno 2] No such file or directory: '/none/python'"),
        (["--out", "/proc/none", "smoke"], "gpu: [Errno 2] No such file or directory: '/proc/none'"),
    ],
)
def test_bad_input_is_one_line(words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(["--out", str(tmp_path), *words])
    except SystemExit as stopped:  # argparse's own
        code = int(stopped.code or 0)
    assert code == 2
    assert said in capsys.readouterr().err.splitlines()[-1]


def test_a_pattern_without_a_case_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"step endings has no case like 'pases'; it has: passes, raises"):
        campaign(tmp_path, replace(ENDINGS, cases=("pases",)))


def test_dry_run_prints_the_plan_and_the_bytes_to_carry(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--dry-run"]) == 0
    said = capsys.readouterr().out
    assert all(step.answers in said for step in STEPS)
    assert "of 64.0 MiB" in said
    assert "travel" in said


# --- Over the driver in host memory ----------------------------------------------------------------------------------


@NEEDS_STAND_IN
def test_campaign_runs_kernels_and_a_fault_over_the_stand_in(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Costs 8 s of processor time: each worker imports the kit, and one imports torch."""
    steps = ["smoke/gpu/numpy", "smoke/gpu/printf", "smoke/fault/alone", "smoke/torch", "kernels/elementwise/add"]
    assert main(["--stand-in", "--out", str(tmp_path), *steps]) == 0
    smoke = outcomes(tmp_path, "smoke")
    assert outcomes(tmp_path, "kernels")["elementwise/add"]["ok"]
    assert smoke["gpu/numpy"]["ok"]
    assert smoke["gpu/printf"]["said"] == "thread 3 says 42\n"
    assert smoke["fault/alone"]["ok"], smoke["fault/alone"]
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in smoke["fault/alone"]["said"]
    assert smoke["torch"]["not_measured"] == "torch sees no GPU"
    record = json.loads((tmp_path / "smoke.json").read_text())
    assert record["machine"]["gpu"] == "stand-in in host memory"
    assert {"driver", "torch", "triton", "most_clocks", "python"} <= record["machine"].keys()
    assert "to do: nothing" in capfd.readouterr().out
