"""Classes under Gluon's ``@aggregate``: their fields and methods, without an import of Triton."""

from __future__ import annotations

from types import FunctionType
from typing import Any


def is_aggregate(value: Any) -> bool:
    return isinstance(value, type) and bool(getattr(value, "__triton_aggregate__", False))


def aggregate_members(value: Any) -> tuple[list[str], dict[str, Any]]:
    """Return the names of the fields, and the methods, with the constructor as ``__init__``."""
    setter = vars(value)["__setattr__"]
    written = setter.__closure__[setter.__code__.co_freevars.index("cls")].cell_contents
    methods = {name: one for name, one in vars(value).items() if name[:1] != "_" and _is_method(one)}
    if _is_method(constructor := vars(written).get("__init__")):
        methods["__init__"] = constructor
    return list(written.__annotations__), methods


def _is_method(value: Any) -> bool:
    return isinstance(value, FunctionType) or isinstance(getattr(value, "fn", None), FunctionType)
