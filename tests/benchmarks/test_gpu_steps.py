"""Tests of the steps of the campaign without a GPU: their cases, and what they read from other tools' reports."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.gpu.cells import cuda_cells, lab_kernels, lab_path, read_cells, run_cells
from benchmarks.gpu.machine import machine
from benchmarks.gpu.plan import STEPS
from benchmarks.gpu.steps import labs, marks, sanitizer, speed
from tests.conftest import ROOT
from tests.cuda.stand_in_driver import REASON

# No Nsight Compute; the stand-in has no clock that stops a kernel, and no process of its own.
BEYOND_STAND_IN = {
    "tools", "endless kernel", "endless loop", "endless loop of one thread", "waits for another block",
    "process on the GPU is killed",
}  # fmt: skip


def test_cases_have_names_of_their_own_and_fit_in_their_step() -> None:
    """A case with a longer limit than its step would be begun and cut short in each call."""
    for step in STEPS:
        cases = importlib.import_module(f"benchmarks.gpu.steps.{step.name}").cases()
        names = [case.name for case in cases]
        assert len(set(names)) == len(names) > 0, step.name
        assert not any("\n" in name for name in names)
        assert max(case.seconds for case in cases) <= step.seconds, step.name
        assert step.workers == 1 or step.name not in ("speed", "clocks", "engine"), "cases that measure time run alone"


def test_graded_kernels_are_launched_on_the_gpu_by_every_door() -> None:
    """Each door writes the caller's arrays with the GPU's kernel, and the counters are the simulator's."""
    from benchmarks.gpu.steps.exercises import LaunchesOnGpu

    def fake(number: int) -> Any:
        def launch(out: list[int]) -> str:
            out.append(number)
            return f"by {number}"

        shapes: dict[Any, Any] = {(1, 32): launch}
        return SimpleNamespace(name="k", profile=shapes, check=shapes, shapes=shapes)

    gpu, simulator = fake(1), fake(2)
    kernel, out = LaunchesOnGpu(gpu.shapes, simulator), list[int]()
    kernel[1, 32](out)
    assert kernel.check[1, 32](out) == ()
    assert kernel.profile[1, 32](out) == "by 2"
    assert (kernel.name, out) == ("k", [1, 1, 1])


def test_labs_are_all_in_the_order() -> None:
    assert set(labs.ORDER) == labs.lab_names()


def test_ladder_launches_compute_the_whole_product() -> None:
    n = 256  # one tile of matmul_pipelined is 128 x 256
    A, B = (np.random.default_rng(seed).integers(-9, 10, (n, n)).astype(np.float32) for seed in (0, 1))
    for name, (lab, shape) in speed.LADDER.items():
        C = np.full((n, n), np.nan, np.float32)
        lab_kernels(lab, "simulator", name)[name][shape(n)](A, B, C, n, n, n)
        assert np.array_equal(C, A @ B), name
    assert {name for name, _ in speed.BARS} <= set(speed.LADDER)


def test_ragged_matmul_passes_interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton", reason="needs Triton, which has wheels for Linux; run: pip install triton")
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    found = speed.check_ragged_matmul(136, 264, 72, "cpu")
    assert found["ok"], found


def test_machine_is_described_without_its_name() -> None:
    import platform

    found = machine()
    assert found["python"] == platform.python_version()
    assert {"gpu", "driver", "torch", "triton", "most_clocks", "nvcc"} <= found.keys()
    assert platform.node() not in json.dumps({**found, "system": ""}) or len(platform.node()) < 4


# --- Cells of a lab --------------------------------------------------------------------------------------------------


def test_cells_are_those_that_jupytext_reads() -> None:
    """The campaign reads solutions itself, because a bare GPU machine has no jupytext."""
    jupytext = pytest.importorskip("jupytext", reason="needs jupytext as a second opinion")
    for lab in labs.ORDER:
        path = lab_path(lab)
        notebook = jupytext.read(path, fmt="py:percent")
        theirs = [
            cell.source
            for cell in notebook.cells
            if cell.cell_type == "code" and "install" not in cell.metadata.get("tags", []) and cell.source.strip()
        ]
        assert [cell.source for cell in read_cells(path)] == theirs, lab


