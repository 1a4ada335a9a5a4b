"""The cell magic ``%%cuda`` without a notebook: the kernels of a cell."""

from __future__ import annotations

import re

from mlsys_labkit.cuda.kernel.cell_line import CellLine
from mlsys_labkit.cuda.kernel.compilation import Kernels, compile, compile_all
from mlsys_labkit.cuda.kernel.kernel import Kernel
from mlsys_labkit.cuda.source.source import Source
from mlsys_labkit.cuda.source.stub import stub_line

# An author's cell holds nbgrader's markers; the second way to write them is no C++.
_MARKER = re.compile(r"^([ \t]*)(#+[ \t]*(?:BEGIN|END) (?:SOLUTION|HIDDEN TESTS))", re.MULTILINE)


def compile_cell(line: str, cell: str) -> tuple[str, Kernel | Kernels]:
    """Return the variable's name and the kernel or kernels for it. Line 1 of the source stands for the magic's own.

    Raises CudaError for a line that cannot be read, and whatever ``compile`` raises.

    Example:
        >>> name, kernel = compile_cell("twice", "__global__ void f(float* x) { *x *= 2; }")
        >>> name, kernel.name
        ('twice', 'f')
    """
    given = CellLine.read(line)
    source = f"// %%cuda {line}\n" + _MARKER.sub(r"\1// \2", cell)
    pairs = (each.partition("=") for each in given.defines)
    defines = {macro: value if equals else "1" for macro, equals, value in pairs}
    several = not given.kernel and sum(not one.is_template for one in Source(source).kernels) > 1
    if several and not stub_line(source):
        return given.name, compile_all(source, backend=given.backend, graded=given.graded, defines=defines)
    kernel = given.kernel or None
    return given.name, compile(source, kernel, backend=given.backend, graded=given.graded, defines=defines)
