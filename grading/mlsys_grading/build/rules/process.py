"""Rule 4: a test does not inspect the process that runs the student's code."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mlsys_grading.build.python import attribute, dotted, root_name
from mlsys_grading.build.rules import Objection
from mlsys_grading.build.view import View

_ASK = "ask through mlsys_labkit.checks by name"
_COUNT = "count the work with lk.count_work or lk.trace_accesses in its place"


_NO_CLOCK = "marks never come from a clock: count with lk.count_work, or show lk.bench in an ungraded cell"

_MODULES = {
    "tracemalloc": f"{_ASK}: expect_peak, or lk.trace_memory",
    "resource": f"{_ASK}: expect_peak",
    "psutil": f"{_ASK}: expect_peak",
    "gc": f"{_ASK}: expect_peak",
    "mock": _COUNT,
    "unittest.mock": _COUNT,
    "time": _NO_CLOCK,
    "timeit": _NO_CLOCK,
}

_NAMES = {
    "sys.modules": "test what the function returns",
    "sys.settrace": _COUNT,
    "sys.setprofile": _COUNT,
    "sys.getsizeof": f"{_ASK}: expect_peak",
    "numpy.shares_memory": f"{_ASK}: expect_shares_memory",
    "numpy.may_share_memory": f"{_ASK}: expect_shares_memory",
    "torch.cuda.memory_allocated": f"{_ASK}: expect_peak",
    "torch.cuda.max_memory_allocated": f"{_ASK}: expect_peak",
    "mlsys_labkit.bench": _NO_CLOCK,
    "mlsys_labkit.compare": _NO_CLOCK,
}

_BUILTINS = {
    "globals": "call the student's function by its name",
    "locals": "call the student's function by its name",
    "vars": "read the attributes by name",
    "id": f"{_ASK}: expect_shares_memory",
}

_ATTRIBUTES = ("data_ptr", "untyped_storage", "__array_interface__", "__globals__", "__code__", "__dict__")


def student_process(view: View) -> Iterator[Objection]:
    """Find uses of memory, sharing, call counts, globals, patches and clocks of the student's process."""
    for node in view.nodes:
        for name, advice in _process_names(view, node):
            yield getattr(node, "lineno", 1), f"{name} looks into the student's process", advice


def _process_names(view: View, node: ast.AST) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Import):
        used = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        used = [f"{node.module}.{alias.name}" for alias in node.names]
    elif isinstance(node, ast.Name | ast.Attribute) and root_name(node) in view.names:
        used = [dotted(node, view.names)]
    else:
        used = []
    for name in used:
        if name in _NAMES:
            yield name, _NAMES[name]
        for module, advice in _MODULES.items():
            if name == module or name.startswith(f"{module}."):
                yield module, advice
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _BUILTINS:
        yield f"{node.func.id}()", _BUILTINS[node.func.id]
    elif isinstance(node, ast.Attribute) and node.attr in _ATTRIBUTES:
        yield f".{node.attr}", f"{_ASK}: expect_shares_memory, or compare values"
    elif isinstance(node, ast.Compare) and any(isinstance(op, ast.Is | ast.IsNot) for op in node.ops):
        sides = (node.left, *node.comparators)
        yield from ((".base by identity", f"{_ASK}: expect_shares_memory") for s in sides if attribute(s) == "base")
