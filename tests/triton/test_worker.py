"""Tests of the worker process: interrupted, killed, too slow, or forked, and the next launch works."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import triton
import triton.language as tl

from mlsys_labkit.triton_trace.errors import TritonKernelError, TritonWorkerError
from mlsys_labkit.triton_trace.launch import client
from mlsys_labkit.triton_trace.launch.client import TritonWorker
from mlsys_labkit.triton_trace.launch.launcher import TritonLauncher


@triton.jit
def one(out):
    tl.store(out, 1)


@triton.jit
def forever(out):
    while tl.load(out) == 0:
        tl.store(out + 1, 1)


@triton.jit
def slowly(out):
    tl.store(out + tl.program_id(0), 1)


def works() -> bool:
    out = np.zeros(2, np.int32)
    one[1,](out)
    return out.tolist() == [1, 0]


def test_launch_timeout_names_the_program_reached() -> None:
    out = np.zeros(2, np.int32)
    with pytest.raises(TritonWorkerError, match=r"stopped after 0\.5 s, in program 0 of 3; .*timeout_s"):
        TritonLauncher(forever, timeout_s=0.5).launch((3,), (out,), {})
    assert out.tolist() == [0, 0]
    assert works()


def test_interrupt_stops_a_launch_and_the_next_one_runs() -> None:
    assert works()
    threading.Timer(0.5, signal.raise_signal, (signal.SIGINT,)).start()
    with pytest.raises(KeyboardInterrupt):
        forever[1,](np.zeros(2, np.int32))
    assert works()


def test_killed_worker_is_reported_and_replaced() -> None:
    assert works()
    process = TritonWorker.current()._process
    assert process is not None
    threading.Timer(0.3, process.kill).start()
    with pytest.raises(TritonWorkerError, match=r"died of SIGKILL.*the next launch starts another"):
        forever[1,](np.zeros(2, np.int32))
    assert works()


def test_worker_is_one_process_for_all_launches_and_threads() -> None:
    assert works()
    process = TritonWorker.current()._process
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(lambda _: works(), range(12)))
    assert TritonWorker.current()._process is process


def test_forked_child_gets_its_own_worker() -> None:
    assert works()
    child = os.fork()
    if child == 0:
        os._exit(0 if works() else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert works()


def run(script: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    file = tmp_path / "script.py"
    file.write_text(textwrap.dedent(script))
    command = [sys.executable, str(file)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, start_new_session=True)


HEAD = """
    import numpy as np, triton, triton.language as tl
    import mlsys_labkit.triton_trace
    from mlsys_labkit.triton_trace.launch.client import TritonWorker
    @triton.jit
    def one(out):
        tl.store(out, 1)
    @triton.jit
    def forever(out):
        while tl.load(out) == 0:
            tl.store(out + 1, 1)
    out = np.zeros(2, np.int32)
    one[1,](out)
"""


def test_worker_ends_when_its_notebook_is_killed(tmp_path: Path) -> None:
    done = run(
        HEAD
        + """
    import os, threading
    print(TritonWorker.current()._process.pid, flush=True)
    threading.Timer(0.3, os.kill, (os.getpid(), 9)).start()
    forever[1,](out)
    """,
        tmp_path,
    )
    pid = int(done.stdout)
    deadline = time.monotonic() + 30
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        if Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z":
            break
        time.sleep(0.02)
    else:
        assert not Path(f"/proc/{pid}").exists()


def test_interrupt_of_process_group_spares_an_idle_worker(tmp_path: Path) -> None:
    """A terminal and Jupyter interrupt the whole process group, so the worker must be in a group of its own."""
    done = run(
        HEAD
        + """
    import os, signal
    before = TritonWorker.current()._process.pid
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.killpg(os.getpgrp(), signal.SIGINT)
    assert os.getpgid(before) != os.getpgrp()
    one[1,](out)
    print(TritonWorker.current()._process.pid == before)
    """,
        tmp_path,
    )
    assert done.stdout.strip() == "True", done.stderr


def test_worker_needs_no_torch_and_accepts_triton_interpret(tmp_path: Path) -> None:
    """Launches take the same way when TRITON_INTERPRET is set, and the worker never imports torch."""
    done = run(
        "    import os, sys\n    os.environ['TRITON_INTERPRET'] = '1'\n"
        + HEAD
        + """
    assert out.tolist() == [1, 0]
    maps = open(f"/proc/{TritonWorker.current()._process.pid}/maps").read()
    assert "libtriton" in maps and "libtorch" not in maps, maps
    assert "torch" not in sys.modules
    """,
        tmp_path,
    )
    assert done.returncode == 0, done.stderr


def test_importing_the_kit_loads_neither_triton_nor_torch(tmp_path: Path) -> None:
    done = run(
        """
    import sys, mlsys_labkit
    assert "triton" not in sys.modules and "torch" not in sys.modules
    """,
        tmp_path,
    )
    assert done.returncode == 0, done.stderr


def test_launch_on_another_system_names_wsl_and_binder(monkeypatch: pytest.MonkeyPatch) -> None:
    from mlsys_labkit.errors import LabkitError

    TritonWorker.current().close()
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(LabkitError, match="WSL on Windows, or open the lab on Binder"):
        works()


def test_missing_triton_names_the_extra(tmp_path: Path) -> None:
    done = run(
        """
    import sys
    sys.modules["triton"] = None
    import mlsys_labkit.triton_trace
    from mlsys_labkit.errors import MissingExtraError
    from mlsys_labkit.triton_trace.launch.client import TritonWorker
    try:
        TritonWorker.current()._require()
    except MissingExtraError as error:
        print(error)
    """,
        tmp_path,
    )
    assert "pip install 'mlsys-labkit[triton]'" in done.stdout, done.stderr


def test_launch_of_many_programs_finishes() -> None:
    out = np.zeros(3000, np.int32)
    slowly[3000,](out)
    assert out.all()


def test_progress_line_is_shown_and_erased(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(client, "_QUIET_SECONDS", 0.0)
    with pytest.raises(TritonWorkerError):
        TritonLauncher(slowly, timeout_s=1.0).launch((1 << 20,), (np.zeros(1 << 20, np.int32),), {})
    shown, complaints = capsys.readouterr()
    assert complaints == "", "nbgrader gives no points for a test with text on stderr"
    assert re.match(r"\rTriton without a GPU: program [\d,]+ of 1,048,576", shown)
    assert re.search(r"\r +\r$", shown)


def test_error_names_cell_and_its_line() -> None:
    """In IPython a place is the cell's number, and lines count from the cell's first."""
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    try:
        shell.run_cell("import triton, triton.language as tl, numpy as np", store_history=True)
        shell.run_cell("# a helper\n@triton.jit\ndef helper(x):\n    return tl.load(x + 9)\n", store_history=True)
        shell.run_cell("@triton.jit\ndef kernel(x):\n    tl.store(x, helper(x))\n", store_history=True)
        result = shell.run_cell("kernel[1,](np.zeros(4, np.float32))", store_history=True)
        assert isinstance(result.error_in_exec, TritonKernelError)
        text = str(result.error_in_exec)
        assert re.match(
            r"In\[2\] line 4: it reads x\[9\], and x has 4 elements.*\[return tl.load\(x \+ 9\)\]$", text
        ), text
    finally:
        InteractiveShell.clear_instance()
