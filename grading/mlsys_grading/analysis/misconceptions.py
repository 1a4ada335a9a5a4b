"""Comparison of an answer with the lab's wrong answers: by its code, and by how it fails the tests."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from mlsys_grading.analysis.tokens import lexemes, python_tree
from mlsys_grading.lab import Lab, Task, WrongAnswer
from mlsys_grading.result import CellMark

# A check's message ends in advice that quotes the student's line, whose names differ between students.
_ADVICE = re.compile(r"\s(?:meaning|next)\s.*", re.DOTALL)
_ADDRESS = re.compile(r"\b0x[0-9a-f]+\b")
_FLOAT = re.compile(r"\d+\.\d*(?:e[+-]?\d+)?|\d+e[+-]?\d+", re.IGNORECASE)
_BYTES = re.compile(r"\d[\d\s]*(?= B\b)")  # a peak varies, because it includes Python's own memory
_DIGITS = 4  # further digits depend on the order of a sum
# A cell that was never written, or does not even run, holds no misconception.
_NO_ANSWER = frozenset(("NotImplementedError", "NameError", "SyntaxError"))

How = Literal["same code", "same results", "same failures"]
HOWS: tuple[How, ...] = ("same code", "same results", "same failures")


@dataclass(frozen=True)
class Sign:
    """A test's failure: the kind of error and its message, without what differs from run to run."""

    kind: str
    words: str


Profile = Mapping[str, Sign]  # failed test -> how
Profiles = Mapping[tuple[str, str], Profile]  # (task, wrong answer) -> its failures


@dataclass(frozen=True)
class Resemblance:
    """A wrong answer that fits: by its code, by its result in each test, or (a weak hint) by which tests fail."""

    wrong: str
    misconception: str
    how: How


@functools.lru_cache(maxsize=1024)  # the wrong answers are compared with every student's
def canonical(source: str) -> str:
    """Reduce a program to its syntax: no docstrings, annotations, comments or layout, and numbered names.

    C++, and what does not parse, keeps its names.

    Example:
        >>> canonical("def f(x):\\n    y = abs(x)\\n    return y") == canonical("def f(a): b = abs(a); return b")
        True
        >>> canonical("def f(x, y): return x - y") == canonical("def f(x, y): return y - x")
        False
    """
    tree = python_tree(source)
    if tree is None:
        return " ".join(lexemes(source))
    numbers: dict[str, str] = {}
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                numbers.setdefault(name, f"v{len(numbers)}")
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                numbers.setdefault(name, f"v{len(numbers)}")
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                node.name = numbers[node.name]
            case ast.arg():
                node.arg = numbers[node.arg]
            case ast.Name():
                node.id = numbers.get(node.id, node.id)
    try:
        return ast.dump(tree)
    except RecursionError:
        return " ".join(lexemes(source))


def sign(kind: str, error: str) -> Sign:
    """Make a test's error comparable: leave out advice and addresses, round floats and bytes.

    Example:
        >>> sign("AssertionError", "expected 0.30000000000000004, got <f at 0x7f01>").words
        'expected 0.3, got <f at 0x>'
    """
    error = _ADDRESS.sub("0x", _ADVICE.sub("", error, count=1))
    error = _BYTES.sub(lambda match: f"{float(''.join(match[0].split())):.3g}", error)
    words = _FLOAT.sub(lambda match: f"{float(match[0]):.{_DIGITS}g}", error)
    return Sign(kind, " ".join(words.split()))


def marks_of(task: Task, marks: Iterable[CellMark]) -> list[CellMark]:
    """Return the marks of the task's tests."""
    names = {test.grade_id for test in task.tests}
    return [mark for mark in marks if mark.name in names]


def profile(task: Task, marks: Iterable[CellMark]) -> dict[str, Sign]:
    """Collect the failures of an answer: one for each test of the task that lost points."""
    lost = (mark for mark in marks_of(task, marks) if mark.points < mark.max_points)
    return {mark.name: sign(mark.kinds[0] if mark.kinds else "", mark.error) for mark in lost}


def resemblances(
    lab: Lab, task: Task, answer: str, failures: Profile, profiles: Profiles | None = None
) -> tuple[Resemblance, ...]:
    """Find the wrong answers that fit best: by code, else by results, else the only one that fails the same tests.

    Args:
        failures: of :func:`profile`; an answer without any resembles nothing.
        profiles: how the wrong answers fail, of ``profiles.find_profiles``; without it only code is compared.
    """
    if not failures:
        return ()
    text, wrongs = canonical(answer), lab.wrong_for(task.name)
    if same := [wrong for wrong in wrongs if canonical(wrong.source) == text]:
        return _alike(same, "same code")
    if {each.kind for each in failures.values()} & _NO_ANSWER:
        return ()
    known = {wrong: found for wrong in wrongs if (found := (profiles or {}).get((task.name, wrong.name)))}
    if same := [wrong for wrong, found in known.items() if found == failures]:
        return _alike(same, "same results")
    kinds = _kinds(failures)
    same = [wrong for wrong, found in known.items() if _kinds(found) == kinds]
    # Failures that several wrong answers share do not identify one of them.
    return _alike(same, "same failures") if len(same) == 1 else ()


def _alike(wrongs: Iterable[WrongAnswer], how: How) -> tuple[Resemblance, ...]:
    return tuple(Resemblance(wrong.name, wrong.misconception, how) for wrong in wrongs)


def _kinds(found: Profile) -> dict[str, str]:
    return {test: each.kind for test, each in found.items()}
