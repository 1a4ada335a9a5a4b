"""Compilation of CUDA C++ text to kernels."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mlsys_labkit.cuda.errors import CudaCompileError, CudaError, Diagnostic, GradedError
from mlsys_labkit.cuda.kernel.absent import unsolved_kernel
from mlsys_labkit.cuda.kernel.backends.gpu import GpuBackend
from mlsys_labkit.cuda.kernel.backends.module import SimulatedModule
from mlsys_labkit.cuda.kernel.cell_line import BackendName
from mlsys_labkit.cuda.kernel.gcc.declared import names_in_headers
from mlsys_labkit.cuda.kernel.gcc.headers import kit_identity
from mlsys_labkit.cuda.kernel.gcc.unit import EXPORTS, Unit
from mlsys_labkit.cuda.kernel.kernel import Backend, Kernel
from mlsys_labkit.cuda.nvidia import nvrtc
from mlsys_labkit.cuda.nvidia.device import the_gpu, why_no_gpu
from mlsys_labkit.cuda.source.host_code import without_absent_in, without_host_code_in
from mlsys_labkit.cuda.source.includes import headers_beside
from mlsys_labkit.cuda.source.kernels import KernelDefinition, choose_kernels
from mlsys_labkit.cuda.source.left_out import is_left_out, of_programs
from mlsys_labkit.cuda.source.source import Source
from mlsys_labkit.cuda.source.stub import stub_line

TextOrPath = str | os.PathLike[str]
_LIBRARY_OF_BOTH = re.compile(r"^[ \t]*#[ \t]*include[ \t]*<(?:cub|thrust)/", re.MULTILINE)  # includes the runtime
_FILE_NAME = re.compile(r"[^\n{}();]+\.(?:cuh?|cpp|cc|h)")


class Kernels(Mapping[str, Kernel]):
    """The kernels of one source, by name: ``kernels.scale`` or ``kernels["scale"]``.

    Example:
        >>> two = compile_all("__global__ void a(int* p) { *p = 1; }  __global__ void b(int* p) { *p = 2; }")
        >>> list(two), two.b.name
        (['a', 'b'], 'b')
    """

    def __init__(self, kernels: Mapping[str, Kernel]) -> None:
        self._kernels = dict(kernels)

    def __getitem__(self, name: str) -> Kernel:
        return self._kernels[name]

    def __getattr__(self, name: str) -> Kernel:
        if name.startswith("_") or name not in self._kernels:
            raise AttributeError(f"no kernel is called {name!r}; there are: {', '.join(self._kernels)}")
        return self[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kernels)

    def __len__(self) -> int:
        return len(self._kernels)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._kernels]

    def __repr__(self) -> str:
        return f"<kernels {', '.join(self._kernels)}>"


@dataclass(frozen=True)
class _Request:
    """The arguments of ``compile``: the source and its headers without their host code, and how to compile them.

    ``whole`` are the same files as they were written, the source first.
    """

    source: Source
    headers: tuple[tuple[str, Source], ...]
    whole: tuple[Source, ...]
    file_name: str
    folder: Path
    backend: BackendName
    graded: bool
    defines: tuple[tuple[str, str], ...]
    strict: bool | None

    @property
    def kernels(self) -> tuple[KernelDefinition, ...]:
        """The kernels of the source, then those of its headers."""
        return (*self.source.kernels, *(kernel for _, header in self.headers for kernel in header.kernels))


def compile(
    source: TextOrPath,
    name: str | None = None,
    *,
    backend: BackendName = "auto",
    graded: bool = False,
    defines: Mapping[str, Any] | None = None,
    strict: bool | None = None,
) -> Kernel:
    """Compile CUDA C++ and return the kernel called ``name``, such as ``"matmul<16>"`` for an instance of a template.

    ``source`` is the text, or a path; ``#include "..."`` looks beside the file, or in the current folder. ``name`` may
    be left out where there is one kernel. What only the host uses, launches and calls of the runtime, is left out, here
    and in the headers, which are also searched in folders such as ``include`` and ``common`` up to three folders above.
    ``backend`` is ``"simulator"``, ``"gpu"``, or ``"auto"``: a GPU where there is one. ``defines`` are macros, as
    ``nvcc -D`` sets them. ``graded`` refuses what could reach around the counters. ``strict`` asks NVIDIA's compiler,
    too; left out, it is asked for its words when g++ refuses the source.

    A source with nbgrader's stub in it compiles; its kernel raises NotImplementedError when it is launched.

    Raises CudaCompileError with ``diagnostics`` that point at lines of the source, and CudaError where nothing can be
    compiled.

    Example:
        >>> fill = compile("template <int N> __global__ void fill(int* x) { x[threadIdx.x] = N; }", "fill<7>")
        >>> fill.signature
        'fill<7>(int* x)'

    Reference: CUDA C++ programming guide, "C++ language extensions".
    """
    request = _request(source, backend, graded, defines, strict)
    if stub := stub_line(request.source.text):
        found = next((kernel.name for kernel in request.source.kernels), "kernel")
        return unsolved_kernel(name or found, request.source.text, stub)
    made = _make(request, choose_kernels(_candidates(request, name), name), may_drop=name is None)
    if len(made) > 1:
        raise CudaCompileError(
            f"the source defines {len(made)} kernels: {', '.join(made)}; "
            f"say which: compile(source, {next(iter(made))!r}), or take them all with compile_all(source)"
        )
    return next(iter(made.values()))


def compile_all(
    source: TextOrPath,
    *,
    backend: BackendName = "auto",
    graded: bool = False,
    defines: Mapping[str, Any] | None = None,
    strict: bool | None = None,
) -> Kernels:
    """Compile CUDA C++ and return all its kernels that need no template arguments; see ``compile``.

    Example:
        >>> len(compile_all("__global__ void a() {}"))
        1
    """
    request = _request(source, backend, graded, defines, strict)
    kernels = _candidates(request, None)
    if stub := stub_line(request.source.text):
        return Kernels({one.name: unsolved_kernel(one.name, request.source.text, stub) for one in kernels})
    return Kernels(_make(request, choose_kernels(kernels, None), may_drop=True))


def _candidates(request: _Request, name: str | None) -> tuple[KernelDefinition, ...]:
    """Return the kernels to choose from: without a name those of the source itself, if it has any."""
    return (request.source.kernels if name is None else ()) or request.kernels


def _request(
    source: TextOrPath, backend: BackendName, graded: bool, defines: Mapping[str, Any] | None, strict: bool | None
) -> _Request:
    if backend not in ("auto", "simulator", "gpu"):
        raise CudaError(f"backend is 'auto', 'simulator' or 'gpu'; got {backend!r}")
    pairs = tuple((key, _macro(value)) for key, value in (defines or {}).items())
    if isinstance(source, str):
        if _FILE_NAME.fullmatch(source.strip()):
            raise CudaError(
                f"{source!r} is text, and looks like the name of a file; to read that, pass a path: Path({source!r})"
            )
        text, file_name, folder = source, "kernel.cu", Path.cwd()
    else:
        path = Path(source)
        try:
            text = path.read_text(encoding="utf-8", errors="surrogateescape")
        except OSError as error:
            raise CudaError(
                f"{path} cannot be read: {error.strerror}; pass a path to CUDA C++, or the text itself"
            ) from None
        file_name, folder = path.name, path.resolve().parent
    headers = {} if graded else headers_beside(text, folder)
    whole = (Source(text), *headers.values())
    main, *others = without_host_code_in(whole)
    beside = tuple(zip(headers, others, strict=True))
    return _Request(main, beside, whole, file_name, folder, backend, graded, pairs, strict)


def _macro(value: Any) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _make(request: _Request, chosen: tuple[str, ...], may_drop: bool) -> dict[str, Kernel]:
    names, refusal = chosen, None
    try:
        backend, names = _backend(request, chosen, may_drop)
    except CudaCompileError as error:
        refusal = error
    if told := _nvrtc_says(request, names, refusal):
        raise CudaCompileError("\n".join(map(str, told[:5] if refusal else told)), told)
    if refusal:
        raise refusal
    text = request.source.text
    return {
        name: Kernel(name, text, backend, index, request.defines, request.folder) for index, name in enumerate(names)
    }


def _backend(request: _Request, chosen: tuple[str, ...], may_drop: bool) -> tuple[Backend, tuple[str, ...]]:
    if request.backend == "gpu":
        the_gpu()  # raises why there is none, before anything is compiled
    simulator = _simulated(request, chosen, may_drop)
    names = simulator.unit.kernels
    if request.backend == "simulator" or (request.backend == "auto" and why_no_gpu()):
        return simulator, names
    return GpuBackend(request.source, names, dict(request.defines), simulator, request.folder), names


def _nvrtc_says(request: _Request, names: tuple[str, ...], refusal: CudaCompileError | None) -> tuple[Diagnostic, ...]:
    """Return NVRTC's errors for the source, if ``strict`` asks for them or g++ has refused the source."""
    wanted = bool(request.strict)
    if refusal:
        about_lines = any(one.line for one in refusal.diagnostics) and not isinstance(refusal, GradedError)
        about_lines &= "calling a __host__ function" not in str(refusal)  # NVRTC would only miss the function
        about_lines &= not any(map(is_left_out, refusal.diagnostics))  # NVRTC would take it, or miss a header
        wanted = about_lines and request.strict is not False and nvrtc.available()
    if not wanted or not names:
        return ()
    try:
        defines = dict(request.defines)
        told = nvrtc.check(request.source.text, names[0], defines=defines, folder=request.folder)
    except CudaError:
        if refusal:
            return ()
        raise
    # NVRTC sees the headers as they were written: with their host code, and only beside the source.
    # NVRTC refuses CUB's header for all of it by an #error.
    words = ("JIT mode", "cannot open source file", "#error directive")
    misled = any(word in one.text for one in told for word in words)
    return () if refusal and misled else told


