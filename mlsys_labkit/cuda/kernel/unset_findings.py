"""Findings about local variables that no statement sets, which the text of a kernel shows and no launch can."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from mlsys_labkit.cuda.finding import KernelFinding
from mlsys_labkit.cuda.source.source import Source
from mlsys_labkit.cuda.source.unset import UnsetVariable, unset_variables


def unset_findings(source: str, kernels: Iterable[str] = ()) -> list[KernelFinding]:
    """Return a finding for each unset variable of ``kernels`` and of the functions that they call; () is all kernels.

    Example:
        >>> print(unset_findings("__global__ void k(int* x) {\\n  int n;\\n  n += *x;\\n  *x = n;\\n}")[0])
        uninitialized variable: n is used in k before it has a value; give it one in line 2, where it is declared
          line 3: n += *x;
          line 2: int n;
    """
    found = dict.fromkeys(unset for kernel in tuple(kernels) or (None,) for unset in _unset(source, kernel))
    lines = source.split("\n")
    return [
        KernelFinding(
            "uninitialized_variable",
            f"{one.name} is used in {one.function} before it has a value; give it one in line {one.declared}, where it "
            "is declared",
            line=one.line,
            source_line=lines[one.line - 1],
            other_line=one.declared,
            other_source_line=lines[one.declared - 1],
            array=one.name,
        )
        for one in found
    ]


def with_unset(unset: Iterable[KernelFinding], found: Iterable[KernelFinding]) -> list[KernelFinding]:
    """Return findings of the text, then those of a launch, each variable once."""
    known = list(unset)
    named = {(one.kind, one.array) for one in known}
    return known + [one for one in found if (one.kind, one.array) not in named]


@functools.lru_cache(maxsize=64)
def _unset(source: str, kernel: str | None) -> tuple[UnsetVariable, ...]:
    return tuple(unset_variables(Source(source), kernel))
