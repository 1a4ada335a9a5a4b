"""The addresses that a loop touches, in order, and the misses that they cause in a modelled cache.

trace = trace_accesses(matmul_ikj, a, b, c)
cache_misses(trace, line_bytes=64, lines=16).per_array
"""

from __future__ import annotations

import operator
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlsys_labkit._base.probes import probe
from mlsys_labkit.errors import LabkitError

_ARRAY_BITS = 7  # an access is one int64: address, then which array, then whether it wrote
_PAGE = 4096


class AccessError(LabkitError, TypeError):
    """An argument or an operation that cannot be traced."""


@dataclass(frozen=True, eq=False)
class AccessTrace:
    """Every element access of a run, in order, as parallel arrays of length n.

    Args:
        array: which array argument, 0 for the first; int64.
        address: in bytes. Each buffer starts at a page of its own, so that equal runs give equal addresses.
        write: True for a store.
        itemsizes: bytes an access, by array.
        result: what the function returned.
        at_once: operations on slices or whole arrays, each of which reads or writes several elements at once.
    """

    array: npt.NDArray[np.int64]
    address: npt.NDArray[np.int64]
    write: npt.NDArray[np.bool_]
    itemsizes: tuple[int, ...]
    result: Any = None
    at_once: int = 0

    def __len__(self) -> int:
        return len(self.address)

    @property
    def bytes(self) -> npt.NDArray[np.int64]:
        """Size of each access."""
        return np.asarray(self.itemsizes, dtype=np.int64)[self.array]

    @property
    def reads(self) -> tuple[int, ...]:
        """Elements read, by array."""
        return self._count(~self.write)

    @property
    def writes(self) -> tuple[int, ...]:
        """Elements written, by array."""
        return self._count(self.write)

    def _count(self, chosen: npt.NDArray[np.bool_]) -> tuple[int, ...]:
        return tuple(np.bincount(self.array[chosen], minlength=len(self.itemsizes)).tolist())


@dataclass(frozen=True)
class CacheMisses:
    """Misses of a run in a model cache. ``accesses`` counts lines asked for (an element across two lines is two)."""

    misses: int
    per_array: tuple[int, ...]
    accesses: int


