"""A counter of what numpy computes, by an ndarray subclass that reports every operation and element access."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.random  # numpy imports it late; inside counted code, the arrays that the import makes would be counted
import numpy.typing as npt

from mlsys_labkit.work.numpy_rules import dtype_of, function_flops, ufunc_flops
from mlsys_labkit.work.tally import Region, Tally, distinct_bytes, instances, replaced

Array = npt.NDArray[Any]
_asarray = np.asarray  # while code is being counted, the name in numpy is another function

# Canonical names for numpy's own; everything else goes by its own name.
_NAMES = {"concat": "concatenate", "amax": "max", "amin": "min", "nansum": "sum", "nanmax": "max", "nanmin": "min"}
_METADATA = frozenset(
    {"shape", "ndim", "size", "may_share_memory", "shares_memory", "result_type", "can_cast"}
    | {"min_scalar_type", "common_type", "iscomplexobj", "isrealobj", "array_repr", "array_str"}
    | {"array2string", "empty_like", "broadcast_arrays"}
)
_FILLS = frozenset(["zeros_like", "ones_like", "full_like"])
_GATHERS = frozenset(["take", "take_along_axis", "choose", "compress", "extract"])
# numpy.asarray and the like would return an uncounted array; the others make memory that has to be counted.
_CREATORS = frozenset(
    {"array", "asarray", "asanyarray", "ascontiguousarray", "zeros", "ones", "full", "empty", "arange"}
    | {"linspace", "eye", "identity", "tri", "fromiter"}
)
_COUNTED_METHODS = frozenset(
    {"dot", "astype", "copy", "flatten", "ravel", "reshape", "cumsum", "cumprod", "argmax", "argmin"}
    | {"mean", "var", "std", "take", "repeat", "trace", "diagonal", "clip", "round", "sort", "argsort"}
    | {"nonzero", "searchsorted", "tolist", "item", "tobytes", "fill"}
)


class CountedArray(np.ndarray[Any, Any]):
    """An array that reports to a tally.

    A single element read from it is a value in a register: arithmetic on it is counted as FLOPs, and its traffic was
    counted when it was read.
    """

    _tally: Tally
    _in_register: bool

    def __array_finalize__(self, parent: Any) -> None:
        self._tally = getattr(parent, "_tally", None)  # type: ignore[assignment]
        self._in_register = False

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **kwargs: Any) -> Any:
        if out is not None:
            kwargs["out"] = tuple(_plain(target) for target in out)
        result = getattr(ufunc, method)(*map(_plain, inputs), **_plain(kwargs))
        results = [_asarray(item) for item in (result if isinstance(result, tuple) else (result,)) if item is not None]
        operands = [item for item in inputs if isinstance(item, np.ndarray)]
        register = out is None and method == "__call__" and all(_is_register(item) for item in inputs)
        written = [] if register else (results or [_plain(inputs[0])])
        masks = [mask for mask in (kwargs.get("where"),) if isinstance(mask, np.ndarray)]
        self._tally.add(
            f"numpy {ufunc.__name__}",
            ufunc_flops(ufunc, method, [_asarray(_plain(item)) for item in inputs], results),
            dtype_of(operands or results),
            distinct_bytes(_region(item) for item in (*operands, *masks) if not _is_register(item)),
            distinct_bytes(map(_region, written)),
        )
        if result is None:
            return None
        if out is not None:
            return out[0] if len(out) == 1 else out
        wrapped = [wrap(item, self._tally, register) for item in results]
        return tuple(wrapped) if isinstance(result, tuple) else wrapped[0]

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func.__name__ == "multi_dot":
            return func._implementation(*args, **kwargs)  # it only chooses the order: the products count themselves
        with self._tally.paused():
            result = func(*_plain(args), **_plain(kwargs))
        return _account(self._tally, func.__name__, args, kwargs, result)

    def __getitem__(self, key: Any) -> Any:
        plain, key = _plain(self), _plain(key)
        item = plain[key]
        if isinstance(item, np.ndarray) and np.may_share_memory(item, plain):
            return super().__getitem__(key)
        picked = _asarray(item)
        tables = [index for index in (key if isinstance(key, tuple) else (key,)) if isinstance(index, np.ndarray)]
        is_element = not isinstance(item, np.ndarray)
        read = picked.nbytes + distinct_bytes(map(_region, tables))
        if not self._in_register:
            self._tally.add("numpy getitem", 0, dtype_of([plain]), read, 0 if is_element else picked.nbytes)
        return wrap(picked, self._tally, is_element)

    def __setitem__(self, key: Any, value: Any) -> None:
        plain, key = _plain(self), _plain(key)
        target = _asarray(plain[key])
        source = [value] if isinstance(value, np.ndarray) and not _is_register(value) else []
        if source and _region(source[0]) == _region(target):
            return  # the assignment at the end of `x[i] += v`: the sum is already in place
        plain[key] = _plain(value)
        self._tally.add(
            "numpy setitem",
            0,
            dtype_of([plain]),
            distinct_bytes(map(_region, source)),
            distinct_bytes([_region(target)]),
        )

    def __hash__(self) -> int:  # type: ignore[override]
        if self.ndim:
            raise TypeError("unhashable type: 'numpy.ndarray'")
        return hash(self.view(np.ndarray).item())

    def __reduce__(self) -> Any:
        return _plain(self).__reduce__()


def _counted_method(name: str) -> Callable[..., Any]:
    @functools.wraps(getattr(np.ndarray, name), assigned=("__name__",))
    def method(self: CountedArray, *args: Any, **kwargs: Any) -> Any:
        with self._tally.paused():
            result = getattr(_plain(self), name)(*_plain(args), **_plain(kwargs))
        changed = [self] if name in ("sort", "fill") else []
        return _account(self._tally, name, (self, *args), kwargs, result, changed)

    return method


def _value_update(name: str) -> Callable[..., Any]:
    """Return the method for ``s += x[i]``.

    On a value from a register it returns a new value, as a numpy scalar does, because scalars are immutable.
    """
    in_place, plain = getattr(np.ndarray, f"__i{name}__"), getattr(np.ndarray, f"__{name}__")

    def update(self: CountedArray, other: Any) -> Any:
        return plain(self, other) if self._in_register else in_place(self, other)

    return update


for _name in _COUNTED_METHODS:
    setattr(CountedArray, _name, _counted_method(_name))
for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift"):
    setattr(CountedArray, f"__i{_name}__", _value_update(_name))


def wrap(array: Any, tally: Tally, in_register: bool = False) -> CountedArray:
    """Return a view of ``array`` (same memory) that reports its operations to ``tally``."""
    counted = _asarray(array).view(CountedArray)
    counted._tally = tally
    counted._in_register = in_register
    return counted


@contextlib.contextmanager
def counted_creation(tally: Tally) -> Iterator[None]:
    """Make arrays that the block creates with ``np.zeros`` and the like report, too.

    Those functions of the module ``numpy`` are replaced during the block: code that imported one by name, and other
    threads that run meanwhile, see the difference only in the type of what they get.
    """
    originals = {name: getattr(np, name) for name in _CREATORS}

    def counted(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def create(*args: Any, **kwargs: Any) -> Any:
            if not tally.open:
                return original(*args, **kwargs)
            result = original(*_plain(args), **_plain(kwargs))
            if name == "empty":
                return wrap(result, tally)
            return _account(tally, name, [arg for arg in args if isinstance(arg, np.ndarray)], {}, result)

        return create

    for name, original in originals.items():
        setattr(np, name, counted(name, original))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(np, name, original)


def _account(
    tally: Tally, name: str, args: Any, kwargs: dict[str, Any], result: Any, changed: Sequence[Array] = ()
) -> Any:
    """Count one call of a numpy function whose result is known, and return the result wrapped."""
    name = _NAMES.get(name, name)
    operands = list(instances((args, {key: value for key, value in kwargs.items() if key != "out"}), np.ndarray))
    if name in _METADATA:
        return _wrapped(result, tally)
    several = result if isinstance(result, (tuple, list)) else [result]
    results = [_asarray(item) for item in several if isinstance(item, (np.ndarray, np.generic))]
    fresh = [item for item in results if not any(np.may_share_memory(item, _plain(operand)) for operand in operands)]
    written = fresh + list(changed or ([args[0]] if name in ("copyto", "fill_diagonal") else ()))
    if not written and name not in ("tolist", "item", "tobytes"):
        return _wrapped(result, tally)  # a view
    reads = [item for item in operands if not _is_register(item)]
    if name in _FILLS or name in ("fill", "fill_diagonal"):
        reads = []
    elif name == "copyto":
        reads = reads[1:]
    read = distinct_bytes(map(_region, reads))
    if name in _GATHERS:
        read = min(read, sum(item.nbytes for item in results) + distinct_bytes(map(_region, reads[1:])))
    if name == "item":
        read = operands[0].itemsize
    flops = function_flops(name, [_plain(item) for item in operands], _plain(args), kwargs, results)
    in_memory = [] if all(map(_is_register, operands)) and operands else written
    if not isinstance(result, (np.ndarray, np.generic, tuple, list)):
        in_memory = list(changed)  # a Python number or bytes: not an array of ours
    tally.add(f"numpy {name}", flops, dtype_of(operands or results), read, distinct_bytes(map(_region, in_memory)))
    return _wrapped(result, tally)


def _region(array: Array) -> Region:
    root = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    address = array.__array_interface__["data"][0]
    return Region(id(root), root.nbytes, address, array.shape, array.strides, array.itemsize)


def _is_register(item: Any) -> bool:
    return not isinstance(item, np.ndarray) or getattr(item, "_in_register", False)


def _plain(value: Any) -> Any:
    """Return the value with every counted array replaced by the ndarray that it views."""
    return replaced(value, CountedArray, lambda array: array.view(np.ndarray))


def _wrapped(result: Any, tally: Tally) -> Any:
    if isinstance(result, (np.ndarray, np.generic)):
        return wrap(result, tally)
    if type(result) in (tuple, list):
        return type(result)(_wrapped(item, tally) for item in result)
    if isinstance(result, tuple) and hasattr(result, "_fields"):  # numpy.linalg's named results
        return type(result)(*(_wrapped(item, tally) for item in result))
    return result