def test_cells_go_on_behind_one_that_fails(tmp_path: Path) -> None:
    path = tmp_path / "lab.py"
    path.write_text(
        '# %% [markdown]\n# text\n\n# %% nbgrader={"grade_id": "first"}\nx = 1\n\n'
        "# %%\n# %load_ext mlsys_labkit\nprint(x)\nprint(y)\n\n# %%\ny = 2\nprint(y)\n"
    )
    first, second, third = run_cells(path)
    assert (first.cell.grade_id, first.cell.line, first.error) == ("first", 4, "")
    assert (second.error, second.output) == ("NameError: name 'y' is not defined", "1\n")
    assert third.output == "2\n"


def test_cuda_cells_have_their_options_and_their_source() -> None:
    found = dict(cuda_cells(lab_path("lab04")))
    assert "matmul_tiled matmul_tiled<16>" in found
    assert all("__global__" in source for source in found.values())
    assert "    // ### BEGIN SOLUTION\n" in found["matmul_tiled matmul_tiled<16>"]


# --- Reports of other tools ------------------------------------------------------------------------------------------


def test_sanitizer_reports_are_read() -> None:
    memcheck = (
        "========= COMPUTE-SANITIZER\n========= Invalid __global__ write of size 4 bytes\n"
        "=========     at k(float *)+0x60 in /tmp/a.cu:12\n========= ERROR SUMMARY: 28 errors\n"
    )
    assert sanitizer.read_report(memcheck) == {
        "errors": 28, "kinds": ["Invalid __global__ write of size 4 bytes"], "lines": [12],
    }  # fmt: skip
    assert sanitizer.read_report("========= RACECHECK SUMMARY: 0 hazards displayed\n")["errors"] == 0
    assert sanitizer.read_report("no such tool") == {"errors": None, "kinds": [], "lines": [], "said": "no such tool"}


def test_marks_of_a_proof_are_named_by_task_and_answer() -> None:
    wrong = {"name": "slip", "earned": 2.0}
    proof = {"tasks": [{"name": "pool", "solution": 9.0, "unsolved": 0.0, "wrong": [wrong]}]}
    assert marks.marks(proof) == {"pool.solution": 9.0, "pool.unsolved": 0.0, "pool.slip": 2.0}


def test_lines_of_the_section_for_a_gpu_are_kept() -> None:
    def code(text: str) -> dict[str, Any]:
        return {"cell_type": "code", "source": "", "outputs": [{"text": [text]}]}

    heading = {"cell_type": "markdown", "source": ["## On your GPU\n", "text"]}
    after = {"cell_type": "markdown", "source": "## Before you hand in"}
    cells = [code("no"), heading, code("softmax 31 us\nGELU"), after, code("no")]
    assert labs.printed({"cells": cells}) == ["softmax 31 us", "GELU"]


# --- The whole campaign ----------------------------------------------------------------------------------------------


@pytest.mark.soak
@pytest.mark.skipif(bool(REASON), reason=REASON or "a real GPU")
def test_whole_campaign_runs_over_the_stand_in(tmp_path: Path) -> None:
    """Run every case of every step: what needs torch on a GPU says so, and nothing else is bad."""
    from benchmarks.gpu.__main__ import main

    assert main(["--stand-in", "--out", str(tmp_path), "--budget", "3000"]) == 0
    for step in STEPS:
        record = json.loads((tmp_path / f"{step.name}.json").read_text())
        assert record["finished"], step.name
        bad = {name: case for name, case in record["cases"].items() if case["ok"] is False}
        assert set(bad) <= BEYOND_STAND_IN, bad
