"""One call of g++: bounded in time, its complaints read, a full disk told from a wrong program."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mlsys_labkit.cuda.build.toolchain import Toolchain
from mlsys_labkit.cuda.errors import CompileError, CudaError

__all__ = ["CompilerFailed", "compile_seconds", "run"]

LIMIT_SECONDS = 60.0


@dataclass(frozen=True)
class CompilerFailed(Exception):
    """g++ ended with an error; ``text`` is all it said."""

    text: str


def compile_seconds() -> float:
    """How long one call may take: 60 s, or ``LABKIT_CUDA_COMPILE_SECONDS``."""
    return float(os.environ.get("LABKIT_CUDA_COMPILE_SECONDS", LIMIT_SECONDS))


def run(toolchain: Toolchain, arguments: Sequence[str | os.PathLike[str]], folder: Path) -> str:
    """Run the compiler in ``folder`` and return what it said.

    Raises CompilerFailed when it refuses its input, CompileError when it takes too long, CudaError when it is the
    machine that fails it.
    """
    command = [*toolchain.command, *(os.fspath(argument) for argument in arguments)]
    seconds = compile_seconds()
    environment = {**os.environ, "LC_ALL": "C", "TMPDIR": os.fspath(folder)}
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,  # so that its children end with it, and Ctrl-C is ours to handle
    )
    try:
        said, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        raise CompileError(
            f"g++ did not finish within {seconds:g} s and was stopped; take away #pragma unroll, "
            "or templates that expand into each other"
        ) from None
    finally:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    if process.returncode == 0:
        return said
    if "No space left on device" in said or "Disk quota exceeded" in said:
        raise OSError(28, "No space left on device")
    if process.returncode < 0 or "Killed signal terminated program" in said:
        raise CudaError("g++ was killed, most likely because memory ran out; close other notebooks and try again")
    if "internal compiler error" in said:
        raise CudaError(
            f"g++ {toolchain.version} crashed on this source; try another version (CXX=g++-13)\n{said[-2000:]}"
        )
    raise CompilerFailed(said)