def _simulated(request: _Request, chosen: tuple[str, ...], may_drop: bool) -> SimulatedModule:
    """Return the module without kernels that an #ifdef disables: no compiler sees those."""
    try:
        return _compiled(request, chosen, may_drop, hosted=False)
    except CudaCompileError as error:
        unchanged = request.whole == (request.source, *(header for _, header in request.headers))
        needs_host = any(_LIBRARY_OF_BOTH.search(one.text) for one in request.whole)
        if request.graded or (unchanged and not needs_host):
            raise
        try:
            return _with_host_code(request, chosen, may_drop)
        except CudaCompileError as whole:
            # What the first attempt says of launches, or of host code that stayed, hides the cause.
            if of_programs(request.source) or len(whole.diagnostics) < len(error.diagnostics):
                raise whole from None
        raise error from None


def _with_host_code(request: _Request, chosen: tuple[str, ...], may_drop: bool) -> SimulatedModule:
    """Return the module of the source with its host code: all of it, or else without calls of absent libraries."""
    try:
        return _compiled(request, chosen, may_drop, hosted=True)
    except CudaCompileError as error:
        there = tuple(without_absent_in(request.whole, names_in_headers()))
        if there == request.whole:
            raise
        try:
            return _compiled(replace(request, whole=there), chosen, may_drop, hosted=True)
        except CudaCompileError as second:
            raise min(error, second, key=lambda one: len(one.diagnostics)) from None


