"""The stub of a cell that is not solved yet, which stands where C++ is to be written."""

from __future__ import annotations

import re

CPP_STUB = '// YOUR CODE HERE, in place of the next line\n#error "not written yet"'
"""What a lab shows in place of a solution in C++."""
# The second is Python code, which nbgrader puts into every cell of a Python notebook by default.
_STUB = re.compile(r'^[ \t]*(?:#error "not written yet"|raise NotImplementedError\b)', re.MULTILINE)


def stub_line(source: str) -> int:
    """Return the line of the first stub, from 1; 0 without one. A stub is not valid C++, so no solved source has one.

    Example:
        >>> stub_line("__global__ void f() {\\n  // YOUR CODE HERE\\n  raise NotImplementedError()\\n}")
        3
    """
    found = _STUB.search(source)
    return source.count("\n", 0, found.start()) + 1 if found else 0
