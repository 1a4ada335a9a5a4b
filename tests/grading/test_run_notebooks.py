"""``labkit run`` on real kernels: one run over notebooks that end in every way a notebook can."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from importlib.resources import files
from pathlib import Path

import jsonschema
import nbformat
import psutil
import pytest

from mlsys_grading import processes
from mlsys_grading.run import pool, worker
from mlsys_grading.run.job import NotebookJob
from mlsys_labkit._frontends.cli import main
from tests.grading.run_helpers import labkit, marked_processes, run_labkit, write_notebook

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="labkit run needs a Unix"),
    pytest.mark.places,  # each notebook starts a Jupyter kernel
]

BIG_BYTES = 300_000_000
# In a session of its own, and orphaned at once: neither process group nor parent leads from the kernel to it.
DAEMON = "import subprocess\nsubprocess.run(['sh', '-c', 'setsid sleep 600 &'])"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Run notebooks with every kind of ending; return (finished process, report folder, notebooks by name)."""
    folder = tmp_path_factory.mktemp("run")
    labs = folder / "labs"
    write_notebook(labs, "good", "a = 1", "assert a == 1\nprint('seed', seed, 'smoke', smoke)")
    write_notebook(
        labs, "raises", "def half(x):\n    y = x\n    return 1 / y", "a = 0\n\nhalf(a)  # the call", "never = 1"
    )
    write_notebook(labs, "syntax", "a = 1\nb = = 2")
    write_notebook(labs, "exits", "import os\nos._exit(3)")
    write_notebook(labs, "crashes", "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)")
    write_notebook(labs, "hangs", "import time\nwhile True:\n    time.sleep(1)")
    write_notebook(labs, "quits", "raise SystemExit(0)", "never = 1")
    write_notebook(labs, "big", f"import numpy as np\nx = np.ones({BIG_BYTES}, dtype=np.uint8)\nsize = x.nbytes\ndel x")
    child = f"x = b'1' * {BIG_BYTES}; import time; time.sleep(1)"
    write_notebook(labs, "forks", f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {child!r}])")
    gone = f"x = b'1' * {BIG_BYTES}\ndel x\nimport os, time\ntime.sleep(1)\nos._exit(0)"
    write_notebook(labs, "big_then_gone", gone)
    write_notebook(labs, "no_kernel", "a = 1", kernel="no-such-kernel")
    write_notebook(labs, "no_parameters", "assert 'smoke' not in globals()", parameters=False)
    (labs / "torn.ipynb").write_text('{"cells": [{"cell_type": "co')
    (labs / "no_notebook.ipynb").write_text('{"cells": 3}')
    out = folder / "report"
    process = run_labkit("--notebooks", labs, "--out", out, "--timeout-cell", 20, "--smoke", "--seed", 5, cwd=folder)
    report = json.loads((out / "report.json").read_text())
    return process, out, {notebook["name"]: notebook for notebook in report["notebooks"]}


def test_a_failure_makes_the_exit_code_1_and_the_rest_goes_on(run):
    process, _, notebooks = run
    assert process.returncode == 1, process.stderr
    assert {name for name, one in notebooks.items() if one["status"] == "passed"} == {
        "good",
        "big",
        "forks",
        "no_parameters",
    }
    assert len(notebooks) == 14
    assert "Traceback" not in process.stderr


def test_parameters_reach_the_notebook(run):
    executed = nbformat.read(run[1] / "notebooks" / "good.ipynb", as_version=4)
    assert executed.cells[-1].outputs[0].text == "seed 5 smoke True\n"
    assert "widgets" not in executed.metadata


def test_an_exception_is_located_to_cell_line_and_statement(run):
    failure = run[2]["raises"]["failure"]
    # Cells as an editor counts them: title 1, parameters 2, half 3, the call 4.
    assert (failure["kind"], failure["cell"], failure["grade_id"]) == ("exception", 4, "raises_1")
    assert (failure["line"], failure["source_line"]) == (3, "half(a)  # the call")
    assert failure["exception"] == "ZeroDivisionError"
    assert "return 1 / y" in failure["traceback"]
    assert "\x1b" not in failure["traceback"]
    assert "papermill" not in failure["traceback"]


