"""The headers of kernels: their identity, their precompiled form, and the lines that include them first."""

from __future__ import annotations

import functools
import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

from mlsys_labkit.cuda.cache import Cache, digest
from mlsys_labkit.cuda.errors import CudaError
from mlsys_labkit.cuda.kernel.gcc import compiler
from mlsys_labkit.cuda.kernel.gcc.flags import INCLUDES, RUNTIME, Build, compile_flags
from mlsys_labkit.cuda.kernel.gcc.toolchain import Toolchain
from mlsys_labkit.cuda.source.source import Source

PRELUDE = '#include "lk/kernel.h"\n'
PROGRAM_PRELUDE = '#include "lk/prelude.h"\n#include "lk/export.h"\n#include "lk/host/runtime.h"\n'
HEADER = "labkit.h"
_INCLUDE = re.compile(r"#[ \t]*include[ \t]*[<\"]([^>\"\n]+)[>\"]")
# Special functions of C++17's <cmath>. In the precompiled headers they would take a third of each compilation's time.
# The word beta alone is more often a factor.
_SPECIAL_MATH = re.compile(
    r"\b(?:(?:assoc_(?:laguerre|legendre)|(?:comp_)?ellint_[123]|(?:conf_)?hyperg|cyl_bessel_[ijk]|(?:cyl|sph)_neumann|"
    r"sph_(?:bessel|legendre)|expint|hermite|laguerre|legendre|riemann_zeta|airy_[ab]i)[fl]?\b|beta[fl]?\s*\(|"
    r"std\s*::\s*beta[fl]?\b)|MATH_SPEC|math_special"
)
_NOT_CUDAS = ("helper_", "textbook/")  # headers of samples and books: macros may affect them, as with nvcc


def included_first(sources: Iterable[Source]) -> list[str]:
    """Return lines that include, before any of the sources, each header of CUDA's that one of them includes.

    Therefore a student's macro, such as ``#define Value 16``, cannot change one of our headers. The special functions
    of C++17's ``<cmath>`` come with them where a source names one.

    Example:
        >>> included_first([Source("#define T float\\n#include <vector>\\n#include <mma.h>\\n// #include <curand.h>")])
        ['#include <mma.h>']
    """
    sources = list(sources)
    directives = (token.text for source in sources for token in source.tokens if token.kind == "directive")
    names = dict.fromkeys(found[1] for each in directives if (found := _INCLUDE.match(each)))
    special = ['#include "lk/special_math.h"'] if any(_SPECIAL_MATH.search(source.text) for source in sources) else []
    return special + [
        f"#include <{name}>"
        for name in names
        if any((folder / name).is_file() for folder in INCLUDES) and not name.startswith(_NOT_CUDAS)
    ]


def headers_identity() -> str:
    """Return a digest of the headers."""
    own = (name for name in _files(RUNTIME) if name.endswith(".h"))
    return _identity([*(name for folder in INCLUDES for name in _files(folder)), *own])


def kit_identity() -> str:
    """Return a digest of the headers and of the code that reads, changes and compiles the student's source."""
    here = Path(__file__).parent
    room = here.parents[1]
    return headers_identity() + _identity(
        [*map(str, here.glob("*.py")), *map(str, (room / "source").glob("*.py")), str(room / "program" / "rewrite.py")]
    )


def _files(folder: Path) -> Iterable[str]:
    """Yield the files of a folder and of those in it: each compilation asks, and ``Path.rglob`` takes longer."""
    for here, _, names in os.walk(folder):
        for name in names:
            yield f"{here}/{name}"


def _identity(paths: Iterable[str]) -> str:
    stats = [(name, os.stat(name)) for name in sorted(paths)]
    return _contents(tuple((name, one.st_mtime_ns, one.st_size) for name, one in stats if stat.S_ISREG(one.st_mode)))


@functools.lru_cache(maxsize=8)
def _contents(files: tuple[tuple[str, int, int], ...]) -> str:
    return digest(*(part for name, _, _ in files for part in (name, Path(name).read_bytes())))


def precompiled_name(build: Build, toolchain: Toolchain) -> str:
    """Return the cache entry's name."""
    flags = compile_flags(build, toolchain)
    return f"headers-{build.value}-{digest(toolchain.identity, toolchain.cpu, headers_identity(), PRELUDE, *flags)}"


def precompiled(build: Build, toolchain: Toolchain, cache: Cache) -> Path:
    """Return the header of kernels for ``-include``, whose precompiled form lies beside it."""
    name, flags = precompiled_name(build, toolchain), compile_flags(build, toolchain)
    return precompile(name, PRELUDE, flags, toolchain, cache)


def precompile(name: str, text: str, flags: Iterable[str], toolchain: Toolchain, cache: Cache) -> Path:
    """Return a header with this text, and its precompiled form beside it; make both if the entry is not there.

    Raises CudaError when the text does not compile.
    """

    def make(folder: Path) -> None:
        (folder / HEADER).write_text(text, encoding="utf-8")
        try:
            compiler.run(toolchain, [*flags, "-x", "c++-header", HEADER, "-o", f"{HEADER}.gch"], folder)
        except compiler.CompilerFailed as failed:
            first = next((line for line in failed.text.splitlines() if "error" in line), failed.text[-300:])
            raise CudaError(f"the CUDA headers do not compile with g++ {toolchain.version}: {first}") from None

    return cache.fetch(name, make) / HEADER
