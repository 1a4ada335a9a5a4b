"""``expect_equal``: exact comparison of plain values, without running code of the student."""

from __future__ import annotations

import reprlib
from typing import Any

import numpy as np

from mlsys_labkit.checks.diagnose import diagnose_exactly
from mlsys_labkit.checks.message import failure
from mlsys_labkit.checks.nested import explain
from mlsys_labkit.checks.passed import note_pass
from mlsys_labkit.checks.plain import ATOMS, MAX_DEPTH, is_tensor, plain_array, type_name

_SHORT = 4  # numbers that are shown together: a shape, strides, a pair of counts
_repr = reprlib.Repr()
_repr.maxlist = _repr.maxtuple = _repr.maxdict = 8
_repr.maxstring = _repr.maxother = 80
_show = _repr.repr


def expect_equal(actual: object, expected: object, *, name: str = "result") -> None:
    """Check that ``actual`` is ``expected`` in type and value, down to the last element.

    Both are None, bools, numbers, strings, bytes, or lists, tuples, dicts and sets of such. A numpy scalar counts as
    the Python number; arrays and tensors must agree in dtype, shape and every element; NaN equals NaN. Anything else
    (an enum member, a class) is equal only to itself. No ``__eq__`` of the student's is called. Raises CheckError that
    leads to the first difference, and names a pattern that the whole value shows: swapped items, one list stored twice.

    Example:
        >>> expect_equal({"strides": (3, 1)}, {"strides": (3, 1)})
    """
    try:
        _compare(actual, expected, name, 0)
    except _WrongValueError as different:
        found = explain(actual, expected)
        raise failure(
            different.headline,
            expected=different.expected,
            actual=different.actual,
            meaning=found.meaning if found else "",
            next_step=found.next_step if found else "",
        ) from None
    note_pass(name)


class _WrongValueError(Exception):
    """The first difference, before the whole value is explained."""

    def __init__(self, headline: str, expected: str, actual: str) -> None:
        super().__init__(headline)
        self.headline, self.expected, self.actual = headline, expected, actual


