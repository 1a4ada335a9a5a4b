"""A kernel, its launch, and what ``check`` has to find in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from mlsys_labkit import cuda

F = np.float32


def floats(count: int) -> Any:
    return np.ones(count, F)


def ints(count: int) -> Any:
    return np.zeros(count, np.int32)


@dataclass(frozen=True)
class Case:
    """A kernel and its launch; for a planted bug, the kind of finding and the texts of both lines."""

    source: str
    block: int
    arguments: Callable[[], tuple[Any, ...]]
    grid: int = 1
    shared: int = 0
    kind: str = ""
    lines: tuple[str, str] = ("", "")
    also: frozenset[str] = field(default_factory=frozenset)  # kinds that may be found besides

    def find(self, seed: int = 0) -> list[Any]:
        check = compiled(self.source).check
        return (check.seeded(seed) if seed else check)[self.grid, self.block, self.shared](*self.arguments())

    def line(self, text: str) -> int:
        (number,) = [number for number, line in enumerate(self.source.splitlines(), 1) if text in line]
        return number


@cache
def compiled(source: str) -> Any:
    return cuda.compile(source, backend="simulator")


REVERSE = """
__global__ void f(float* a) {
    __shared__ float s[%(threads)d];
    s[threadIdx.x] = a[threadIdx.x];
    %(barrier)s
    a[threadIdx.x] = s[%(threads)d - 1 - threadIdx.x];
}
"""


def expect_planted(case: Case, seed: int) -> None:
    found = case.find(seed)
    wanted = tuple(case.line(text) if text else 0 for text in case.lines)
    assert (case.kind, *wanted) in [(each.kind, each.line, each.other_line) for each in found], found
    assert {each.kind for each in found} <= {case.kind} | case.also, found