def test_a_syntax_error_is_located(run):
    failure = run[2]["syntax"]["failure"]
    assert (failure["exception"], failure["cell"], failure["line"]) == ("SyntaxError", 3, 2)


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("exits", "kernel died", "exited with code 3"),
        ("crashes", "kernel died", "SIGSEGV"),
        ("hangs", "cell timeout", "after 20 s (--timeout-cell)"),
        ("quits", "exception", "SystemExit"),
    ],
)
def test_each_ending_is_named_and_located(run, name, kind, words):
    failure = run[2][name]["failure"]
    assert (failure["kind"], failure["cell"], failure["grade_id"]) == (kind, 3, f"{name}_0")
    assert words in failure["message"]


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("torn", "unreadable", "torn.ipynb is not a valid notebook"),
        ("no_notebook", "unreadable", "no_notebook.ipynb is not a valid notebook"),
        ("no_kernel", "set-up", "ipykernel install --sys-prefix --name no-such-kernel"),
    ],
)
def test_notebook_that_cannot_start_is_one_line(run, name, kind, words):
    failure = run[2][name]["failure"]
    assert (failure["kind"], failure["cell"]) == (kind, None)
    assert words in failure["message"]
    assert "\n" not in failure["message"]


def test_peak_memory_sees_a_short_peak_a_child_and_a_kernel_that_died(run):
    # An idle kernel is far below 150 MB, so that a peak near BIG_BYTES can only be the array's own.
    idle = run[2]["good"]["peak_bytes"]
    assert 20e6 < idle < 150e6
    for name in ("big", "forks", "big_then_gone"):
        assert BIG_BYTES < run[2][name]["peak_bytes"] < BIG_BYTES + 250e6


def test_every_notebook_has_a_page_and_every_code_cell_a_time(run):
    _, out, notebooks = run
    for name, notebook in notebooks.items():
        assert (out / notebook["page"]).is_file(), name
    assert [cell["cell"] for cell in notebooks["good"]["cells"]] == [2, 3, 4]
    assert notebooks["good"]["cells_total"] == 3
    assert notebooks["good"]["title"] == "The lab good"


