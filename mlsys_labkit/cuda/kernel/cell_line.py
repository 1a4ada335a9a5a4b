"""The first line of a cell under ``%%cuda``."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Literal, NoReturn

from mlsys_labkit.cuda.errors import CudaError

BackendName = Literal["auto", "simulator", "gpu"]

_USAGE = (
    "write %%cuda name [--graded] [--backend simulator|gpu] [-D SIZE=16] [kernel], such as: %%cuda matmul matmul<16>"
)


@dataclass(frozen=True)
class CellLine:
    """The words behind ``%%cuda`` on a cell's first line.

    Attributes:
        name: the variable that the kernel is kept under.
        defines: macros, such as ``"SIZE=16"``; of two with one name the last counts.
        kernel: the kernel to compile, such as ``"tile<16>"``; empty for all of the cell.

    Example:
        >>> CellLine.read("tiled --graded -D SIZE=16 tile<16>")
        CellLine(name='tiled', kernel='tile<16>', defines=('SIZE=16',), backend='auto', graded=True)
    """

    name: str
    kernel: str = ""
    defines: tuple[str, ...] = ()
    backend: BackendName = "auto"
    graded: bool = False

    @classmethod
    def read(cls, line: str) -> CellLine:
        """Read a line. Raises CudaError for what is no such line."""
        parser = _Parser(prog="%%cuda", add_help=False, allow_abbrev=False)
        parser.add_argument("name")
        parser.add_argument("--graded", action="store_true")
        parser.add_argument("--backend", choices=("auto", "simulator", "gpu"), default="auto")
        parser.add_argument("-D", "--define", action="append", default=[])
        parser.add_argument("kernel", nargs="*")
        found = parser.parse_intermixed_args(line.split())
        if not found.name.isidentifier():
            parser.error(f"{found.name!r} is no variable name")
        return cls(found.name, " ".join(found.kernel), tuple(found.define), found.backend, found.graded)

    def __str__(self) -> str:
        """Return the line that reads as this."""
        options = ["--graded"] if self.graded else []
        options += [word for each in self.defines for word in ("-D", each)]
        options += ["--backend", self.backend] if self.backend != "auto" else []
        return " ".join([self.name, *options, *([self.kernel] if self.kernel else [])])


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise CudaError(f"%%cuda: {message}; {_USAGE}")