@probe
def trace_accesses(fn: Callable[..., Any], /, *args: Any) -> AccessTrace:
    """Call ``fn(*args)`` with every ndarray replaced by one that records each element read and written.

    ``a[i, j]`` is a read and ``a[i, j] = x`` a write. A slice, a row, a transpose or a reshape is a view and touches
    nothing; arithmetic and numpy functions on it read its elements in index order, one operand after the other;
    assigning to it writes them. ``c[i] += x`` on a row reads it and writes it once. Writes reach the caller's array.
    Two arguments on the same memory have the same addresses. Other arguments pass as they are.

    Raises AccessError for an array of objects or more than 128 arrays, and whatever ``fn`` raises.

    Example:
        >>> x = np.zeros((2, 3))
        >>> trace = trace_accesses(lambda a: a[1, 0] + a[0, 2], x)
        >>> trace.address.tolist()
        [24, 16]

    Reference: M. Wolf and M. Lam, A data locality optimizing algorithm, PLDI 1991.
    """
    log = _Log("q")
    bases: dict[int, int] = {}
    traced: list[TracedArray] = []
    following = 0
    arguments: list[Any] = []
    for value in args:
        if not isinstance(value, np.ndarray):
            arguments.append(value)
            continue
        if value.dtype.hasobject:
            raise AccessError(f"expected arrays of numbers, got one of {value.dtype}; convert it first")
        if len(traced) >> _ARRAY_BITS:
            raise AccessError(f"expected at most {1 << _ARRAY_BITS} arrays, got more; pass parts of one larger array")
        plain = np.ndarray.view(value, np.ndarray)
        root = plain
        while isinstance(root.base, np.ndarray):
            root = np.ndarray.view(root.base, np.ndarray) if type(root.base) is not np.ndarray else root.base
        low, high = _span(root)
        if low not in bases:
            bases[low] = following
            following += -(-(high - low) // _PAGE) * _PAGE or _PAGE
        start = bases[low] + plain.ctypes.data - low
        traced.append(TracedArray(plain, _codes(plain, start, len(traced)), log))
        arguments.append(traced[-1])
    __tracebackhide__ = True  # an error of fn shows the student's frames, not this one
    result = fn(*arguments)
    codes = np.array(log, dtype=np.int64)
    return AccessTrace(
        array=(codes >> 1) & ((1 << _ARRAY_BITS) - 1),
        address=codes >> (1 + _ARRAY_BITS),
        write=(codes & 1).astype(bool),
        itemsizes=tuple(one.itemsize for one in traced),
        result=np.array(result) if isinstance(result, TracedArray) else result,
        at_once=log.at_once,
    )


def cache_misses(trace: AccessTrace, line_bytes: int = 64, lines: int = 512) -> CacheMisses:
    """Count the misses of a fully associative LRU cache with ``lines`` lines of ``line_bytes``.

    Stores allocate their line like loads. The default is 32 KiB: the size of an L1 data cache, but without conflict
    misses.

    Example:
        >>> trace = trace_accesses(lambda a: [a[i] for i in range(32)], np.zeros(32))
        >>> cache_misses(trace).misses
        4

    Reference: R. Mattson et al., Evaluation techniques for storage hierarchies, IBM Systems Journal 9(2), 1970.
    """
    if line_bytes < 1 or lines < 1:
        raise AccessError(f"expected a line of at least 1 B and 1 line, got {line_bytes} B and {lines} lines")
    per_array = [0] * len(trace.itemsizes)
    cache: OrderedDict[int, None] = OrderedDict()
    owner, line = _lines(trace, line_bytes)
    for which, tag in zip(owner.tolist(), line.tolist(), strict=True):
        if tag in cache:
            cache.move_to_end(tag)
            continue
        per_array[which] += 1
        cache[tag] = None
        if len(cache) > lines:
            cache.popitem(last=False)
    return CacheMisses(sum(per_array), tuple(per_array), len(line))


class _Log(array):  # type: ignore[type-arg]
    """The codes of all accesses in order, and a count of those that came several at once."""

    at_once = 0


def lines_touched(trace: AccessTrace, line_bytes: int = 64) -> int:
    """Count the distinct cache lines that the run touched: the misses that no cache can avoid.

    Example:
        >>> column = trace_accesses(lambda a: a[:, 0].sum(), np.zeros((8, 8)))
        >>> lines_touched(column)
        8
    """
    return len(np.unique(_lines(trace, line_bytes)[1]))


class TracedArray(np.lib.mixins.NDArrayOperatorsMixin):
    """An ndarray that records which of its elements are read and written; made by ``trace_accesses``.

    Beside the data it carries an int64 array of the same shape with each element's address. numpy indexes both in the
    same way, so every view has its addresses, and no index arithmetic is needed here.
    """

    __slots__ = ("_codes", "_data", "_log")

    def __init__(self, data: npt.NDArray[Any], codes: npt.NDArray[np.int64], log: _Log) -> None:
        self._data, self._codes, self._log = data, codes, log

    def __getitem__(self, index: Any) -> Any:
        value = self._data[index]
        codes = self._codes[index]
        if not isinstance(codes, np.ndarray):
            self._log.append(int(codes))
            return value
        if _is_basic(index):
            return TracedArray(value, codes, self._log)
        self._record(codes, 0)  # an index array gathers into new memory
        return value

    def __setitem__(self, index: Any, value: Any) -> None:
        codes = self._codes[index]
        if not isinstance(codes, np.ndarray):
            self._data[index] = _value(value)
            self._log.append(int(codes) | 1)
            return
        # `c[i] += x` ends with c[i] = c[i]: the sum has been stored already.
        if isinstance(value, TracedArray) and np.array_equal(value._codes, codes):
            return
        self._data[index] = _value(value)
        self._record(codes, 1)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        self._record(self._codes, 0)
        return np.array(self._data, dtype=dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **kwargs: Any) -> Any:
        if method == "at":
            raise AccessError(f"{ufunc.__name__}.at {_UNTRACED}")
        values = [_value(one) for one in inputs]
        if out is None:
            return getattr(ufunc, method)(*values, **kwargs)
        targets = tuple(one._data if isinstance(one, TracedArray) else one for one in out)
        getattr(ufunc, method)(*values, out=targets, **kwargs)
        for one in out:
            if isinstance(one, TracedArray):
                one._record(one._codes, 1)
        return out[0] if len(out) == 1 else out

    def __array_function__(self, func: Callable[..., Any], types: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if func in _IN_PLACE or isinstance(kwargs.get("out"), TracedArray):
            raise AccessError(f"{func.__name__} {_UNTRACED}")
        if func in (np.transpose, np.reshape):
            return getattr(self, func.__name__)(*args[1:], **kwargs)
        read = (lambda one: one._data) if func in _WITHOUT_READING else np.asarray
        return func(*_replace(args, read), **_replace(kwargs, read))

    def _record(self, codes: npt.NDArray[np.int64], write: int) -> None:
        self._log.at_once += codes.size > 1
        self._log.frombytes((codes | write).tobytes())

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __len__(self) -> int:
        return len(self._data)

    def __float__(self) -> float:
        return float(np.asarray(self))

    @property
    def T(self) -> TracedArray:
        return TracedArray(self._data.T, self._codes.T, self._log)

    def transpose(self, *axes: Any) -> TracedArray:
        return TracedArray(self._data.transpose(*axes), self._codes.transpose(*axes), self._log)

    def reshape(self, *shape: Any) -> Any:
        view = self._data.reshape(*shape)
        if np.shares_memory(view, self._data) or not view.size:
            return TracedArray(view, self._codes.reshape(*shape), self._log)
        return np.asarray(self).reshape(*shape)  # no view has that shape: numpy copies, and so reads

    def copy(self) -> npt.NDArray[Any]:
        return np.array(self)

    def sum(self, *args: Any, **kwargs: Any) -> Any:
        return np.asarray(self).sum(*args, **kwargs)

    def dot(self, other: Any) -> Any:
        return np.asarray(self).dot(_value(other))

    def fill(self, value: Any) -> None:
        self[...] = value

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"a traced array has no .{name}; it has indexing, arithmetic, T, transpose, reshape, sum, dot, copy, fill, "
            f"and works in numpy functions: np.{name}(array)"
        )

    def __repr__(self) -> str:
        return f"TracedArray(shape={self.shape}, dtype={self.dtype})"


for _name in ("shape", "strides", "dtype", "ndim", "size", "itemsize"):
    setattr(TracedArray, _name, property(operator.attrgetter(f"_data.{_name}")))
_UNTRACED = "writes into its argument, which is not traced; assign: a[...] = values"
_IN_PLACE = frozenset({np.copyto, np.put, np.place, np.putmask, np.fill_diagonal, np.put_along_axis})
_WITHOUT_READING = frozenset({np.shape, np.ndim, np.size, np.empty_like, np.zeros_like, np.ones_like, np.full_like})


def _replace(tree: Any, read: Callable[[TracedArray], npt.NDArray[Any]]) -> Any:
    if isinstance(tree, TracedArray):
        return read(tree)
    if isinstance(tree, dict):
        return {key: _replace(value, read) for key, value in tree.items()}
    return type(tree)(_replace(one, read) for one in tree) if type(tree) in (list, tuple) else tree


def _value(operand: Any) -> Any:
    return np.asarray(operand) if isinstance(operand, TracedArray) else operand


def _is_basic(index: Any) -> bool:
    parts = index if isinstance(index, tuple) else (index,)
    return all(part is None or part is Ellipsis or isinstance(part, (int, np.integer, slice)) for part in parts)


def _span(plain: npt.NDArray[Any]) -> tuple[int, int]:
    """Return the address of the first byte of an array and the address after its last byte."""
    if not plain.size:
        return plain.ctypes.data, plain.ctypes.data
    extents = [(n - 1) * step for n, step in zip(plain.shape, plain.strides, strict=True)]
    return (
        plain.ctypes.data + sum(e for e in extents if e < 0),
        plain.ctypes.data + sum(e for e in extents if e > 0) + plain.itemsize,
    )


def _codes(plain: npt.NDArray[Any], start: int, number: int) -> npt.NDArray[np.int64]:
    address = np.full(plain.shape, start, dtype=np.int64)
    for axis, (n, step) in enumerate(zip(plain.shape, plain.strides, strict=True)):
        address += (np.arange(n, dtype=np.int64) * step).reshape([-1 if i == axis else 1 for i in range(plain.ndim)])
    return np.asarray((address << (1 + _ARRAY_BITS)) | (number << 1))


def _lines(trace: AccessTrace, line_bytes: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the array and the cache line of every line access, in order.

    An element that straddles lines accesses each of them.
    """
    first = trace.address // line_bytes
    spans = (trace.address + trace.bytes - 1) // line_bytes - first + 1
    starts = np.cumsum(spans) - spans
    within = np.arange(int(spans.sum())) - np.repeat(starts, spans)
    return np.repeat(trace.array, spans), np.repeat(first, spans) + within
