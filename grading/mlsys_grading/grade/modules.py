"""Modules that a lab imports, read off its cells: they are imported once, not for every submission."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from IPython.core.inputtransformer2 import TransformerManager

_FIRST = "mlsys_grading.kernel.started"
ALWAYS = (
    _FIRST,
    "numpy",
    "IPython",
    "mlsys_labkit.checks",
    "mlsys_labkit.memory.torch_tracer",
    "mlsys_grading.examine.files_beside",
    "mlsys_grading.examine.examiner",
    "mlsys_grading.boundary.student",
    # Modules of the probes, which checks import when called: a student's process answers only for imported ones.
    "mlsys_labkit.access",
    "mlsys_labkit.checks.ranks",
    "mlsys_labkit.memory",
    "mlsys_labkit.work.count",
)
# What a library imports only when it is first used, at a cost worth paying once.
_LATE = {
    "torch": ("torch.testing", "torch._dynamo", "torch.profiler._cupti_monitor"),
    "triton": ("triton.language", "mlsys_grading.examine.triton_cells"),
    "plotly": ("plotly.graph_objects",),
    "mlsys_labkit.ranks": ("mlsys_grading.counters.rank", "mlsys_grading.counters.relay"),
    "mlsys_labkit.cuda": ("mlsys_labkit.cuda.kernel.compilation",),
}
_EXTENSION = re.compile(r"^%load_ext\s+([\w.]+)", re.MULTILINE)
_KIT = "mlsys_labkit"


def modules_of(cells: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the modules that a notebook's cells name, and those that come with them. Some may not be modules.

    Example:
        >>> cell = {"cell_type": "code", "source": "import mlsys_labkit as lk\\nlk.roofline\\nimport torch.nn"}
        >>> [name for name in modules_of([cell]) if name not in ALWAYS and "._" not in name]
        ['mlsys_labkit', 'mlsys_labkit.roofline', 'torch', 'torch.nn', 'torch.testing']
    """
    found = set(ALWAYS)
    for cell in cells:
        if cell.get("cell_type") == "code":
            source = cell.get("source", "")
            found.update(_named(source if isinstance(source, str) else "".join(source)))
    found.update(late for name in list(found) for late in _LATE.get(name, ()))
    return (_FIRST, *sorted(found - {_FIRST}))


def _named(source: str) -> Iterable[str]:
    yield from _EXTENSION.findall(source)
    try:
        tree = ast.parse(TransformerManager().transform_cell(source))
    except SyntaxError:
        return
    kit = {_KIT}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name.partition(".")[0]
                yield alias.name
                if alias.name == _KIT:
                    kit.add(alias.asname or _KIT)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names if alias.name.islower())
    # Parts of the kit are imported when they are first named.
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in kit | {"lk"}:
            yield f"{_KIT}.{node.attr}"
