"""Tests that each planted bug gives its finding, by kind, line and array, and that the mended kernel gives none."""

from __future__ import annotations

from typing import Any

from mlsys_labkit.triton_trace import trace
from mlsys_labkit.triton_trace.source import KernelSource
from tests.triton.planted_bugs import PLANTED


def found_in(kernel: Any, bug: bool) -> Any:
    _, programs, arguments, block = PLANTED[kernel]
    return trace(kernel)[programs,](*arguments(), B=block, BUG=bug).findings


def test_planted_bugs_give_their_finding_in_their_line() -> None:
    missed = {}
    for kernel, (kind, *_) in PLANTED.items():
        found = [(one.kind, one.source_line, one.other_source_line) for one in found_in(kernel, True)]
        (line,) = (text.strip() for text in KernelSource.of(kernel).entry.text.splitlines() if text.endswith("# @"))
        if not any(one == kind and line in lines for one, *lines in found):
            missed[kernel.fn.__name__] = found
    assert missed == {}


def test_mended_kernels_give_no_finding() -> None:
    for kernel in PLANTED:
        found = [str(one) for one in found_in(kernel, False) if one.severity != "performance"]
        assert found == [], kernel.fn.__name__
