"""A cell that nobody has solved yet: nbgrader's Python where C++ is to be written."""

from __future__ import annotations

import re

__all__ = ["is_unsolved"]

_STUB = re.compile(r"^[ \t]*raise NotImplementedError\b", re.MULTILINE)


def is_unsolved(source: str) -> bool:
    """Whether the source holds nbgrader's stub. It is no C++, so that no solved source can.

    Example:
        >>> is_unsolved("__global__ void f() {\\n  // YOUR CODE HERE\\n  raise NotImplementedError()\\n}")
        True
    """
    return _STUB.search(source) is not None
