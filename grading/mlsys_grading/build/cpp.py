"""Cells that hold CUDA C++: ``%%cuda name`` and ``%%cu``. No rule for Python is asked about what stands in them."""

from __future__ import annotations

import re

_MAGIC = re.compile(r"\s*%%(cuda|cu)\b[ \t]*(?P<line>[^\n]*)")


def is_cpp(source: str) -> bool:
    """Whether the cell is C++.

    Example:
        >>> is_cpp("%%cuda scale\\n__global__ void scale() {}"), is_cpp("%bench f(x)")
        (True, False)
    """
    return _MAGIC.match(source) is not None


def bound_name(source: str) -> str:
    """The variable that a ``%%cuda`` cell binds its kernel to; empty for any other cell."""
    found = _MAGIC.match(source)
    words = found["line"].split() if found and found[1] == "cuda" else []
    return next((word for word in words if word.isidentifier()), "")
