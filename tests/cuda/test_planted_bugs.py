"""``check`` finds each planted bug, with its kind and its line, and nothing in correct code that looks like one."""

from __future__ import annotations

import numpy as np
import pytest

from mlsys_labkit import cuda
from tests.cuda.planted_bugs import PROGRAMS, WORDS, planted_kernels
from tests.cuda.program_helpers import run

SOURCE, KERNELS = planted_kernels()


@pytest.mark.parametrize(("name", "kind", "block", "empty", "line"), KERNELS, ids=[case[0] for case in KERNELS])
def test_planted_bug_in_a_kernel_is_found(name: str, kind: str, block: int, empty: bool, line: int) -> None:
    kernel = cuda.compile_all(SOURCE, backend="simulator")[name]
    a, b = np.ones(64, np.float32), np.arange(64, dtype=np.int32)
    arrays = (cuda.empty(64), cuda.empty(64, np.int32)) if empty else (cuda.to_device(a), cuda.to_device(b))
    found = kernel.check[1, block, 256](*arrays, 64)
    if kind == "nothing":
        assert not found
    else:
        assert {(one.kind, one.line) for one in found} == {(kind, line)}, found
        assert WORDS.get(name, "") in found[0].message


@pytest.mark.parametrize("name", PROGRAMS)
def test_planted_bug_in_a_program_is_found(name: str) -> None:
    text, kind, marker = PROGRAMS[name]
    result = run(text, check=True)
    numbers = [number for number, line in enumerate(text.splitlines(), 1) if (marker or "// @") in line]
    if kind == "nothing":
        assert (result.findings, result.notes) == ((), ()), result
    elif marker:
        assert {(one.kind, one.line) for one in result.findings} == {(kind, numbers[0])}, result
        assert WORDS.get(name, "") in result.findings[0].message
    else:
        assert not result.stopped
        assert any(kind in note and f"line {numbers[-1]}" in note for note in result.notes), result
