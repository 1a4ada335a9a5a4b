"""Kernels that some threads leave early: what these threads do not reach, they need not take part in."""

from __future__ import annotations

from mlsys_labkit.cuda.source.functions import device_functions
from mlsys_labkit.cuda.source.source import Source


def may_have_returned(source: Source, kernel: str, line: int) -> bool:
    """Return whether a ``return`` stands before ``line`` in the kernel; anywhere in it if the line is not the kernel's.

    Example:
        >>> text = "__global__ void k(int n) {\\n  if (threadIdx.x >= n) return;\\n  __syncwarp();\\n}"
        >>> may_have_returned(Source(text), "k", 3), may_have_returned(Source(text), "k", 1)
        (True, False)
    """
    name = kernel.split("<")[0].split("::")[-1].strip("() ")
    code = source.code
    for function in device_functions(source):
        if function.name != name:
            continue
        first, last = code[function.opening].line, code[function.closing].line
        words = code[function.opening : function.closing]
        if any(token.text == "return" and (token.line < line or not first <= line <= last) for token in words):
            return True
    return False
