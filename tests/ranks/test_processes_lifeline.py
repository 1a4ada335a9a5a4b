"""Ctrl-C and the end of the notebook: no process outlives the run that started it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from mlsys_labkit.ranks.processes.channel import Meeting

pytestmark = pytest.mark.xdist_group("rank-processes")

# No main guard: a notebook has none either.
PROGRAM = """
import time
import torch, torch.distributed as dist
from mlsys_labkit import ranks
from mlsys_labkit.ranks.processes.pool import RankPool

def total(x):
    dist.all_reduce(x)
    return int(x)

def hangs():
    print("hanging", flush=True)
    if dist.get_rank() == 1:
        dist.recv(torch.ones(1), 0)
    while True:
        time.sleep(0.01)

assert ranks.run(total, 2, "gloo", args=(torch.tensor(2),)).values == [4, 4]
print("folder", RankPool.current()._host.meeting.folder, flush=True)
try:
    ranks.run(hangs, 2, "gloo", timeout_seconds=600)
except KeyboardInterrupt:
    print("interrupted", flush=True)
assert ranks.run(total, 2, "gloo", args=(torch.tensor(3),)).values == [6, 6]
print("works", flush=True)
time.sleep(600)
"""


class Program:
    """A process that runs PROGRAM up to the point where a rank hangs."""

    def __init__(self, folder: Path) -> None:
        path = folder / "notebook.py"
        path.write_text(PROGRAM)
        self.process = subprocess.Popen([sys.executable, path], stdout=subprocess.PIPE, text=True)
        self.folder = Path(self.line_with("folder").split()[1])
        self.line_with("hanging")

    def line_with(self, text: str) -> str:
        assert self.process.stdout
        return next(line for line in self.process.stdout if text in line)

    def family(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    running = Program(tmp_path)
    yield running
    for process in [*running.family(), psutil.Process(running.process.pid)] if running.process.poll() is None else []:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    running.process.communicate()


def test_ctrl_c_ends_the_ranks_and_nothing_else(program: Program) -> None:
    hanging = [process for process in program.family() if process.children() == []]
    assert len(hanging) == 2
    program.process.send_signal(signal.SIGINT)
    program.line_with("interrupted")
    assert not psutil.wait_procs(hanging, timeout=300)[1]
    program.line_with("works")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_death_of_the_notebook_ends_host_and_ranks(program: Program, number: int) -> None:
    family = program.family()
    assert len(family) == 3
    program.process.send_signal(number)
    assert not psutil.wait_procs(family, timeout=300)[1]
    assert not program.folder.exists()


def test_the_end_of_a_program_ends_its_ranks_and_removes_its_folder(tmp_path: Path) -> None:
    code = PROGRAM.split("try:")[0]
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    folder = Path(ended.stdout.split()[1])
    assert not folder.exists()
    assert not [p for p in psutil.process_iter() if str(folder) in " ".join(_command(p))]


def test_in_a_notebook_output_comes_in_columns_and_interrupts_get_through() -> None:
    manager = pytest.importorskip("jupyter_client.manager", reason="needs Jupyter")
    kernel, client = manager.start_new_kernel()
    try:
        head, hang = PROGRAM.split("try:")[0], "ranks.run(hangs, 2, 'gloo', timeout_seconds=600)"
        first = _execute(client, head + "\nranks.run(lambda: print('<b>', dist.get_rank()), 2, 'gloo').outputs")
        assert first["result"] == "['<b> 0\\n', '<b> 1\\n']"
        shown = first["display"][-1]
        assert "&lt;b&gt; 1" in shown["text/html"]
        assert 'aria-label="Output of the ranks"' in shown["text/html"]
        assert "<b> 0" in shown["text/plain"]
        once = iter([kernel.interrupt_kernel])  # a second one would stop IPython while it reports the first

        def interrupt(shown: Any) -> None:
            if "hanging" in str(shown):
                next(once, int)()

        stopped = _execute(client, hang, interrupt)
        assert stopped["error"] == "KeyboardInterrupt"
        assert _execute(client, "ranks.run(total, 2, 'gloo', args=(torch.tensor(3),)).values")["result"] == "[6, 6]"
        family = psutil.Process(kernel.provisioner.pid).children(recursive=True)
        assert family
    finally:
        client.stop_channels()
        kernel.shutdown_kernel(now=True)
    assert not psutil.wait_procs(family, timeout=300)[1]


def _execute(client: Any, code: str, on_display: Any = lambda shown: None) -> dict[str, Any]:
    """Run a cell; return its displayed outputs in order, its result and the name of its error."""
    told: dict[str, Any] = {"display": [], "result": None, "error": None}
    request = client.execute(code)
    while True:
        message = client.get_iopub_msg(timeout=600)
        if message["parent_header"].get("msg_id") != request:
            continue
        kind, content = message["msg_type"], message["content"]
        if kind in ("display_data", "update_display_data"):
            told["display"].append(content["data"])
            on_display(content["data"])
        elif kind == "execute_result":
            told["result"] = content["data"]["text/plain"]
        elif kind == "error":
            told["error"] = content["ename"]
        elif kind == "status" and content["execution_state"] == "idle":
            return told


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@pytest.mark.skipif(sys.platform == "win32", reason="a named pipe leaves no file")
def test_folders_that_killed_notebooks_left_are_removed_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:  # a socket's address must be
        monkeypatch.setattr(tempfile, "tempdir", short)
        _look_at_folders(Path(short))


def _look_at_folders(base: Path) -> None:
    killed, begun = base / "labkit-ranks-killed", base / "labkit-ranks-begun"
    for folder in (killed, begun):
        folder.mkdir()
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(os.fspath(folder / "notebook"))
        listener.close()  # the file stays
    link = base / "labkit-ranks-link"
    link.symlink_to(base)
    living, foreign = Meeting(), base / "other"
    foreign.mkdir()
    for folder in (killed, living.folder, foreign):
        os.utime(folder, (1, 1))
    new = Meeting()
    assert sorted(base.iterdir()) == sorted([begun, link, living.folder, foreign, new.folder])
    new.close()
    living.close()
