"""One cell as the build's rules see it: which functions, classes, objects and answers in it are the student's."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from mlsys_grading.build.cpp import bound_name
from mlsys_grading.build.python import calls, dotted
from mlsys_grading.examine.kernels import is_triton
from mlsys_grading.lab import Lab

Origin = Literal["function", "class", "object", "answer", ""]


@dataclass(frozen=True)
class StudentNames:
    """The names that the solution cells bind.

    Attributes:
        functions: by name, with their definitions; without kernels, which cross as text.
        kernels: names of the CUDA and Triton kernels.
        classes: by name, with their definitions.
        values: other names, assigned at the top level.
        makes: function -> the student's class that it is annotated to return.
    """

    functions: Mapping[str, ast.FunctionDef | ast.AsyncFunctionDef]
    kernels: frozenset[str]
    classes: Mapping[str, ast.ClassDef]
    values: frozenset[str]
    makes: Mapping[str, str]

    @cached_property
    def methods(self) -> frozenset[str]:
        """The names of the methods of all classes."""
        return frozenset(name for kind in self.classes.values() for name in methods_of(kind))


def student_names(lab: Lab, trees: Mapping[int, ast.Module]) -> StudentNames:
    """Return what the solution cells of a lab bind; ``trees``: index of a code cell -> its tree."""
    functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}
    classes: dict[str, ast.ClassDef] = {}
    values: set[str] = set()
    solutions = [cell for cell in lab.cells if cell.is_solution and cell.index in trees]
    kernels = {bound_name(cell.source) for cell in solutions} - {""}
    for node in (node for cell in solutions for node in trees[cell.index].body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if is_triton(node):
                kernels.add(node.name)
            else:
                functions[node.name] = node
        elif isinstance(node, ast.ClassDef):
            classes[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            values |= {name.id for each in targets for name in ast.walk(each) if isinstance(name, ast.Name)}
    returns = {name: ast.unparse(node.returns).strip("'\"") for name, node in functions.items() if node.returns}
    makes = {name: kind for name, kind in returns.items() if kind in classes}
    return StudentNames(functions, frozenset(kernels), classes, frozenset(values), makes)


def methods_of(kind: ast.ClassDef) -> set[str]:
    return {each.name for each in kind.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}


@dataclass(frozen=True)
class View:
    """One cell as the rules see it. ``names``: what imports anywhere in the notebook stand for."""

    tree: ast.Module
    names: Mapping[str, str]
    student: StudentNames

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        return tuple(ast.walk(self.tree))

    @cached_property
    def calls(self) -> Sequence[ast.Call]:
        return calls(self.tree)

    @cached_property
    def assigned(self) -> Mapping[str, ast.expr]:
        """The expression last assigned to each variable by a plain assignment or a ``with``."""
        pairs = {}
        for node in self.nodes:
            if isinstance(node, ast.Assign):
                pairs.update({each.id: node.value for each in node.targets if isinstance(each, ast.Name)})
            elif isinstance(node, ast.With):
                for item in node.items:
                    if isinstance(item.optional_vars, ast.Name):
                        pairs[item.optional_vars.id] = item.context_expr
        return pairs

    @cached_property
    def student_calls(self) -> tuple[ast.Call, ...]:
        """The calls of student functions, classes and methods of student objects."""
        return tuple(call for call in self.calls if self.is_student_call(call))

    def calls_student(self, *nodes: ast.AST) -> bool:
        """Return whether one of the nodes contains a student call."""
        return any(each in self.student_calls for node in nodes for each in ast.walk(node))

    def called(self, node: ast.AST) -> str:
        """Return the dotted name of what a call calls, or of a name itself."""
        return dotted(node.func if isinstance(node, ast.Call) else node, self.names)

    def origin(self, node: ast.AST, depth: int = 0) -> Origin:
        """Return which kind of student name an expression is; "answer": returned by a call or an attribute."""
        if depth > 8:
            return ""
        if isinstance(node, ast.Name):
            if node.id in self.assigned and node.id not in self.student.functions:
                return self.origin(self.assigned[node.id], depth + 1)
            if node.id in self.student.functions:
                return "function"
            return "class" if node.id in self.student.classes else ""
        if isinstance(node, ast.Call) and self.is_student_call(node, depth + 1):
            return "object" if self.class_of(node) else "answer"
        if isinstance(node, ast.Attribute) and self.origin(node.value, depth + 1) in ("object", "class"):
            return "answer"
        if isinstance(node, ast.Subscript) and self.origin(node.value, depth + 1) in ("object", "answer"):
            return "answer"
        return ""

    def is_student_call(self, call: ast.Call, depth: int = 0) -> bool:
        function = call.func
        if self.origin(function, depth + 1) in ("function", "class"):
            return True
        return isinstance(function, ast.Attribute) and self.origin(function.value, depth + 1) in ("object", "class")

    def class_of(self, node: ast.AST, depth: int = 0) -> str:
        """Return the student's class that an expression is an object of; empty if that cannot be seen."""
        if isinstance(node, ast.Name) and node.id in self.assigned and depth < 8:
            return self.class_of(self.assigned[node.id], depth + 1)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            name = node.func.id
            return name if name in self.student.classes else self.student.makes.get(name, "")
        return ""

    def arguments(self) -> Iterator[tuple[ast.Call, ast.expr]]:
        """Yield every argument of every student call; a variable stands for what was assigned to it."""
        for call in self.student_calls:
            for given in (*call.args, *(keyword.value for keyword in call.keywords)):
                yield call, self.resolved(given)

    def resolved(self, node: ast.expr) -> ast.expr:
        """Return the expression that a variable was assigned from, or the node itself."""
        if isinstance(node, ast.Name) and node.id in self.assigned:
            return self.assigned[node.id]
        return node

    def text(self, node: ast.AST, most: int = 40) -> str:
        """Return the code of a node, shortened to ``most`` characters."""
        text = ast.unparse(node)
        return text if len(text) <= most else text[: most - 1] + "…"
