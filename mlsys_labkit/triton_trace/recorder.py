"""Who is told of every access of a launch, inside the worker, while it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Argument", "Bits", "Kind", "Launch", "Line", "Program", "RawRecorder", "Recorder", "Report"]

Kind = Literal["load", "store", "atomic"]
Program = tuple[int, int, int]
Bits = NDArray[Any]
Report = tuple[dict[str, Any], dict[str, NDArray[Any]]]


class Line(NamedTuple):
    """A line of the student's: ``place`` is the cell ("In[3]") or the file, ``number`` counts from 1 in it."""

    place: str
    number: int

    def __str__(self) -> str:
        return f"{self.place} line {self.number}" if self.place else f"line {self.number}"


@dataclass(frozen=True)
class Argument:
    """An array that a kernel was given. Addresses are a GPU's: arrays begin at multiples of 256, 2**40 bytes apart.

    Attributes:
        name: the parameter's.
        address: of element [0, ..., 0]: the pointer that the kernel gets.
        start, stop: first byte of the array and the one past its last; arrays that overlap share them.
        dtype: Triton's name ("fp32", "bf16", "i32", ...). ``itemsize`` in bytes.
        shape, strides: of the array; strides in bytes.
    """

    name: str
    address: int
    start: int
    stop: int
    dtype: str
    itemsize: int
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()


@dataclass(frozen=True)
class Launch:
    """What is about to run."""

    kernel: str
    grid: Program
    arguments: tuple[Argument, ...]

    @property
    def programs(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]


class Recorder(Protocol):
    """Called once before, once for every access and dot, once after. Must not keep the arrays that it is shown."""

    def begin(self, launch: Launch) -> None:
        """Before the first program."""

    def access(
        self,
        kind: Kind,
        line: Line,
        program: Program,
        addresses: NDArray[np.uint64],
        mask: NDArray[np.bool_] | None,
        itemsize: int,
        value: Bits | None,
        outside: NDArray[np.bool_] | None,
    ) -> None:
        """One ``tl.load``, ``tl.store`` or atomic of one program.

        Arrays have the block's shape, (1,) for a scalar.

        Args:
            mask: False where nothing is accessed; None when all of it is.
            value: the bits that are stored (or combined, for an atomic); None for a load.
            outside: True where an access lies outside every argument; None when none does.
        """

    def dot(self, line: Line, program: Program, m: int, n: int, k: int, dtype: str) -> None:
        """One ``tl.dot`` of [m, k] by [k, n] elements of ``dtype``; a batch counts as that much more m."""

    def arithmetic(self, operations: dict[str, int]) -> None:
        """After the last program: Triton's name of a floating-point type -> operations in it outside ``tl.dot``."""

    def end(self) -> Report:
        """After that: what was seen, as JSON and as arrays beside it."""


class RawRecorder:
    """Keeps every access as it came: for tests and for small launches."""

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._arrays: dict[str, NDArray[Any]] = {}

    def begin(self, launch: Launch) -> None:
        pass

    def access(
        self,
        kind: Kind,
        line: Line,
        program: Program,
        addresses: NDArray[np.uint64],
        mask: NDArray[np.bool_] | None,
        itemsize: int,
        value: Bits | None,
        outside: NDArray[np.bool_] | None,
    ) -> None:
        row = len(self._rows)
        self._rows.append({"kind": kind, "line": line, "program": program, "itemsize": itemsize})
        for name, array in (("addresses", addresses), ("mask", mask), ("value", value), ("outside", outside)):
            if array is not None:
                self._arrays[f"{row} {name}"] = np.array(array)

    def dot(self, line: Line, program: Program, m: int, n: int, k: int, dtype: str) -> None:
        self._rows.append({"kind": "dot", "line": line, "program": program, "shape": (m, n, k), "dtype": dtype})

    def arithmetic(self, operations: dict[str, int]) -> None:
        pass

    def end(self) -> Report:
        return {"rows": self._rows}, self._arrays
