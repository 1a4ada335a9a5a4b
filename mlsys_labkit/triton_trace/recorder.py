"""Records of a launch (line, argument, access), and ``Recorder``, to which the worker reports every access."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Kind = Literal["load", "store", "atomic"]
Severity = Literal["error", "performance", "information"]
Program = tuple[int, int, int]
Report = tuple[dict[str, Any], dict[str, NDArray[Any]]]


class Line(NamedTuple):
    """A line of the student's source: ``place`` is the cell ("In[3]") or the file, ``number`` counts from 1 in it."""

    place: str
    number: int

    def __str__(self) -> str:
        return f"{self.place} line {self.number}" if self.place else f"line {self.number}"


@dataclass(frozen=True)
class Argument:
    """An array argument. Addresses are those of the simulated GPU: arrays begin at multiples of 256, 2**40 bytes apart.

    Attributes:
        name: name of the parameter.
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
class TracedLaunch:
    """The kernel, grid and arrays of a launch."""

    kernel: str
    grid: Program
    arguments: tuple[Argument, ...]

    @property
    def programs(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]


class RawAccess(NamedTuple):
    """One ``tl.load``, ``tl.store`` or atomic of one program; arrays have the block's shape, (1,) for a scalar.

    Attributes:
        itemsize: bytes of an element. addresses: of every element.
        mask: False where nothing is accessed; None when every element is.
        value: the bits that are stored (or combined, for an atomic); None for a load.
        outside: True where an access lies outside every argument; None when none does.
        order: of an atomic among the programs: "acquire", "release", "acq_rel" or, for none, "relaxed".
    """

    kind: Kind
    line: Line
    program: Program
    itemsize: int
    addresses: NDArray[np.uint64]
    mask: NDArray[np.bool_] | None
    value: NDArray[Any] | None
    outside: NDArray[np.bool_] | None
    order: str = "acq_rel"


class Recorder(Protocol):
    """An object that is called once before a launch, once for every access and dot, and once after.

    It must not keep the arrays that it is given. A subclass ignores what it does not define.
    """

    def begin(self, launch: TracedLaunch) -> None:
        """Prepare for the first program."""

    def access(self, access: RawAccess) -> None:
        """Record one access of one program."""

    def dot(self, line: Line, program: Program, m: int, n: int, k: int, dtype: str) -> None:
        """Record one ``tl.dot`` of [m, k] by [k, n] elements of ``dtype``; a batch counts as that much more m."""

    def arithmetic(self, operations: dict[str, int]) -> None:
        """Record, after the last program, the operations outside ``tl.dot`` by Triton's floating-point type."""

    def misuse(
        self, finding: tuple[str, Severity], line: Line, program: Program, message: str, other: Line, count: int
    ) -> None:
        """Record a use of an operation whose result no GPU promises.

        Args:
            finding: its kind and its severity. line: of its cause. other: where it shows. count: elements concerned.
        """

    def end(self) -> Report:
        """Return what was recorded, as JSON and as arrays beside it."""