def _compare(actual: Any, expected: Any, name: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise failure(f"{name}: nested deeper than {MAX_DEPTH} levels", next_step="does a list or dict contain itself?")
    actual, expected = _unwrap(actual), _unwrap(expected)
    kind = _kind(actual)
    if kind is None:
        if actual is expected:
            return
        raise failure(
            f"{name}: cannot be compared by value",
            expected=_text(expected),
            actual=f"a {type_name(actual)}",
            next_step="return plain numbers, strings, lists, tuples or dicts",
        )
    if kind is not _kind(expected):
        raise failure(
            f"{name}: wrong type",
            expected=f"{type_name(expected)} {_text(expected)}",
            actual=f"{type_name(actual)} {_text(actual)}",
            next_step=f"return {'an' if type_name(expected)[0] in 'aeiou' else 'a'} {type_name(expected)}",
        )
    if kind in (list, tuple):
        _compare_sequences(list(kind.__iter__(actual)), list(kind.__iter__(expected)), name, depth)
    elif kind is dict:
        _compare_dicts(dict(dict.items(actual)), dict(dict.items(expected)), name, depth)
    elif kind in (set, frozenset):
        items = [list(kind.__iter__(one)) for one in (actual, expected)]
        _require_atoms(items[0], name)
        if set(map(_tagged, items[0])) != set(map(_tagged, items[1])):
            raise _unequal(actual, expected, name)
    elif kind is np.ndarray:
        _compare_arrays(actual, expected, name)
    elif not (actual == expected or (actual != actual and expected != expected)):
        raise _unequal(actual, expected, name)


def _compare_sequences(a: list[Any], e: list[Any], name: str, depth: int) -> None:
    for index, (one, other) in enumerate(zip(a, e, strict=False)):
        try:
            _compare(one, other, f"{name}[{index}]", depth + 1)
        except _WrongValueError as different:
            if len(a) == len(e) <= _SHORT and all(type(_unwrap(each)) in (int, float) for each in (*a, *e)):
                raise _WrongValueError(different.headline, _show(tuple(e)), _show(tuple(map(_unwrap, a)))) from None
            raise
    if len(a) != len(e):
        missing = len(e) - len(a)
        raise failure(
            f"{name}: wrong length",
            expected=str(len(e)),
            actual=str(len(a)),
            meaning=f"the first {min(len(a), len(e))} are right",
            next_step=f"{missing} missing at the end" if missing > 0 else f"{-missing} too many at the end",
        )


def _compare_dicts(a: dict[Any, Any], e: dict[Any, Any], name: str, depth: int) -> None:
    _require_atoms(list(a), name)
    left, right = ({_tagged(key): (key, value) for key, value in one.items()} for one in (a, e))
    if left.keys() != right.keys():
        raise failure(
            f"{name}: wrong keys",
            expected=_show([right[tag][0] for tag in right]),
            actual=_show([left[tag][0] for tag in left]),
            meaning="; ".join(
                f"{word} {_show([keys[tag][0] for tag in keys if tag not in others])}"
                for word, keys, others in (("missing", right, left), ("not expected", left, right))
                if keys.keys() - others.keys()
            ),
        )
    for tag, (key, value) in right.items():
        _compare(left[tag][1], value, f"{name}[{_show(key)}]", depth + 1)


def _compare_arrays(actual: Any, expected: Any, name: str) -> None:
    a, e = plain_array(actual, name), plain_array(expected, name)
    if (a.dtype, a.values.shape) != (e.dtype, e.values.shape):
        raise failure(
            f"{name}: wrong shape or dtype",
            expected=f"{e.dtype} {e.values.shape}",
            actual=f"{a.dtype} {a.values.shape}",
        )
    differs = (a.values != e.values) & ~((a.values != a.values) & (e.values != e.values))
    if differs.any():
        worst = np.unravel_index(int(np.argmax(differs)), differs.shape)
        at = f"[{', '.join(map(str, worst))}]"
        found = diagnose_exactly(a.values, e.values)
        raise failure(
            f"{name}: {int(differs.sum())} of {differs.size} elements differ",
            expected=f"{e.values[worst].item()} at {at}",
            actual=f"{a.values[worst].item()} at {at}",
            meaning=found.meaning if found else "",
            next_step=found.next_step if found else "these must be equal to the last bit",
        )


def _unwrap(value: Any) -> Any:
    """Convert a numpy scalar to the Python number, so that np.int64(3) equals 3. Return other values as they are."""
    if isinstance(value, np.generic) and np.dtype(type(value)).type is type(value):
        return value.item()
    return value


def _kind(value: object) -> type | None:
    """Return the plain type that decides how to compare; None for values that only identity can compare."""
    kind = type(value)
    if kind in ATOMS:
        return kind
    if issubclass(kind, np.dtype):
        return np.dtype
    if is_tensor(value) or issubclass(kind, np.ndarray):
        return np.ndarray
    # Subclasses (torch.Size, defaultdict, namedtuple) are read through the base class, which they cannot override.
    return next((base for base in (list, tuple, dict, set, frozenset) if issubclass(kind, base)), None)


def _tagged(key: Any) -> tuple[type, Any]:
    """Return the key with its type, so that 1, 1.0 and True, which are one dict key to Python, stay different."""
    key = _unwrap(key)
    return type(key), tuple(map(_tagged, key)) if type(key) is tuple else key


def _require_atoms(keys: list[Any], name: str) -> None:
    for key in keys:
        plain = _unwrap(key)
        if type(plain) is tuple:
            _require_atoms(list(plain), name)
        elif type(plain) not in ATOMS:
            raise failure(
                f"{name}: key or set element of type {type_name(key)}",
                expected="numbers, strings or tuples of them",
                next_step="use a plain value as key",
            )


def _text(value: object) -> str:
    """Return the repr of a plain value, and a short description of others: a student's __repr__ is never called."""
    kind = _kind(value)
    if kind in ATOMS or kind is np.dtype:
        return _show(value)
    if kind is None:
        return type_name(value)
    if kind is np.ndarray:
        return "array"
    return f"of {len(list(kind.__iter__(value)))}"  # type: ignore[attr-defined]


def _unequal(actual: object, expected: object, name: str) -> _WrongValueError:
    return _WrongValueError(f"{name}: wrong value", _text(expected), _text(actual))
