"""Shared memory: allocations, and views of them, each of which knows the place of every element."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlsys_labkit.triton_trace.gluon.encoding import Places, SharedEncoding
from mlsys_labkit.triton_trace.gluon.history import ByteSpan, History
from mlsys_labkit.triton_trace.interpret.private import Handle, storage_dtype
from mlsys_labkit.triton_trace.interpret.run import Refused
from mlsys_labkit.triton_trace.recorder import Line


@dataclass(eq=False)
class Allocation:
    """Bytes of one ``gl.allocate_shared_memory``.

    Attributes:
        line: of the call. written: the bytes that something wrote. barriers: mbarriers by their place.
    """

    line: Line
    bytes: NDArray[np.uint8]
    history: History = field(default_factory=History)
    barriers: dict[int, Any] = field(default_factory=dict)

    @cached_property
    def written(self) -> NDArray[np.bool_]:
        return np.zeros(self.bytes.size, np.bool_)


@dataclass(eq=False)
class SharedView:
    """A block of shared memory.

    Attributes:
        places: of each element, in elements of ``dtype`` from the first byte of the allocation.
        encoding: the layout. dtype: Triton's type of an element. layout: Gluon's own, of a permuted or reshaped view.
        outside: why the block may not be touched, "" for one inside its allocation.
    """

    allocation: Allocation
    places: Places
    dtype: Any
    encoding: SharedEncoding
    layout: Any = None
    outside: str = ""

    @property
    def shape(self) -> tuple[int, ...]:
        return self.places.shape

    @cached_property
    def itemsize(self) -> int:
        return int(storage_dtype(self.dtype).itemsize)

    @cached_property
    def span(self) -> ByteSpan:
        """Return the bytes of the block. Raises Refused for one that lies outside."""
        if self.outside:
            raise Refused(self.outside)
        low, high = int(self.places.min()), int(self.places.max()) + 1
        exact = None if high - low == self.places.size else np.unique(self.places) * self.itemsize
        return ByteSpan(low * self.itemsize, high * self.itemsize, exact, self.itemsize)

    @property
    def first(self) -> int:
        return self.span.low

    def read(self) -> Any:
        """Return a handle with the elements as they are now."""
        return Handle(self.allocation.bytes.view(storage_dtype(self.dtype))[self.places], self.dtype.scalar)

    def write(self, values: NDArray[Any]) -> None:
        self.allocation.bytes.view(storage_dtype(self.dtype))[self.places] = values
        self.allocation.written[self.span.mask()] = True

    def at(self, index: Any) -> SharedView:
        return SharedView(self.allocation, self.places[index], self.dtype, self.encoding)

    def index(self, number: int) -> SharedView:
        """Return one of the blocks along the first dimension; a predicate may keep one outside from being touched."""
        made, count = self.at(number % len(self.places)), len(self.places)
        if not 0 <= number < count:
            made.outside = f"it touches buffer {number} of {count}: .index counts from 0 to {count - 1}"
        return made

    def moved(self, places: Places) -> SharedView:
        return SharedView(self.allocation, places, self.dtype, self.encoding)

    def reinterpreted(self, shape: tuple[int, ...], dtype: Any, encoding: SharedEncoding) -> SharedView:
        """Return the bytes from the first of this block on as a block of another type, shape and layout."""
        size = int(storage_dtype(dtype).itemsize)
        if self.first % size:
            raise Refused(f"a block of {dtype} cannot begin at byte {self.first} of its allocation")
        made = SharedView(self.allocation, encoding.places(shape) + self.first // size, dtype, encoding)
        if made.span.high > self.allocation.bytes.size:
            raise Refused(
                f"_reinterpret makes a block of {made.span.high - self.first:,} bytes of "
                f"{self.allocation.bytes.size - self.first:,}"
            )
        return made


def allocated(shape: tuple[int, ...], dtype: Any, encoding: SharedEncoding, line: Line) -> SharedView:
    """Return a new block that nothing has written."""
    places = encoding.places(shape)
    size = (int(places.max()) + 1) * int(storage_dtype(dtype).itemsize)
    return SharedView(Allocation(line, np.full(-(-size // 16) * 16, 0x5A, np.uint8)), places, dtype, encoding)
