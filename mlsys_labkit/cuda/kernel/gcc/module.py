"""kernel.so: compiled once per build and kept in the cache; this process never loads it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlsys_labkit.cuda.cache import Cache, digest
from mlsys_labkit.cuda.kernel.gcc import compiler
from mlsys_labkit.cuda.kernel.gcc.copies import with_copy_parts
from mlsys_labkit.cuda.kernel.gcc.diagnostics import compile_error, linker_diagnostics, read_diagnostics
from mlsys_labkit.cuda.kernel.gcc.flags import Build, compile_flags, graded_flags, hosted_flags, link_flags
from mlsys_labkit.cuda.kernel.gcc.graded import check_module, check_text
from mlsys_labkit.cuda.kernel.gcc.headers import (
    PROGRAM_PRELUDE,
    headers_identity,
    kit_identity,
    precompile,
    precompiled,
)
from mlsys_labkit.cuda.kernel.gcc.red_zones import with_red_zones
from mlsys_labkit.cuda.kernel.gcc.toolchain import Toolchain
from mlsys_labkit.cuda.kernel.gcc.unit import Unit
from mlsys_labkit.cuda.kernel.gcc.vectors import with_vectors
from mlsys_labkit.cuda.source.host_calls import host_calls
from mlsys_labkit.cuda.source.host_variables import host_variables
from mlsys_labkit.cuda.source.left_out import explained, kernel_results, left_out, of_programs, shared_values

_RUNTIMES_OWN = re.compile(r"^(?:lk_|__tsan_|__sanitizer_cov_|__ubsan_handle_(?:divrem_overflow|out_of_bounds))")


@dataclass(frozen=True)
class CompiledModule:
    """A kernel.so and what it was made from.

    Attributes:
        path: the file; its folder is an entry of the cache.
        unit: its source; ``unit.kernels`` are those that can be called, in their order.
    """

    path: Path
    unit: Unit
    build: Build


def compile_module(
    unit: Unit, build: Build, toolchain: Toolchain, cache: Cache, beside: Callable[[], Any] | None = None
) -> CompiledModule:
    """Return the compiled unit, from the cache if it is there.

    ``beside`` is other work that the first launch will need: it is done meanwhile, if anything has to be compiled.

    Raises CudaCompileError for a source that g++ refuses, CudaError when the machine cannot compile it.
    """
    flags = compile_flags(build, toolchain)
    if unit.hosted:
        flags = hosted_flags(flags)
    if unit.graded:
        flags = graded_flags(flags)
    name = f"kernel-{digest(unit.identity(), toolchain.identity, toolchain.cpu, kit_identity(), *flags)}"

    def make(folder: Path) -> None:
        with compiler.threads(1) as pool:
            meanwhile = pool.submit(beside) if beside else None
            header = _prelude(flags, toolchain, cache) if unit.hosted else precompiled(build, toolchain, cache)
            _compile(unit, [*flags, "-include", str(header)], folder, toolchain)
            if meanwhile:
                compiler.result(meanwhile)

    entry = cache.fetch(name, make)
    return CompiledModule(entry / "kernel.so", unit, build)


def _prelude(flags: Sequence[str], toolchain: Toolchain, cache: Cache) -> Path:
    """Return the header of whole programs, precompiled with the flags for kernels."""
    identity = digest(toolchain.identity, toolchain.cpu, headers_identity(), PROGRAM_PRELUDE, *flags)
    return precompile(f"hosted-prelude-{identity}", PROGRAM_PRELUDE, flags, toolchain, cache)


def _compile(unit: Unit, flags: list[str], folder: Path, toolchain: Toolchain) -> None:
    looks = (shared_values, kernel_results)
    named = [("", unit.source), *unit.headers]
    refused = [found for name, one in named for look in looks for found in look(one, name)]
    everything = [one for _, one in named]
    refused += [found for name, one in named for found in host_calls(one, name, everything)]
    refused += [found for name, one in named for found in host_variables(one, name, everything)]
    if refused:
        raise compile_error(refused, "")
    files = unit.files()
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8", errors="surrogateescape", newline="")
    beside = [f"-iquote{unit.folder}"] if unit.folder else []
    drop = ["-Wl,--gc-sections"] if unit.hosted else []
    if unit.graded:
        check_text(unit, toolchain, folder)
    try:
        compiler.run(toolchain, [*flags, *beside, f"-ffile-prefix-map={folder}=.", "-S", "unit.cpp"], folder)
        assembly = folder / "unit.s"
        if "-fsanitize=thread" in flags:
            text = assembly.read_text(encoding="utf-8", errors="surrogateescape")
            assembly.write_text(
                with_red_zones(with_copy_parts(with_vectors(text))), encoding="utf-8", errors="surrogateescape"
            )
        said = compiler.run(toolchain, [*link_flags(), *drop, "unit.s", "-o", "kernel.so"], folder)
        if unit.graded:
            check_module(folder / "kernel.so", assembly.read_text(encoding="utf-8", errors="surrogateescape"))
        for used in (assembly, *(folder / name for name in files)):
            used.unlink()
    except compiler.CompilerFailed as failed:
        said = failed.text
        headers = {name: one.text for name, one in unit.headers}
        diagnostics = read_diagnostics(said, unit.name, unit.source.text, headers) or linker_diagnostics(said)
        known = [found for name, one in named for found in left_out(one, name)]
        known += [] if unit.hosted else of_programs(unit.source)
        raise compile_error(explained(known, diagnostics), said) from None
    undefined = [one for one in linker_diagnostics(said) if not _RUNTIMES_OWN.match(one.text)]
    if undefined:
        raise compile_error(undefined, said)
