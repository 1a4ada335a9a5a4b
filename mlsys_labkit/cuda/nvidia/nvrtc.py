"""NVRTC, NVIDIA's run-time compiler: PTX, machine code and CUDA's own words for any GPU, on a machine without one."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlsys_labkit.cuda.cache import Cache, digest
from mlsys_labkit.cuda.errors import CudaCompileError, CudaError, Diagnostic
from mlsys_labkit.cuda.nvidia import nvrtc_process, ptxas
from mlsys_labkit.cuda.nvidia.device_code import without_host_code
from mlsys_labkit.cuda.nvidia.diagnostics import JIT_MODE, NAME_LOOKUP, Complaint, read_log
from mlsys_labkit.cuda.nvidia.exact_arch import exact_arch
from mlsys_labkit.cuda.nvidia.headers import PRELUDE, supplied_headers
from mlsys_labkit.cuda.nvidia.libraries import Nvrtc, find_nvrtc, toolkit_headers
from mlsys_labkit.cuda.source.includes import included_files
from mlsys_labkit.cuda.time_limits import compile_seconds
from mlsys_labkit.errors import MissingExtraError

SOURCE_NAME = "kernel.cu"
"""Name of the source in messages and in tables of lines."""
_SUCCESS = "NVRTC_SUCCESS"
_ROUNDS = 4  # of removing host code: an error in one place can hide errors further on
_SHOWN = 5


@dataclass(frozen=True)
class CompiledSource:
    """A source compiled for one architecture.

    Attributes:
        symbol: the kernel's name in the module, ``"_Z5scalePf"``; empty when no kernel was named.
        ptx: NVIDIA's portable assembly of the whole source. cubin: machine code for ``arch``, an ELF file.
        log: what the compiler and its assembler printed.
    """

    arch: str
    symbol: str
    ptx: str
    cubin: bytes
    log: str


def available() -> bool:
    """Return whether NVRTC is installed."""
    try:
        find_nvrtc()
    except MissingExtraError:
        return False
    return True


def compile(
    source: str,
    name: str | None = None,
    arch: str = "sm_90",
    *,
    defines: Mapping[str, object] | None = None,
    options: Sequence[str] = (),
    folder: Path | None = None,
) -> CompiledSource:
    """Compile a source as it stands, with an instance of ``name`` such as ``"matmul<16>"`` in it.

    Host code is left out (NVRTC has no host) and what nvcc includes by itself is included; nothing else is changed, and
    lines stay where they are. ``#include "..."`` looks in ``folder``. The outcome is kept on disk.

    Raises:
        CudaCompileError: CUDA refuses the source; ``diagnostics`` says where, in CUDA's own words.
        CudaError: this NVRTC does not support ``arch``.
        MissingExtraError: NVRTC is not installed.

    Example:
        >>> double = "__global__ void twice(float* x) { x[threadIdx.x] *= 2; }"
        >>> compile(double, "twice", "sm_90").symbol
        '_Z5twicePf'

    Reference: NVIDIA, NVRTC documentation.
    """
    library, cache = find_nvrtc(), Cache()
    beside = _beside(source, folder)
    chosen = [
        f"--gpu-architecture={exact_arch(arch, source, *beside.values())}",
        "--std=c++17",
        f"--pre-include={PRELUDE}",
        "--ptxas-options=-v",
        *(f"--define-macro={key}={value}" for key, value in (defines or {}).items()),
        *options,
    ]
    headers = {**supplied_headers(), **beside}
    identity = digest(library.identity, source, name or "", *chosen, *headers, *headers.values())
    include = [f"--include-path={folder}" for folder in _include_folders(library, cache)]
    request: dict[str, Any] = {
        "source": source,
        "file": SOURCE_NAME,
        "names": [name] if name else [],
        "headers": headers,
        "options": [*chosen, *include],
    }
    entry = cache.fetch(f"nvrtc-{identity}", lambda folder: _compile_into(folder, library, request, arch))
    reply = json.loads((entry / "reply.json").read_text(encoding="utf-8"))
    return CompiledSource(
        arch=arch,
        symbol=reply["symbols"][0] if reply["symbols"] else "",
        ptx=(entry / "kernel.ptx").read_text(encoding="utf-8"),
        cubin=(entry / "kernel.cubin").read_bytes(),
        log=reply["log"],
    )


def check(
    source: str,
    name: str | None = None,
    arch: str = "sm_90",
    *,
    defines: Mapping[str, object] | None = None,
    folder: Path | None = None,
) -> tuple[Diagnostic, ...]:
    """Return NVRTC's errors for a source; empty when it compiles.

    Raises MissingExtraError when NVRTC is not installed.

    Example:
        >>> for complaint in check("__global__ void k(float* x) {\\n  x[0] = y;\\n}", "k"):
        ...     print(complaint)
        line 2: identifier "y" is undefined: x[0] = y;
    """
    try:
        compile(source, name, arch, defines=defines, folder=folder)
    except CudaCompileError as error:
        return error.diagnostics
    return ()


def _compile_into(folder: Path, library: Nvrtc, request: dict[str, Any], arch: str) -> None:
    request = request | {"folder": str(folder)}
    reply, complaints = _compile_device_code(library, request)
    if reply["status"] != _SUCCESS and arch not in _known(reply["architectures"]):
        known = ", ".join(reply["architectures"])
        raise CudaError(f"NVRTC {reply['version']} does not compile for {arch!r}; it knows {known}")
    if _concern_the_name_alone(complaints):
        # A kernel called like one of CUDA's own functions, such as all(), is ambiguous to look up and fine to launch.
        nameless, _ = _compile_device_code(library, request | {"names": []})
        nameless["symbols"] = _entries(nameless["log"], request["names"][0])
        if nameless["symbols"]:
            reply = nameless
    if reply["status"] != _SUCCESS:
        raise _refusal(complaints, reply)
    (folder / "reply.json").write_text(json.dumps(reply), encoding="utf-8")


def _compile_device_code(library: Nvrtc, request: dict[str, Any]) -> tuple[dict[str, Any], tuple[Complaint, ...]]:
    """Compile until NVRTC has no complaint about host code left; return its reply and its complaints.

    Host code is blanked out of the source where NVRTC complains about it.
    """
    original = request["source"]
    for _ in range(_ROUNDS):
        reply = _run(library, request)
        complaints = read_log(reply["log"], SOURCE_NAME, original)
        host = [one.diagnostic for one in complaints if JIT_MODE.search(one.diagnostic.text)]
        if reply["status"] == _SUCCESS or not host:
            break
        places = [(one.line, one.column) for one in host if not one.file]
        request = request | {"source": without_host_code(request["source"], places)}
    return reply, complaints


def _concern_the_name_alone(complaints: Sequence[Complaint]) -> bool:
    errors = [one.diagnostic for one in complaints if one.severity == "error"]
    return bool(errors) and all(one.file == NAME_LOOKUP for one in errors)


def _entries(log: str, name: str) -> list[str]:
    """Return the one kernel in the assembler's report whose symbol stands for ``name`` without template arguments."""
    parts = name.removeprefix("::").split("::")
    mangled = "".join(f"{len(part)}{part}" for part in parts)
    begin = f"_ZN{mangled}E" if len(parts) > 1 else f"_Z{mangled}"
    found = [symbol for symbol in ptxas.read_report(log) if symbol == name or symbol.startswith(begin)]
    return found if len(found) == 1 else []