def test_the_json_fits_its_schema(run):
    schema = json.loads((files("mlsys_grading.report") / "report.schema.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads((run[1] / "report.json").read_text()), schema)


def test_junit_has_one_case_a_notebook(run):
    suite = ElementTree.parse(run[1] / "junit.xml").getroot().find("testsuite")
    cases = {case.get("name"): case for case in suite.findall("testcase")}
    assert set(cases) == set(run[2])
    counts = {name: int(suite.get(name)) for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": 14, "failures": 7, "errors": 3, "skipped": 0}
    failure = cases["raises"].find("failure")
    assert failure.get("message") == "cell 4 (raises_1), line 3: ZeroDivisionError: division by zero"
    assert failure.get("type") == "ZeroDivisionError"
    assert "return 1 / y" in failure.text


def test_progress_without_a_terminal_is_one_line_a_notebook(run):
    lines = run[0].stdout.splitlines()
    assert len(lines) == 14 + 1
    assert "\x1b" not in run[0].stdout
    assert any("raises" in line and "cell 4 (raises_1), line 3" in line for line in lines)


def test_a_notebook_over_its_time_is_stopped_and_keeps_what_it_did(tmp_path, monkeypatch):
    write_notebook(tmp_path / "labs", "slow", "print('first')", "open('begun', 'w')\nimport time\ntime.sleep(600)")
    begun = tmp_path / "labs" / "begun"
    # The time limit ends within the second cell, however slow this machine is.
    monkeypatch.setattr(pool.Running, "seconds", property(lambda one: 1e6 * (one.cell == 4 and begun.exists())))
    monkeypatch.chdir(tmp_path)
    assert main(["run", "--notebooks", "labs", "--out", "out", "--timeout-notebook", "3", "--no-roofline"]) == 1
    [notebook] = json.loads((tmp_path / "out" / "report.json").read_text())["notebooks"]
    failure = notebook["failure"]
    assert (failure["kind"], failure["cell"], failure["grade_id"]) == ("notebook timeout", 4, "slow_1")
    assert "first" in (tmp_path / "out" / notebook["page"]).read_text()


@pytest.mark.parametrize(("kills", "kind"), [((7, 8), "out of memory"), ((7, 7), "kernel died")])
def test_a_kernel_that_the_system_killed_for_memory_is_told_from_other_kills(tmp_path, monkeypatch, kills, kind):
    notebook = write_notebook(tmp_path, "killed", "import os\nos.kill(os.getpid(), 9)")
    places = {"notebook": notebook, "executed": tmp_path / "done.ipynb", "page": tmp_path / "p", "log": tmp_path / "l"}
    counts = iter(kills)
    monkeypatch.setattr(processes, "oom_kills", lambda: next(counts))
    with tempfile.TemporaryDirectory() as sockets:
        job = NotebookJob("killed", "Killed", **places, cwd=tmp_path, sockets=Path(sockets), fingerprint="")
        failure = worker.run_notebook(job, lambda _: None).failure
    assert (failure.kind, failure.cell) == (kind, 3)


def test_resume_runs_what_failed_or_changed_and_keeps_the_rest(tmp_path):
    labs = tmp_path / "labs"
    write_notebook(labs, "same", "open('same.txt', 'a').write('x')")
    write_notebook(labs, "changes", "open('changes.txt', 'a').write('x')")
    write_notebook(labs, "fails", "open('fails.txt', 'a').write('x')\nassert False")
    for _ in range(2):
        run_labkit("--notebooks", labs, "--out", "out", "--resume", cwd=tmp_path)
        write_notebook(labs, "changes", "open('changes.txt', 'a').write('y')")
    counts = {path.stem: len(path.read_text()) for path in labs.glob("*.txt")}
    assert counts == {"same": 1, "changes": 2, "fails": 2}
    notebooks = {one["name"]: one for one in json.loads((tmp_path / "out" / "report.json").read_text())["notebooks"]}
    assert {name: one["resumed"] for name, one in notebooks.items()} == {"same": True, "changes": False, "fails": False}
    assert (tmp_path / "out" / "notebooks" / "same.html").is_file()
    # Changed parameters make every notebook run again.
    run_labkit("same", "--notebooks", labs, "--out", "out", "--resume", "--seed", 1, cwd=tmp_path)
    assert (labs / "same.txt").read_text() == "xx"


def test_threads_are_shared_out_and_sockets_are_files(tmp_path):
    source = "import os\nfrom ipykernel.kernelapp import IPKernelApp\napp = IPKernelApp.instance()\n"
    source += "print(os.environ['OMP_NUM_THREADS'], app.transport)"
    for name in ("one", "two"):
        write_notebook(tmp_path / "labs", name, source)
    run_labkit("--notebooks", "labs", "--out", "out", "--jobs", 2, cwd=tmp_path)
    executed = nbformat.read(tmp_path / "out" / "notebooks" / "two.ipynb", as_version=4)
    threads, transport = executed.cells[-1].outputs[0].text.split()
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert transport == "ipc"
    assert report["jobs"] == 2
    assert int(threads) == report["threads_per_kernel"] == max(1, int(report["machine"]["usable_cores"]) // 2)


def interrupt(tmp_path: Path, mark: str, labs: int, patience: float) -> tuple[int, str]:
    """Send Ctrl-C, as a terminal does (to the whole group), to a run with ``labs`` busy notebooks."""
    write_notebook(tmp_path / "labs", "a_quick", "print('done')")
    for number in range(labs):
        write_notebook(tmp_path / "labs", f"busy{number}", f"{DAEMON}\nopen('started{number}', 'w')\nwhile True: pass")
    command = [labkit(), "run", "--notebooks", "labs", "--out", "out", "--no-roofline", "--jobs", str(labs + 1)]
    environment = dict(os.environ) | {"LABKIT_TEST_MARK": mark}
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment,
        start_new_session=True,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    deadline = time.monotonic() + patience
    try:
        while len(list((tmp_path / "labs").glob("started*"))) < labs:
            assert time.monotonic() < deadline, "the notebooks never started"
            time.sleep(0.05)
        while "a_quick" not in process.stdout.readline():
            assert time.monotonic() < deadline, "the quick notebook never finished"
        os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=patience)
    finally:
        process.kill()  # a run that did not end ends its notebooks when it dies
    return process.returncode, output


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds left-over processes through /proc")
def test_ctrl_c_leaves_nothing_running_and_keeps_what_was_finished(tmp_path):
    mark = f"mark-{os.getpid()}-{tmp_path.name}"
    code, output = interrupt(tmp_path, mark, labs=2, patience=240)
    assert code == 130, output
    assert "Traceback" not in output
    assert "interrupted" in output.splitlines()[-1]
    deadline = time.monotonic() + 120
    while marked_processes(mark) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert marked_processes(mark) == []
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    states = {one["name"]: one["status"] for one in report["notebooks"]}
    assert states == {"a_quick": "passed", "busy0": "interrupted", "busy1": "interrupted"}
    assert report["interrupted"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["labs", "out"]


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds left-over processes through /proc")
def test_ctrl_c_while_the_fork_server_still_imports_is_one_line(tmp_path):
    write_notebook(tmp_path / "labs", "quick", "a = 1")
    mark = f"mark-{os.getpid()}-{tmp_path.name}"
    process = subprocess.Popen(
        [labkit(), "run", "--notebooks", "labs", "--out", "out", "--no-roofline"],
        cwd=tmp_path,
        env=dict(os.environ) | {"LABKIT_TEST_MARK": mark},
        start_new_session=True,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    deadline = time.monotonic() + 240
    while not any("forkserver" in " ".join(psutil.Process(pid).cmdline()) for pid in marked_processes(mark)):
        assert time.monotonic() < deadline, "there never was a fork server"
        time.sleep(0.02)
    time.sleep(0.3)  # into its imports, which take seconds; where the machine is slow, before them
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=240)
    assert (process.returncode, said.strip()) == (130, "labkit: interrupted; what was finished is kept")
    while marked_processes(mark) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert marked_processes(mark) == []


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds left-over processes through /proc")
def test_killing_labkit_itself_leaves_nothing_running(tmp_path):
    mark = f"mark-{os.getpid()}-{tmp_path.name}"
    write_notebook(tmp_path / "labs", "busy", f"{DAEMON}\nopen('started', 'w')\nwhile True: pass")
    command = [labkit(), "run", "--notebooks", "labs", "--out", "out", "--no-roofline"]
    process = subprocess.Popen(command, cwd=tmp_path, env=dict(os.environ) | {"LABKIT_TEST_MARK": mark})
    deadline = time.monotonic() + 240
    while not (tmp_path / "labs" / "started").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.kill()
    process.wait()
    while marked_processes(mark) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert marked_processes(mark) == []
    assert not (tmp_path / "out").exists()


@pytest.mark.soak
@pytest.mark.parametrize("round_", range(10))
def test_ctrl_c_again_and_again(tmp_path, round_):
    mark = f"mark-{os.getpid()}-{tmp_path.name}"
    code, output = interrupt(tmp_path, mark, labs=6, patience=120)
    assert code == 130, output
    deadline = time.monotonic() + 30
    while marked_processes(mark) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert marked_processes(mark) == []


@pytest.mark.soak
def test_a_hundred_kernels_that_start_together_all_start(tmp_path):
    for number in range(100):
        write_notebook(tmp_path / "labs", f"lab{number:03d}", "assert seed == 0")
    process = run_labkit("--notebooks", "labs", "--out", "out", "--jobs", 16, cwd=tmp_path, timeout=280)
    assert process.returncode == 0, process.stdout
