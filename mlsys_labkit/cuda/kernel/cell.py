"""The cell magic ``%%cuda`` without a notebook: its options, and the kernels of a cell."""

from __future__ import annotations

import argparse
import re
from typing import NoReturn

from mlsys_labkit.cuda.errors import CudaError
from mlsys_labkit.cuda.kernel.compilation import Kernels, compile, compile_all
from mlsys_labkit.cuda.kernel.kernel import Kernel
from mlsys_labkit.cuda.source.source import Source
from mlsys_labkit.cuda.source.stub import stub_line

_USAGE = (
    "write %%cuda name [--graded] [--backend simulator|gpu] [-D SIZE=16] [kernel], such as: %%cuda matmul matmul<16>"
)
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
    options = _read(line)
    source = f"// %%cuda {line}\n" + _MARKER.sub(r"\1// \2", cell)
    defines = dict(pair.split("=", 1) if "=" in pair else (pair, "1") for pair in options.define)
    kernel = " ".join(options.kernel)
    several = not kernel and sum(not one.is_template for one in Source(source).kernels) > 1
    if several and not stub_line(source):
        return options.name, compile_all(source, backend=options.backend, graded=options.graded, defines=defines)
    made = compile(source, kernel or None, backend=options.backend, graded=options.graded, defines=defines)
    return options.name, made


def cell_name(line: str) -> str:
    """Return the variable that a cell with this first line is kept under.

    Example:
        >>> cell_name("twice --graded")
        'twice'
    """
    return str(_read(line).name)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise CudaError(f"%%cuda: {message}; {_USAGE}")


def _read(line: str) -> argparse.Namespace:
    parser = _Parser(prog="%%cuda", add_help=False, allow_abbrev=False)
    parser.add_argument("name")
    parser.add_argument("--graded", action="store_true")
    parser.add_argument("--backend", choices=("auto", "simulator", "gpu"), default="auto")
    parser.add_argument("-D", "--define", action="append", default=[])
    parser.add_argument("kernel", nargs="*")
    options = parser.parse_intermixed_args(line.split())
    if not options.name.isidentifier():
        parser.error(f"{options.name!r} is no variable name")
    return options