def _refusal(complaints: Sequence[Complaint], reply: Mapping[str, Any]) -> CudaCompileError:
    errors = tuple(one.diagnostic for one in complaints if one.severity == "error")
    if not errors:
        said = str(reply["log"]).strip() or "it says nothing"
        errors = (Diagnostic(0, 0, f"NVRTC {reply['version']} fails with {reply['status']}: {said[-500:]}"),)
    more = [f"and {len(errors) - _SHOWN} more"] if len(errors) > _SHOWN else []
    return CudaCompileError("\n".join([*map(str, errors[:_SHOWN]), *more]), errors)


def _beside(source: str, folder: Path | None) -> dict[str, str]:
    """Return the student's own headers by the names that NVRTC looks for."""
    found = {}
    for path in included_files(source, folder):
        text = path.read_text(encoding="utf-8", errors="replace")
        found[path.name] = text
        if folder and path.is_relative_to(folder):
            found[path.relative_to(folder).as_posix()] = text
    return found


def _known(architectures: Sequence[str]) -> set[str]:
    """Return each architecture, and its names with the suffixes of its special features."""
    return {name + suffix for name in architectures for suffix in ("", "a", "f")}


def _include_folders(library: Nvrtc, cache: Cache) -> tuple[Path, ...]:
    """Return the folders of CUDA's headers, such as cuda_fp16.h and cuda/barrier: NVRTC's own, else a toolkit's."""
    folder = cache.fetch(f"headers-{digest(library.identity)}", lambda making: _unpack_headers(making, library))
    if (folder / "cuda_fp16.h").exists():
        return (folder, folder / "cccl")
    return toolkit_headers()


def _unpack_headers(folder: Path, library: Nvrtc) -> None:
    _run(library, {"headers_folder": str(folder)})


def _run(library: Nvrtc, request: Mapping[str, Any]) -> dict[str, Any]:
    paths = {"library": str(library.library), "builtins": str(library.builtins) if library.builtins else None}
    seconds = compile_seconds()
    try:
        ran = subprocess.run(
            [sys.executable, "-I", "-S", str(Path(nvrtc_process.__file__))],
            input=json.dumps(paths | dict(request)),
            capture_output=True,
            text=True,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        raise CudaCompileError(
            f"NVRTC did not finish within {seconds:g} s and was stopped; take away #pragma unroll, "
            "or templates that expand into each other"
        ) from None
    if ran.returncode:
        last = re.sub(r"\s+", " ", ran.stderr.strip().splitlines()[-1] if ran.stderr.strip() else "no message")
        raise CudaError(f"NVRTC ({library.library}) ended with {ran.returncode}: {last}")
    reply: dict[str, Any] = json.loads(ran.stdout)
    return reply
