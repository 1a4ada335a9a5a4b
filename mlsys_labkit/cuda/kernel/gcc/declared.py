"""The names that the kit's own headers have, which tell what a source may use of NVIDIA's libraries."""

from __future__ import annotations

import functools
import re

from mlsys_labkit.cuda.kernel.gcc.flags import INCLUDES

_NAME = re.compile(r"\b[A-Za-z_]\w+")


@functools.cache
def names_in_headers() -> frozenset[str]:
    """Return every identifier in the headers of kernels and of programs.

    Example:
        >>> {"cudaMalloc", "cublasSgemm", "cuMemMap"} - names_in_headers()
        {'cuMemMap'}
    """
    files = (path for folder in INCLUDES for path in folder.rglob("*") if path.is_file())
    return frozenset(name for path in files for name in _NAME.findall(path.read_text(encoding="utf-8")))
