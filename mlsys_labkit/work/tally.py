"""The running sum behind a counter, and the rule for bytes that torch and numpy share."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

from mlsys_labkit.work.record import DTYPES, Work, WorkError

_Kind = TypeVar("_Kind")


class UncountedWarning(UserWarning):
    """The warning for an operation without a FLOP rule: its bytes are in the work, its FLOPs are not."""


class Region(NamedTuple):
    """The memory one array touches: its allocation, its place in it, and the distinct elements as (size, stride)."""

    allocation: Hashable
    allocation_bytes: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    item_bytes: int

    @property
    def distinct_bytes(self) -> int:
        if 0 in self.shape:
            return 0
        pairs = zip(self.shape, self.strides, strict=True)
        return self.item_bytes * math.prod(size for size, stride in pairs if stride != 0)


def instances(value: Any, kind: type[_Kind]) -> Iterator[_Kind]:
    """Yield every ``kind`` in a value of nested lists, tuples and dicts, in order."""
    if isinstance(value, kind):
        yield value
    elif isinstance(value, (list, tuple, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from instances(item, kind)


def replaced(value: Any, kind: type[_Kind], change: Callable[[_Kind], Any]) -> Any:
    """Return a value of nested lists, tuples and dicts with ``change`` applied to every ``kind`` in it."""
    if isinstance(value, kind):
        return change(value)
    if type(value) in (list, tuple):
        return type(value)(replaced(item, kind, change) for item in value)
    if type(value) is dict:
        return {key: replaced(item, kind, change) for key, item in value.items()}
    return value


def distinct_bytes(regions: Iterable[Region]) -> int:
    """Return the bytes in the union of ``regions``.

    The same view counts once, and no allocation counts for more than its size.
    """
    views: dict[Hashable, set[Region]] = {}
    for region in regions:
        views.setdefault(region.allocation, set()).add(region)
    return sum(
        min(max(region.allocation_bytes for region in group), sum(region.distinct_bytes for region in group))
        for group in views.values()
    )


class Tally:
    """FLOPs by dtype, bytes read and written, and the operations that had no rule."""

    def __init__(self) -> None:
        self.flops: Counter[str] = Counter()
        self.bytes_read = 0
        self.bytes_written = 0
        self.uncounted: Counter[str] = Counter()
        self.open = True

    def add(self, name: str, flops: float | None, dtype: str, read: int = 0, written: int = 0) -> None:
        if not self.open:
            return
        if flops is None:
            self.uncounted[name] += 1
        elif flops:
            self.flops[_known(dtype, name)] += flops  # type: ignore[assignment]  # factorisations have thirds
        self.bytes_read += read
        self.bytes_written += written

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Pause counting: inner operations belong to the operation that is counted as a whole."""
        before, self.open = self.open, False
        try:
            yield
        finally:
            self.open = before

    def close(self) -> None:
        self.open = False
        if self.uncounted:
            names = ", ".join(sorted(self.uncounted))
            warnings.warn(
                f"no FLOP rule for {names}: the bytes are counted, the FLOPs are not; state them by a formula",
                UncountedWarning,
                stacklevel=4,
            )

    def work(self, name: str = "") -> Work:
        flops = sum(self.flops.values())
        dtype = self.flops.most_common(1)[0][0] if self.flops else "float32"
        how = {"bytes_read": "counted", "bytes_written": "counted"}
        if not self.uncounted:
            how["flops"] = "counted"
        return Work(
            flops=flops, bytes_read=self.bytes_read, bytes_written=self.bytes_written, dtype=dtype, name=name, how=how
        )


def _known(dtype: str, operation: str) -> str:
    for short in ("float8", "float4"):
        if dtype.startswith(short):
            return short
    if dtype not in DTYPES:
        raise WorkError(
            f"{operation} computes in {dtype}, expected one of {', '.join(DTYPES)}; state its work by a formula"
        )
    return dtype
