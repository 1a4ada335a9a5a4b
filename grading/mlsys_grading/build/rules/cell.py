"""The input of a rule for test cells, and the objections that it yields."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from mlsys_grading.build.python import dotted

Objection = tuple[int, str, str]  # line in the cell, problem, what to write instead


@dataclass(frozen=True)
class Student:
    """The names that the solution cells define."""

    functions: frozenset[str]
    classes: frozenset[str]
    returns: Mapping[str, str]  # function -> the student's class that it is annotated to return


@dataclass(frozen=True)
class TestCell:
    """One test cell as the rules see it."""

    __test__ = False  # keeps pytest from collecting this class
    tree: ast.Module
    visible: ast.Module  # without its hidden tests: what students run
    names: Mapping[str, str]  # what imports anywhere in the notebook bind
    student: Student

    def called(self, call: ast.Call) -> str:
        return dotted(call.func, self.names)
