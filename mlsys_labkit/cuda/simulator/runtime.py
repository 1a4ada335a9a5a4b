"""The worker's executable, compiled on first use from the C++ that the package ships as text."""

from __future__ import annotations

import functools
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mlsys_labkit import limits
from mlsys_labkit.cuda.build.cache import Cache, digest
from mlsys_labkit.cuda.build.toolchain import Toolchain, find_toolchain
from mlsys_labkit.cuda.errors import CudaError

__all__ = ["library", "worker"]

_SOURCE = Path(__file__).parent.parent / "native" / "runtime"
_FLAGS = ("-std=c++17", "-O2", "-fPIC", "-pthread")
_COMMON = "engine.h"  # what most files include: read once, and kept as the compiler's own form of it
_OF_THE_WORKER_ALONE = ("main.o", "channel.o")


def worker() -> Path:
    """The worker process's executable. Kernels find the functions they call in it.

    Raises CudaError when there is no compiler, or it refuses the source.
    """
    return _built() / "worker"


def library() -> Path:
    """All but the conversation with a notebook, as a static library for programs with a main of their own.

    Link it whole (``-Wl,--whole-archive``) and with ``-rdynamic``, since kernels look up its functions by name.
    """
    return _built() / "libruntime.a"


@functools.cache
def _built() -> Path:
    toolchain = find_toolchain()
    files = sorted(_SOURCE.glob("*.h")) + sorted(_SOURCE.glob("*.cpp"))
    parts = [part for file in files for part in (file.name, file.read_bytes())]
    name = f"runtime-{digest(toolchain.identity, *_FLAGS, *parts)}"
    return Cache().fetch(name, lambda folder: _build(folder, toolchain))


def _build(folder: Path, toolchain: Toolchain) -> None:
    sources = sorted(_SOURCE.glob("*.cpp"), key=lambda source: -source.stat().st_size)  # what takes longest goes first
    objects = [folder / f"{source.stem}.o" for source in sources]
    common = folder / _COMMON
    _run([*toolchain.command, *_FLAGS, "-w", "-x", "c++-header", str(_SOURCE / _COMMON), "-o", f"{common}.gch"])

    def compile_one(source: Path, target: Path) -> None:
        _run([*toolchain.command, *_FLAGS, "-include", str(common), "-c", str(source), "-o", str(target)])

    with ThreadPoolExecutor(max(1, int(limits.usable_cores()))) as pool:
        list(pool.map(compile_one, sources, objects))
    _run([*toolchain.command, "-pthread", "-rdynamic", *map(str, objects), "-ldl", "-o", str(folder / "worker")])
    shared = [str(each) for each in objects if each.name not in _OF_THE_WORKER_ALONE]
    _run(["ar", "rcs", str(folder / "libruntime.a"), *shared])
    for target in (*objects, folder / f"{_COMMON}.gch"):
        target.unlink()


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.splitlines()
        cause = next((line for line in lines if "undefined" in line or "error:" in line), "it says nothing")
        raise CudaError(f"the simulator could not be compiled: {cause}; is g++ complete? try: {command[0]} --version")