def _compiled(request: _Request, chosen: tuple[str, ...], may_drop: bool, *, hosted: bool) -> SimulatedModule:
    texts = {kernel.name: kernel.parameters for kernel in reversed(request.kernels)}
    source, headers = request.source, request.headers
    if hosted:
        source = request.whole[0]
        headers = tuple((name, one) for (name, _), one in zip(headers, request.whole[1:], strict=True))
    while True:
        unit = Unit(source, chosen, request.defines, request.file_name, request.folder, request.graded, headers, hosted)
        parameter_texts = tuple(texts.get(name.split("<")[0], "") for name in chosen)
        try:
            return _module(unit, parameter_texts)
        except CudaCompileError as error:
            numbers = {one.line - 1 for one in error.diagnostics if one.file == EXPORTS and one.line <= len(chosen)}
            if not numbers:
                raise
            left = tuple(name for number, name in enumerate(chosen) if number not in numbers)
            if not may_drop or not left:
                raise _about_exports(error, chosen) from None
            chosen = left


def _about_exports(error: CudaCompileError, chosen: tuple[str, ...]) -> CudaCompileError:
    """Replace errors about an export line by errors about the kernel that the line exports."""
    lines = dict.fromkeys(one.line - 1 for one in error.diagnostics if one.file == EXPORTS)
    told = tuple(
        Diagnostic(
            0, 0, f"{chosen[line]}: there is no such kernel; are its template arguments of the right number and kind?"
        )
        for line in lines
        if line < len(chosen)
    )
    return CudaCompileError("\n".join(map(str, told)), told)


@functools.lru_cache(maxsize=64)
def _remembered(unit: Unit, parameter_texts: tuple[str, ...], identity: tuple[str, str, str | None]) -> SimulatedModule:
    return SimulatedModule(unit, parameter_texts)


def _module(unit: Unit, parameter_texts: tuple[str, ...]) -> SimulatedModule:
    """Return the module, compiled once per interpreter as long as nothing that it depends on changes."""
    return _remembered(unit, parameter_texts, (unit.identity(), kit_identity(), os.environ.get("CXX")))
