"""Explanations of wrong lists and tuples: one object at several places, items in another order, patterns of numbers."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from mlsys_labkit.checks.comparison import Diagnosis, wrong
from mlsys_labkit.checks.diagnose import diagnose_exactly
from mlsys_labkit.checks.message import CheckError
from mlsys_labkit.checks.plain import ATOMS, MAX_DEPTH, plain_array, type_name

_MOST = 10_000  # items that are read, of all levels together
_RECORD_ITEMS = 4  # a tuple of this length or less holds different quantities, such as (bytes read, bytes written)
_AXES = 3  # items of a grid or a block


def explain(actual: object, expected: object) -> Diagnosis | None:
    """Explain two plain values that differ, or else the first items of theirs that do. Return None without a pattern.

    Lists and tuples are read through their base class, so no code of a student's class runs.
    """
    came, want = _key(actual, budget := [_MOST]), _key(expected, budget)
    if came is None or want is None:
        return None
    return _explain(actual, expected)


def _explain(actual: object, expected: object) -> Diagnosis | None:
    items, wanted = _items(actual), _items(expected)
    if items is not None and wanted is not None and len(items) == len(wanted):
        different = [pair for pair in zip(items, wanted, strict=True) if _key(pair[0]) != _key(pair[1])]
        found = _shared(items, wanted) or _ordered(items, wanted)
        if not (issubclass(type(expected), tuple) and len(different) < len(items) <= _RECORD_ITEMS):
            found = found or _numbers(actual, expected)
        return found or next((_explain(*pair) for pair in different), None)
    if issubclass(type(actual), dict) and issubclass(type(expected), dict):
        came, want = _pairs(actual), _pairs(expected)
        keys = (key for key in want if key in came and _key(came[key]) != _key(want[key]))
        return next((_explain(came[key], want[key]) for key in keys), None)
    return _numbers(actual, expected) if items is None and wanted is None else None


def _numbers(actual: object, expected: object) -> Diagnosis | None:
    try:
        a, e = plain_array(actual, "result").values, plain_array(expected, "result").values
    except CheckError:
        return None
    return diagnose_exactly(a, e) if a.shape == e.shape and a.size else None


def _items(value: object) -> list[Any] | None:
    base = next((base for base in (list, tuple) if issubclass(type(value), base)), None)
    return None if base is None else list(base.__iter__(value))  # type: ignore[arg-type]  # of that class


def _shared(items: list[Any], wanted: list[Any]) -> Diagnosis | None:
    """Find one list, dict, set or array that stands at two places where different values were expected."""
    first: dict[int, int] = {}
    for index, item in enumerate(items):
        earlier = first.setdefault(id(item), index)
        if earlier == index or type(item) in ATOMS or issubclass(type(item), tuple):
            continue
        if _key(wanted[earlier]) != _key(wanted[index]):
            return wrong(
                f"items {earlier} and {index} are one and the same {type_name(item)}: a change to one changes both",
                "store a copy (list(x), x.copy(), x.clone()), not the object that changes later",
            )
    return None


def _ordered(items: list[Any], wanted: list[Any]) -> Diagnosis | None:
    """Find items that are right in another order."""
    came, want = [_key(item) for item in items], [_key(item) for item in wanted]
    if None in came or len(want) < 2 or came == want or Counter(came) != Counter(want):
        return None
    if came == want[::-1]:
        which = "the two items are swapped" if len(want) == 2 else "the items are in reverse order"
        grid = " in a grid or block, x (columns) comes before y (rows)" if len(want) <= _AXES else ""
        return wrong(which, f"which comes first?{grid}")
    for step in (1, -1):
        if came == want[step:] + want[:step]:
            return wrong(
                f"the items are turned by one place: the {'first' if step == 1 else 'last'} expected one comes "
                f"{'last' if step == 1 else 'first'}",
                "off by one turn: does the count begin at 0, and is it before or after the step?",
            )
    return wrong("the right items in another order", "what decides the order: is there a tie, or a sort missing?")


def _key(item: object, budget: list[int] | None = None, depth: int = 0) -> tuple[Any, ...] | None:
    """Return the types and values of a plain item as nested tuples; None for others, and for more than ``budget``."""
    budget = [_MOST] if budget is None else budget
    budget[0] -= 1
    if budget[0] < 0 or depth > MAX_DEPTH:
        return None
    if isinstance(item, np.generic) and np.dtype(type(item)).type is type(item):
        item = item.item()
    if type(item) in ATOMS:
        return type(item).__name__, "NaN" if item != item else item
    if issubclass(type(item), dict):
        pairs = [(_key(one, budget, depth + 1), _key(two, budget, depth + 1)) for one, two in _pairs(item).items()]
        return None if any(None in pair for pair in pairs) else ("dict", frozenset(pairs))
    items = _items(item)
    keys = [_key(each, budget, depth + 1) for each in items or ()]
    return None if items is None or None in keys else ("items", *keys)


def _pairs(value: Any) -> dict[Any, Any]:
    return dict(dict.items(value))
