"""Tests that each planted bug gives its finding, by kind and line, and that the mended kernel gives none."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from mlsys_labkit.triton_trace import trace
from mlsys_labkit.triton_trace.source import KernelSource
from tests.triton.gluon.planted_bugs import PLANTED, copy_that_another_partition_waits_for


def found_in(kernel: Any, bug: bool) -> Any:
    _, described = PLANTED[kernel]
    out = np.zeros(256, np.float32)
    x: Any = np.ones(256, np.float32)
    if described:
        layout = gl.NVMMASharedLayout.get_default_for([64, 64], gl.float16)
        x = TensorDescriptor.from_tensor(torch.ones(64, 64, dtype=torch.float16), [64, 64], layout)
    return [one for one in trace(kernel)[1,](x, out, BUG=bug).findings if one.severity == "error"]


def test_planted_bugs_give_their_finding_in_their_line() -> None:
    missed = {}
    for kernel, (kind, _) in PLANTED.items():
        found = [(one.kind, one.source_line) for one in found_in(kernel, True)]
        (line,) = (text.strip() for text in KernelSource.of(kernel).entry.text.splitlines() if text.endswith("# @"))
        if (kind, line) not in found:
            missed[kernel.fn.__name__] = found
    assert missed == {}


def test_mended_kernels_give_no_finding() -> None:
    found = {kernel.fn.__name__: [str(one) for one in found_in(kernel, False)] for kernel in PLANTED}
    assert {name: one for name, one in found.items() if one} == {}


def test_a_wait_of_another_partition_is_no_wait_of_the_reader() -> None:
    found = {}
    for bug in (True, False):
        findings = trace(copy_that_another_partition_waits_for)[1,](
            np.ones(128, np.float32), np.zeros(128, np.float32), BUG=bug
        ).findings
        found[bug] = [(one.kind, one.source_line) for one in findings if one.severity == "error"]
    assert found == {True: [("missing_wait", "gl.store(out + i, memory.load(ROW))")], False: []}
