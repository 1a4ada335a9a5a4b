"""Stand-ins for NVIDIA's libraries: which of them a program calls, their objects, and the BLAS that numpy brings.

Only programs that call a library wait for its C++: each part is compiled once, when it is first needed.
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

_HOST = Path(__file__).parent / "native" / "host"
_PARTS = _HOST / "libraries"
_FLAGS = ("-std=c++17", "-O2", "-g1", "-fPIC", "-pthread", *(f"-I{folder}" for folder in (*INCLUDES, RUNTIME, _HOST)))
_LINEAR = ("blas", "blas_vectors", "blas_matrices", "products")
_NEEDED = {  # what the calls with a prefix need
    "cublas": _LINEAR,
    "cublasLt": ("blas_lt", "products"),
    "cublasXt": ("blas_xt", *_LINEAR),
    "cufft": ("fft",),
    "cusparse": ("sparse", "products"),
    "curand": ("random",),
}
_CALL = re.compile(rf"\b({'|'.join(sorted(_NEEDED, reverse=True))})[A-Z]\w+")


def needed(assembly: str) -> tuple[str, ...]:
    r"""Return the parts of the stand-ins that a compiled program calls.

    Example:
        >>> needed("\tcall\tcurandGenerate@PLT\n")
        ('random',)
    """
    prefixes = sorted(set(_CALL.findall(assembly)))
    return tuple(dict.fromkeys(part for prefix in prefixes for part in _NEEDED[prefix]))


def identity(pattern: str = "*.cpp") -> str:
    """Return a digest of the C++ of the stand-ins, or of those parts that the pattern names."""
    files = [*sorted(_PARTS.glob(pattern)), *sorted(_PARTS.glob("*.h")), *sorted(_HOST.glob("*.h"))]
    return digest(*(part for file in files for part in (file.name, file.read_bytes())))


def objects(parts: Iterable[str], toolchain: Toolchain, cache: Cache) -> list[Path]:
    """Return the compiled parts, from the cache if they are there.

    Raises CudaError for a part that does not compile.
    """

    def compiled(part: str) -> Path:
        name = f"library-{part}-{digest(toolchain.identity, headers_identity(), identity(f'{part}.cpp'), *_FLAGS)}"

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
