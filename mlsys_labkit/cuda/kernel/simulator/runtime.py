"""The worker's executable, compiled on first use from the C++ that the package ships as text."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

from mlsys_labkit._base import limits
from mlsys_labkit.cuda.cache import Cache, digest
from mlsys_labkit.cuda.errors import CudaError
from mlsys_labkit.cuda.kernel.gcc import compiler
from mlsys_labkit.cuda.kernel.gcc.toolchain import Toolchain, find_toolchain

_SOURCE = Path(__file__).parent.parent / "native" / "runtime"
# Hooks walk over the frames below them: guard.cpp.
_FLAGS = ("-std=c++17", "-O2", "-fPIC", "-pthread", "-fno-omit-frame-pointer")
# g++ spends more on the standard headers than on most of these files, so it gets them in four translation units that
# take about as long as each other, the longest first. Names in their unnamed namespaces must therefore differ.
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
    "engine": (),  # and all that is not listed
    "conversation": ("channel", "main"),  # with a notebook: programs with a main of their own go without
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


def _units() -> dict[str, str]:
    """Return the text of each translation unit."""
    unit_of = {stem: unit for unit, stems in _UNITS.items() for stem in stems}
    texts = dict.fromkeys(_UNITS, "")
    for file in sorted(_SOURCE.glob("*.cpp")):
        texts[unit_of.get(file.stem, "engine")] += f'#include "{file.name}"\n'
    return texts


def _build(folder: Path, toolchain: Toolchain) -> None:
    units = _units()
    objects = {unit: folder / f"{unit}.o" for unit in units}

    def compile_unit(unit: str) -> None:
        reads = ["-iquote", str(_SOURCE), "-x", "c++", "-c", "-"]
        _run([*toolchain.command, *_FLAGS, *reads, "-o", str(objects[unit])], units[unit])

    with compiler.threads(max(1, int(limits.usable_cores()))) as pool:
        for compiled in [pool.submit(compile_unit, unit) for unit in units]:
            compiler.result(compiled)
    worker = map(str, objects.values())
    _run([*toolchain.command, "-pthread", "-rdynamic", *worker, "-ldl", "-o", str(folder / "worker")])
    library = (str(target) for unit, target in objects.items() if unit != "conversation")
    _run(["ar", "rcs", str(folder / "libruntime.a"), *library])
    for target in objects.values():
        target.unlink()


def _run(command: list[str], source: str = "") -> None:
    with compiler.started(command, stdin=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        said = compiler.said_by(process, source)
    if process.returncode:
        lines = said.splitlines()
        cause = next((line for line in lines if "undefined" in line or "error:" in line), "it says nothing")
        raise CudaError(f"the simulator could not be compiled: {cause}; is g++ complete? try: {command[0]} --version")
