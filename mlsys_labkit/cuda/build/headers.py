"""The headers that a kernel sees: which they are, their precompiled form, and that they come before its text."""

from __future__ import annotations

import functools
import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

from mlsys_labkit.cuda.build import compiler
from mlsys_labkit.cuda.build.cache import Cache, digest
from mlsys_labkit.cuda.build.flags import INCLUDE, RUNTIME, Build, compile_flags
from mlsys_labkit.cuda.build.toolchain import Toolchain
from mlsys_labkit.cuda.errors import CudaError
from mlsys_labkit.cuda.source.tokens import tokenize

__all__ = ["HEADER", "PRELUDE", "headers_identity", "included_first", "kit_identity", "precompiled", "precompiled_name"]

PRELUDE = '#include "lk/kernel.h"\n'
HEADER = "labkit.h"
_INCLUDE = re.compile(r"#[ \t]*include[ \t]*[<\"]([^>\"\n]+)[>\"]")
_NOT_CUDAS = ("helper_", "textbook/")  # samples' and books' own: plain code, as open to macros there as here


def included_first(texts: Iterable[str]) -> list[str]:
    """Lines that include, before any of the texts, each header of CUDA's that one of them includes.

    So no macro of a student's, such as ``#define Value 16``, changes what one of our headers says.

    Example:
        >>> included_first(["#define T float\\n#include <vector>\\n#include <mma.h>", "// #include <curand.h>"])
        ['#include <mma.h>']
    """
    directives = (token.text for text in texts for token in tokenize(text) if token.kind == "directive")
    names = dict.fromkeys(found[1] for each in directives if (found := _INCLUDE.match(each)))
    return [f"#include <{name}>" for name in names if (INCLUDE / name).is_file() and not name.startswith(_NOT_CUDAS)]


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
