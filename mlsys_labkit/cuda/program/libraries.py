"""Stand-ins for NVIDIA's libraries: which of them a program includes, their objects, and the BLAS that numpy brings.

Only programs that include such a header wait for its C++: each part is compiled once, when it is first needed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from mlsys_labkit.cuda.cache import Cache, digest
from mlsys_labkit.cuda.errors import CudaError
from mlsys_labkit.cuda.kernel.gcc import compiler
from mlsys_labkit.cuda.kernel.gcc.flags import INCLUDES, RUNTIME
from mlsys_labkit.cuda.kernel.gcc.headers import headers_identity
from mlsys_labkit.cuda.kernel.gcc.toolchain import Toolchain
from mlsys_labkit.cuda.source.source import Source

_HOST = Path(__file__).parent / "native" / "host"
_PARTS = _HOST / "libraries"
_FLAGS = ("-std=c++17", "-O2", "-g1", "-fPIC", "-pthread", *(f"-I{folder}" for folder in (*INCLUDES, RUNTIME, _HOST)))
_LINEAR = ("blas", "blas_vectors", "blas_matrices", "products")
_NEEDED = (  # what a header needs
    ("cublas_v2.h", _LINEAR),
    ("cublas_api.h", _LINEAR),
    ("cublasLt.h", ("blas_lt", *_LINEAR)),
    ("cublasXt.h", ("blas_xt", *_LINEAR)),
    ("curand.h", ("random",)),
)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<](?:[^">\n]*/)?([^">/\n]+)[">]', re.MULTILINE)


def needed(sources: Iterable[Source]) -> tuple[str, ...]:
    """Return the parts of the stand-ins that these sources need.

    Example:
        >>> needed([Source("#include <cstdio>\\n#include <curand.h>\\n")])
        ('random',)
    """
    included = {name for source in sources for name in _INCLUDE.findall(source.text)}
    return tuple(dict.fromkeys(part for header, parts in _NEEDED if header in included for part in parts))


def identity(parts: Iterable[str]) -> str:
    """Return a digest of the C++ of these parts; empty without any."""
    chosen = [_PARTS / f"{part}.cpp" for part in parts]
    files = [*chosen, *sorted(_PARTS.glob("*.h")), *sorted(_HOST.glob("*.h"))] if chosen else []
    return digest(*(part for file in files for part in (file.name, file.read_bytes()))) if files else ""


def objects(parts: Iterable[str], toolchain: Toolchain, cache: Cache) -> list[Path]:
    """Return the compiled parts, from the cache if they are there.

    Raises CudaError for a part that does not compile.
    """

    def compiled(part: str) -> Path:
        name = f"library-{part}-{digest(toolchain.identity, headers_identity(), identity([part]), *_FLAGS)}"

        def make(folder: Path) -> None:
            try:
                compiler.run(toolchain, [*_FLAGS, "-c", _PARTS / f"{part}.cpp", "-o", f"{part}.o"], folder)
            except compiler.CompilerFailed as failed:
                first = next((line for line in failed.text.splitlines() if "error" in line), "")
                raise CudaError(f"{part}.cpp does not compile with g++ {toolchain.version}: {first}") from None

        return cache.fetch(name, make) / f"{part}.o"

    with compiler.threads(os.cpu_count() or 1) as pool:
        return [compiler.result(one) for one in [pool.submit(compiled, part) for part in parts]]


def environment() -> dict[str, str]:
    """Return the variable that tells a program where numpy's OpenBLAS is; none where numpy has another BLAS."""
    numpy = find_spec("numpy")
    if numpy is None or numpy.origin is None:
        return {}
    folder = Path(numpy.origin).parents[1] / "numpy.libs"
    found = sorted(folder.glob("lib*openblas64_*.so*"))
    return {"LK_OPENBLAS": os.fspath(found[0])} if found else {}
