"""Requests are formed from the lanes that a GPU would have together.

Compared with an interpreter of structured programs, which runs a warp the way SIMT hardware is described: a mask of
active lanes, both sides of a branch one after the other, lanes that leave a loop waiting behind it. Programs are
generated; every load has a line of its own.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from mlsys_labkit import cuda

pytestmark = pytest.mark.usefixtures("checked_kernels")

LANES = 32
WORDS = 4096


# A program: nested lists of statements --------------------------------------------------------------


@dataclass(frozen=True)
class Load:
    """The statement ``x += a[p++]``."""


@dataclass(frozen=True)
class Leave:
    """A break or continue, for lanes whose next random bit is set."""

    word: str


@dataclass(frozen=True)
class If:
    then: tuple[Statement, ...]
    otherwise: tuple[Statement, ...]


@dataclass(frozen=True)
class Loop:
    """A loop whose number of iterations is two random bits of the lane."""

    body: tuple[Statement, ...]


@dataclass(frozen=True)
class Call:
    """A function that is not inlined."""

    body: tuple[Statement, ...]


Statement = Load | Leave | If | Loop | Call


def programs(depth: int = 3, in_loop: bool = False) -> st.SearchStrategy[tuple[Statement, ...]]:
    statements: list[st.SearchStrategy[Statement]] = [st.just(Load())]
    if in_loop:
        statements.append(st.sampled_from([Leave("break"), Leave("continue")]))
    if depth:
        inner = programs(depth - 1, in_loop)
        statements.append(st.builds(If, inner, st.one_of(st.just(()), inner)))
        statements.append(st.builds(Loop, programs(depth - 1, True)))
        statements.append(st.builds(Call, programs(depth - 1)))
    return st.lists(st.one_of(statements), min_size=1, max_size=4).map(tuple)


# Its text -------------------------------------------------------------------------------------------


@dataclass
class Text:
    """The CUDA C++ text of programs."""

    lines: list[str] = field(default_factory=list)
    loops: int = 0

    def kernel(self, number: int, program: tuple[Statement, ...]) -> list[int]:
        """Append the kernel of a program, and return the lines of its loads in the order of the text."""
        places: list[int] = []
        body = self._block(program, places)
        base = len(self.lines) + 1
        self.lines.append(f"__global__ void program{number}(const float* a, const unsigned* seeds, float* out) {{")
        self.lines.append("    unsigned r = seeds[threadIdx.x], p = r; float x = 0;")
        self.lines += body
        self.lines += ["    out[threadIdx.x] = x;", "}"]
        return [base + 2 + place for place in places]

    def _block(self, block: tuple[Statement, ...], places: list[int]) -> list[str]:
        lines: list[str] = []
        for statement in block:
            if isinstance(statement, Load):
                places.append(len(lines))
                lines.append(f"    x += a[p++ % {WORDS}u];")
            elif isinstance(statement, Leave):
                lines.append(f"    r = r * 1664525u + 1013904223u; if (r >> 31) {statement.word};")
            elif isinstance(statement, If):
                lines.append("    r = r * 1664525u + 1013904223u; if (r >> 31) {")
                self._append(lines, statement.then, places)
                lines.append("    } else {")
                self._append(lines, statement.otherwise, places)
                lines.append("    }")
            elif isinstance(statement, Loop):
                self.loops += 1
                name = f"i{self.loops}"
                lines.append("    r = r * 1664525u + 1013904223u;")
                lines.append(f"    for (unsigned {name} = r >> 30; {name} > 0; {name}--) {{")
                self._append(lines, statement.body, places)
                lines.append("    }")
            else:
                # A lambda that is called once would be inlined; the attribute prevents that.
                lines.append("    [&]() __attribute__((noinline)) {")
                self._append(lines, statement.body, places)
                lines.append("    }();")
        return lines

    def _append(self, lines: list[str], block: tuple[Statement, ...], places: list[int]) -> None:
        inner: list[int] = []
        text = self._block(block, inner)
        places += [len(lines) + place for place in inner]
        lines += text


# What hardware does ---------------------------------------------------------------------------------


class Warp:
    """A model of one warp that runs a program and counts requests and lanes of each load, in text order."""

    def __init__(self, program: tuple[Statement, ...], seeds: np.ndarray) -> None:
        self.random = seeds.copy()
        self.requests: Counter[int] = Counter()
        self.lanes: Counter[int] = Counter()
        self._run(program, np.ones(LANES, bool), [0])

    def _next(self, mask: np.ndarray) -> np.ndarray:
        following = self.random * np.uint32(1664525) + np.uint32(1013904223)
        self.random = np.where(mask, following, self.random)
        return self.random

    def _run(self, block: tuple[Statement, ...], mask: np.ndarray, number: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """Return the lanes that broke and those that continued. ``number`` counts the loads of the text."""
        broke = np.zeros(LANES, bool)
        continued = np.zeros(LANES, bool)
        for statement in block:
            active = mask & ~broke & ~continued
            if isinstance(statement, Load):
                self.requests[number[0]] += bool(active.any())
                self.lanes[number[0]] += int(active.sum())
                number[0] += 1
            elif isinstance(statement, Leave):
                leaving = active & (self._next(active) >> 31).astype(bool)
                if statement.word == "break":
                    broke |= leaving
                else:
                    continued |= leaving
            elif isinstance(statement, If):
                taken = active & (self._next(active) >> 31).astype(bool)
                for side, lanes in ((statement.then, taken), (statement.otherwise, active & ~taken)):
                    side_broke, side_continued = self._run(side, lanes, number)
                    broke |= side_broke
                    continued |= side_continued
            elif isinstance(statement, Loop):
                times = self._next(active) >> 30
                first = number[0]
                inside = active & (times > 0)
                while True:
                    number[0] = first
                    left, _ = self._run(statement.body, inside, number)
                    times = np.where(inside, times - 1, times)
                    inside = inside & ~left & (times > 0)
                    if not inside.any():
                        break
            else:
                self._run(statement.body, active, number)
        return broke, continued


# Not shrunk: each attempt is a compilation.
@settings(
    max_examples=4,
    deadline=None,
    derandomize=True,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)
@given(st.lists(programs(), min_size=8, max_size=8), st.integers(0, 2**32 - 1))
def test_requests_of_random_programs(batch: list[tuple[Statement, ...]], seed: int) -> None:
    text = Text()
    lines = [text.kernel(number, program) for number, program in enumerate(batch)]
    kernels = cuda.compile_all("\n".join(text.lines))
    seeds = np.random.default_rng(seed).integers(0, 2**32, LANES, dtype=np.uint32)
    a = np.ones(WORDS, np.float32)
    for number, (program, places) in enumerate(zip(batch, lines, strict=True)):
        profile = kernels[f"program{number}"].profile[1, LANES](a, seeds, np.zeros(LANES, np.float32))
        oracle = Warp(program, seeds)
        counted = {line.line: (line.requests, line.lanes) for line in profile.lines if line.op == "load"}
        expected = {line: (oracle.requests[i], oracle.lanes[i]) for i, line in enumerate(places) if oracle.lanes[i]}
        assert {line: counted.get(line) for line in expected} == expected, "\n".join(text.lines)
