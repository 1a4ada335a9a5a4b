"""The headers that a kernel sees: which they are, and their precompiled form."""

from __future__ import annotations

import functools
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from mlsys_labkit.cuda.build import compiler
from mlsys_labkit.cuda.build.cache import Cache, digest
from mlsys_labkit.cuda.build.flags import INCLUDE, RUNTIME, Build, compile_flags
from mlsys_labkit.cuda.build.toolchain import Toolchain
from mlsys_labkit.cuda.errors import CudaError

__all__ = ["HEADER", "PRELUDE", "headers_identity", "kit_identity", "precompiled", "precompiled_name"]

PRELUDE = '#include "lk/kernel.h"\n'
HEADER = "labkit.h"


def headers_identity() -> str:
    """Changes with any of the headers."""
    return _identity((*INCLUDE.rglob("*"), *RUNTIME.glob("*.h")))


def kit_identity() -> str:
    """Changes with the headers, and with how the student's source is read, changed and compiled."""
    here = Path(__file__).parent
    return headers_identity() + _identity((*here.glob("*.py"), *here.with_name("source").glob("*.py")))


def _identity(paths: Iterable[Path]) -> str:
    stats = [(os.fspath(path), path.stat()) for path in sorted(paths)]
    return _contents(tuple((name, one.st_mtime_ns, one.st_size) for name, one in stats if stat.S_ISREG(one.st_mode)))


@functools.lru_cache(maxsize=8)
def _contents(files: tuple[tuple[str, int, int], ...]) -> str:
    return digest(*(part for name, _, _ in files for part in (name, Path(name).read_bytes())))


def precompiled_name(build: Build, toolchain: Toolchain) -> str:
    """The cache entry's name."""
    flags = compile_flags(build, toolchain)
    return f"headers-{build.value}-{digest(toolchain.identity, toolchain.cpu, headers_identity(), PRELUDE, *flags)}"


def precompiled(build: Build, toolchain: Toolchain, cache: Cache) -> Path:
    """A header for ``-include`` that g++ reads in its precompiled form, made if it is not there."""

    def make(folder: Path) -> None:
        header = folder / HEADER
        header.write_text(PRELUDE, encoding="utf-8")
        flags = compile_flags(build, toolchain)
        try:
            compiler.run(toolchain, [*flags, "-x", "c++-header", HEADER, "-o", f"{HEADER}.gch"], folder)
        except compiler.CompilerFailed as failed:
            first = next((line for line in failed.text.splitlines() if "error" in line), failed.text[-300:])
            raise CudaError(f"the CUDA headers do not compile with g++ {toolchain.version}: {first}") from None

    return cache.fetch(precompiled_name(build, toolchain), make) / HEADER
