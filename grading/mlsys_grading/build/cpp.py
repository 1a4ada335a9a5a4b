"""Cells of CUDA C++, ``%%cuda name`` and ``%%cu``, to which no rule for Python applies."""

from __future__ import annotations

import re

_MAGIC = re.compile(r"\s*%%(cuda|cu)\b[ \t]*(?P<line>[^\n]*)")


def is_cpp(source: str) -> bool:
    """Return whether the cell is C++.

    Example:
        >>> is_cpp("%%cuda scale\\n__global__ void scale() {}"), is_cpp("%bench f(x)")
        (True, False)
    """
    return _MAGIC.match(source) is not None


def bound_name(source: str) -> str:
    """Return the variable that a ``%%cuda`` cell binds its kernel to; empty for any other cell."""
    found = _MAGIC.match(source)
    words = found["line"].split() if found and found[1] == "cuda" else []
    return next((word for word in words if word.isidentifier()), "")
