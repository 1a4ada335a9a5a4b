"""Named tuples of a kernel, and the attributes of values that are no blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import triton.language as tl

from mlsys_labkit.triton_trace import rules
from mlsys_labkit.triton_trace.gluon.objects import Aggregate, AggregateClass
from mlsys_labkit.triton_trace.interpret.branches import is_one
from mlsys_labkit.triton_trace.interpret.carried import CONSTANTS
from mlsys_labkit.triton_trace.interpret.run import Refused


class Record(tuple[Any, ...]):
    """A tuple whose values have names.

    Attributes:
        fields: names of the values.
    """

    fields: tuple[str, ...]


class ConstantTuple(tuple[Any, ...]):
    """A tuple among a launch's constants, whose numbers stay constants when they are assigned."""


def constants(value: Any) -> Any:
    """Return what ``name: tl.constexpr = value`` names: of a tuple of constants, its constants."""
    plain = type(value) is tuple and all(isinstance(one, (*CONSTANTS, type(None))) for one in value)
    return ConstantTuple(value) if plain else value


def record(fields: Iterable[str], values: Iterable[Any]) -> Record:
    """Return a tuple of ``values`` that have the names ``fields``."""
    made = Record(values)
    made.fields = tuple(fields)
    return made


def record_class(fields: list[str]) -> Callable[..., Record]:
    """Return the function that a class of named tuples is in a kernel."""

    def make(*values: Any, **named: Any) -> Record:
        given = dict(zip(fields, values, strict=False)) | named
        if len(values) + len(named) != len(fields) or given.keys() != set(fields):
            raise Refused(f"expected the fields {', '.join(fields)}, each once")
        return record(fields, (given[name] for name in fields))

    return make


def like(value: Any, parts: Iterable[Any]) -> Any:
    """Return a tuple of ``parts``, with the names of ``value`` if it is a named tuple."""
    return record(value.fields, parts) if isinstance(value, Record) else tuple(parts)


def attribute(value: Any, name: str) -> Any:
    """Return ``value.name``, where rewrite.py has replaced it: a field, or the value or type of a constant.

    Blocks have the attributes that rules.py lists, and no others, whatever the fields of named tuples are called.
    """
    if isinstance(value, (Aggregate, AggregateClass)):
        return value.attribute(name)
    if isinstance(value, Record) and name in value.fields:
        return value[value.fields.index(name)]
    if isinstance(value, (*CONSTANTS, type(None), ConstantTuple)):
        if name == "value":
            return value
        if name == "type":
            return tl.core.constexpr_type(tuple(value) if isinstance(value, tuple) else value)
    elif isinstance(value, tl.dtype) and name == "value":
        return value
    elif isinstance(value, tuple) and name == "type":
        return tuple(attribute(one, name) for one in value)
    elif name == "type" and isinstance(value, tl.tensor) and is_one(value):
        return tl.core.constexpr_type(1)
    if name not in rules.ATTRIBUTES:
        raise Refused(f".{name} is no attribute of a block that a kernel may use")
    return getattr(value, name)


def spread(values: Any) -> tuple[Any, ...]:
    """Return the values of a tuple that a call spreads over its arguments."""
    if not isinstance(values, (tuple, tl.tuple)):
        raise Refused("a call spreads a tuple, as in f(*values), and nothing else")
    return tuple(values)
