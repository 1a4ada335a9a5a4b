"""Ctrl-C during a compilation ends all compilers, and the next call compiles the kernel."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

# A compiler that prints its version as g++ does, and is very slow at everything else.
SLOW = """#!/bin/sh
case "$*" in
  *-o*|*-S*) echo started > "{folder}/$$"; exec sleep 1000 ;;
esac
exec {compiler} "$@"
"""
KERNEL = "cuda.compile('__global__ void f(int* x) {{ *x = 1; }}', backend='simulator')"
PROGRAM = "cuda.run_program('int main() {{ return 0; }}', backend='simulator')"


def slow_compiler(folder: Path) -> tuple[Path, dict[str, str]]:
    """Return a folder with a file for each compiler that starts, named by its pid, and the environment that uses it."""
    started, slow = folder / "started", folder / "slow-g++"
    started.mkdir()
    slow.write_text(SLOW.format(folder=started, compiler=shutil.which("g++")))
    slow.chmod(0o755)
    own = {"CXX": str(slow), "LABKIT_CUDA_CACHE": str(folder / "cache"), "LABKIT_CUDA_COMPILE_SECONDS": "900"}
    return started, os.environ | own


@pytest.mark.parametrize("work", [KERNEL, PROGRAM], ids=["kernel", "program"])
def test_no_compiler_is_waited_for(tmp_path: Path, work: str) -> None:
    started, environment = slow_compiler(tmp_path)
    code = f"from mlsys_labkit import cuda\n{work.format()}"
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, env=environment)
    try:
        while len(list(started.iterdir())) < 2:  # one for the source or its headers, and one beside
            assert process.poll() is None, process.communicate()[1].decode()
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=600)
        until = time.monotonic() + 240  # shorter than a compiler's sleep
        while (left := _alive(started)) and time.monotonic() < until:
            time.sleep(0.05)
    finally:
        process.kill()
        for pid in _alive(started):
            os.kill(pid, signal.SIGKILL)
    assert b"KeyboardInterrupt" in said
    assert not [path for path in (tmp_path / "cache").iterdir() if path.name.startswith(".making")]
    assert left == []


# A Popen in which Ctrl-C arrives when the compiler runs already, and its starter does not know it yet.
INTERRUPTED = """
import os, signal, subprocess, threading, time
from mlsys_labkit import cuda
first = threading.Lock()
class Popen(subprocess.Popen):
    def _execute_child(self, *given, **named):
        super()._execute_child(*given, **named)
        if "-w" in self.args and first.acquire(blocking=False):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.5)
subprocess.Popen = Popen
"""


@pytest.mark.parametrize("work", [KERNEL, PROGRAM], ids=["kernel", "program"])
def test_no_compiler_is_left_that_was_just_being_started(tmp_path: Path, work: str) -> None:
    started, environment = slow_compiler(tmp_path)
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED + work.format()], stderr=subprocess.PIPE, env=environment
    )
    try:
        _, said = process.communicate(timeout=600)
        assert b"KeyboardInterrupt" in said
        assert _alive(started) == []
    finally:
        process.kill()
        for pid in _alive(started):
            os.kill(pid, signal.SIGKILL)


def _alive(folder: Path) -> list[int]:
    """Return the pids of the compilers that still run. A zombie has ended."""
    found = []
    for each in folder.iterdir():
        with contextlib.suppress(psutil.NoSuchProcess):
            if psutil.Process(int(each.name)).status() != psutil.STATUS_ZOMBIE:
                found.append(int(each.name))
    return found
