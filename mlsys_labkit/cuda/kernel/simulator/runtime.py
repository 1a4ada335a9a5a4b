"""The worker's executable, compiled on first use from the C++ that the package ships as text."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

from mlsys_labkit.cuda.cache import Cache, digest
from mlsys_labkit.cuda.errors import CudaError
from mlsys_labkit.cuda.kernel.gcc import compiler
from mlsys_labkit.cuda.kernel.gcc.toolchain import Toolchain, find_toolchain
from mlsys_labkit.cuda.kernel.gcc.units import compile_units

_SOURCE = Path(__file__).parent.parent / "native" / "runtime"
# Hooks walk over the frames below them: guard.cpp.
_FLAGS = ("-std=c++17", "-O2", "-fPIC", "-pthread", "-fno-omit-frame-pointer")
# They take about as long as each other, the longest first.
_UNITS = {
    "check": (
        "async_checks",
        "copies",
        "findings",
        "order",
        "record",
        "record_check",
        "shadow_global",
        "shadow_shared",
    ),
    "profile": ("counts", "device_memory", "module", "record_profile", "request_cost", "symbols", "touched"),
    "engine": (),
    # With a notebook: programs with a main of their own go without.
    "conversation": ("channel", "main", "seal", "variables"),
}


def worker() -> Path:
    """Return the worker process's executable. Kernels find the functions they call in it.

    Raises CudaError when there is no compiler, or it refuses the source.
    """
    return _built() / "worker"


def library() -> Path:
    """Return the runtime without the notebook's protocol: a static library for programs with their own main.

    Link it whole (``-Wl,--whole-archive``) and with ``-rdynamic``, since kernels look up its functions by name.
    """
    return _built() / "libruntime.a"


@functools.cache
def _built() -> Path:
    toolchain = find_toolchain()
    files = sorted(_SOURCE.glob("*.h")) + sorted(_SOURCE.glob("*.cpp"))
    parts = [part for file in files for part in (file.name, file.read_bytes())]
    name = f"runtime-{digest(toolchain.identity, *_FLAGS, repr(_UNITS), *parts)}"
    return Cache().fetch(name, lambda folder: _build(folder, toolchain))


def _build(folder: Path, toolchain: Toolchain) -> None:
    try:
        objects = compile_units(_SOURCE, _UNITS, _FLAGS, folder, toolchain)
        worker: list[str | Path] = ["-pthread", "-rdynamic", *objects.values(), "-ldl", "-o", folder / "worker"]
        compiler.run(toolchain, worker, folder)
    except compiler.CompilerFailed as failed:
        lines = failed.text.splitlines()
        cause = next((line for line in lines if "undefined" in line or "error:" in line), "it says nothing")
        raise CudaError(
            f"the simulator could not be compiled: {cause}; is g++ complete? try: {toolchain.command[0]} --version"
        ) from None
    _archive(folder / "libruntime.a", [target for unit, target in objects.items() if unit != "conversation"])
    for target in objects.values():
        target.unlink()


def _archive(library: Path, objects: list[Path]) -> None:
    done = subprocess.run(["ar", "rcs", library, *objects], capture_output=True, text=True, errors="replace")
    if done.returncode:
        raise CudaError(f"the simulator could not be compiled: {done.stderr.strip()}; is ar (binutils) complete?")
