"""``Name``: the meaning of a name that a kernel reads, as plain data that another process takes over."""

from __future__ import annotations

import ast
import math
import sys
import textwrap
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

from mlsys_labkit.triton_trace.errors import RefusedSourceError
from mlsys_labkit.triton_trace.gluon import vocabulary as gluon
from mlsys_labkit.triton_trace.gluon.aggregates import aggregate_members, is_aggregate
from mlsys_labkit.triton_trace.gluon.layouts import layout_name

_NOTHING = object()
_EXTRA = "triton.language.extra"
_MODULES = ("triton", "triton.language", "triton.language.math", _EXTRA, f"{_EXTRA}.cuda")
_PYTHON = frozenset(("range", "min", "max", "len", "print", "int", "float", "isinstance", "getattr", "hasattr"))
_INSTEAD = {
    "abs": "tl.abs(x)",
    "all": "tl.min(x.to(tl.int32), axis=0) == 1",
    "any": "tl.max(x.to(tl.int32), axis=0) == 1",
    "bool": "x != 0",
    "enumerate": "range(n)",
    "pow": "x * x, or tl.exp2(y * tl.log2(x))",
    "round": "tl.floor(x + 0.5)",
    "sorted": "tl.sort(x)",
    "sum": "tl.sum(x, axis=0)",
}


@dataclass(frozen=True)
class Name:
    """The meaning of a global name of a kernel.

    Attributes:
        kind: "module" (``value``: its dotted name), "language" (a function or type: its dotted name), "function"
            (another Function: its ``key``), "constant" (the value itself), "record" (a class of named tuples: its
            fields), "layout" (one of Gluon's), "aggregate" (a class of Gluon's with methods), "python" (a built-in
            function) or "refused" (why a kernel may not use it).
    """

    kind: str
    value: Any


@dataclass(frozen=True)
class WithheldName:
    """A stand-in for a global name whose value a process must not have: a kernel that uses it is refused.

    Attributes:
        reason: one line that names it, and says what to do.
    """

    reason: str

    def __getitem__(self, grid: Any) -> Any:
        raise RefusedSourceError(self.reason)


@dataclass(frozen=True)
class ConstantFunction:
    """A function under ``@tl.constexpr``, the earlier form of ``@triton.constexpr_function``."""

    fn: FunctionType


def is_constant(kernel: Any) -> bool:
    """Return whether an object is a function that calculates with constants."""
    return isinstance(kernel, ConstantFunction) or type(kernel).__name__ == "ConstexprFunction"


def is_jitted(value: Any) -> bool:
    """Return whether an object is a function under ``@triton.jit`` or ``@triton.constexpr_function``."""
    return hasattr(value, "fn") and isinstance(value.fn, FunctionType)


def function_key(kernel: Any) -> str:
    """Return the key of a jitted function in a KernelSource."""
    function = kernel.fn
    edited = f"#{zlib.crc32(kernel.src.encode())}" if is_edited(kernel) else ""
    return f"{function.__module__}.{function.__qualname__}:{function.__code__.co_firstlineno}{edited}"


def is_edited(kernel: Any) -> bool:
    """Return whether the text of a jitted function was replaced, as Triton's own tests do."""
    return hasattr(kernel, "raw_src") and not textwrap.dedent("".join(kernel.raw_src)).endswith(kernel.src)


def dotted_path(node: ast.expr) -> str:
    """Return the path that an expression of names and points is, as "helpers.f"; "" for other expressions.

    Of ``f(x).shape`` and its like the names in front of the point are found by themselves.
    """
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (path := dotted_path(node.value)):
        return f"{path}.{node.attr}"
    return ""


def meanings(paths: Iterable[str], kernel: Any, waiting: list[Any]) -> Iterator[tuple[str, Name]]:
    """Yield the names that a kernel reads, each with its meaning; those in a module of the user's with their path.

    A function of constants may read numbers, and call functions that are under no decorator.
    """
    function, constant = kernel.fn, is_constant(kernel)
    closed = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    for root, *attributes in sorted(path.split(".") for path in paths):
        try:
            value = closed[root].cell_contents if root in closed else function.__globals__[root]
        except (KeyError, ValueError):
            yield root, _absent(root)
            continue
        path = root
        while isinstance(value, ModuleType) and attributes and _meaning(path, value, waiting).kind == "refused":
            name = attributes.pop(0)
            value = getattr(value, name, _NOTHING) if name[:1] != "_" else _NOTHING
            path = f"{path}.{name}"
        meaning = Name("refused", f"{path} is not defined") if value is _NOTHING else _meaning(path, value, waiting)
        if constant and isinstance(value, FunctionType):
            waiting.append(ConstantFunction(value))
            meaning = Name("function", function_key(waiting[-1]))
        elif meaning.kind == "refused" and value is not None and ("." in path or constant):
            meaning = value_name(value) or meaning  # only a kernel's own global variable must be a tl.constexpr
        yield path, meaning


def _absent(name: str) -> Name:
    """Return the meaning of a name that the kernel's module does not define."""
    if name in _PYTHON:
        return Name("python", name)
    instead = f"; Triton does not compile Python's {name}: write {_INSTEAD[name]}" if name in _INSTEAD else ""
    return Name("refused", f"{name} is not defined in a kernel{instead}" if instead else f"{name} is not defined")


def _meaning(name: str, value: Any, waiting: list[Any]) -> Name:
    if isinstance(value, WithheldName):
        return Name("refused", value.reason)
    if isinstance(value, ModuleType):
        if value.__name__ in _MODULES or value.__name__ in gluon.MODULES:
            return Name("module", value.__name__)
        if value.__name__ in ("triton.language.core", "triton.language.standard", "triton.language.random"):
            return Name("module", "triton.language")
        if value.__name__.startswith(gluon.LANGUAGE) and value.__name__.rpartition(".")[2] in ("_core", "_standard"):
            return Name("module", gluon.LANGUAGE)
        if value.__name__.startswith(_EXTRA) and value.__name__.endswith("libdevice"):
            return Name("module", f"{_EXTRA}.libdevice")
        instead = ": name what you need of it, as math.pi" if value.__name__ == "math" else ""
        return Name("refused", f"{name} is the module {value.__name__}; a kernel can only use triton and tl{instead}")
    known = language_name(value)
    if known is not None:
        return known
    if is_jitted(value):
        waiting.append(value)
        return Name("function", function_key(value))
    if isinstance(value, type) and issubclass(value, tuple) and hasattr(value, "_fields"):
        return Name("record", list(value._fields))
    if is_aggregate(value):
        return aggregate_name(value, waiting)
    if type(value).__name__ == "constexpr" and type(value).__module__ == "triton.language.core":
        if isinstance(value.value, FunctionType):
            waiting.append(ConstantFunction(value.value))
            return Name("function", function_key(waiting[-1]))
        return value_name(value.value) or Name("refused", f"{name} is a tl.constexpr of {type(value.value).__name__}")
    if isinstance(value, (int, float, str, bool)):
        return Name("refused", f"{name} is a global variable; write {name} = tl.constexpr({value!r}), or pass it")
    return Name("refused", f"{name} is a {type(value).__name__}; a kernel cannot use it")


def value_name(value: Any) -> Name | None:
    """Return a plain constant as a Name, or None for other values."""
    if type(value).__name__ == "constexpr":
        value = value.value
    if value is None or isinstance(value, (bool, int, str)):
        return Name("constant", value)
    if isinstance(value, float):
        return Name("constant", value if math.isfinite(value) else {"float": str(value)})
    if isinstance(value, tuple):
        parts = [value_name(part) for part in value]
        if all(part and part.kind == "constant" for part in parts):
            return Name("constant", {"tuple": [part.value for part in parts if part]})
    if (layout := layout_name(value)) is not None:
        return Name("layout", layout)
    return language_name(value)


def aggregate_name(value: Any, waiting: list[Any]) -> Name:
    """Return a class under Gluon's ``@aggregate`` as a Name, and add its methods to ``waiting``."""
    fields, methods = aggregate_members(value)
    jitted = {name: one if hasattr(one, "fn") else ConstantFunction(one) for name, one in methods.items()}
    waiting.extend(jitted.values())
    keys = {name: function_key(one) for name, one in jitted.items()}
    return Name("aggregate", {"name": value.__name__, "fields": fields, "methods": keys})


def language_name(value: Any) -> Name | None:
    """Return the public name of an object of triton or triton.language, or None for other objects."""
    if type(value).__name__ == "dtype" and type(value).__module__ == "triton.language.core":
        return Name("language", f"triton.language.{_type_name(value.name)}")
    name = getattr(value, "__name__", None)
    home = getattr(value, "__module__", None) or ""
    if name == "constexpr_type" and home.startswith("triton.language"):
        return Name("language", "triton.language.constexpr_type")
    if home.startswith(_EXTRA) and not isinstance(value, ModuleType):
        return Name("language", f"{_EXTRA}.{'libdevice' if home.endswith('libdevice') else 'cuda'}.{name}")
    for module in reversed(_MODULES[:3]):
        if name and not isinstance(value, ModuleType):
            found = getattr(sys.modules.get(module), name, None)
            if found is value:
                return Name("language", f"{module}.{name}")
    if name and home.startswith(gluon.GLUON) and not isinstance(value, ModuleType):
        for module, names in gluon.MODULES.items():
            if name in names and getattr(sys.modules.get(module), name, None) is value:
                return Name("language", f"{module}.{name}")
        if "blackwell" in home:
            return Name("language", f"{home}.{name}")
    return None


def _type_name(short: str) -> str:
    for prefix, word in (("fp8", "float8"), ("bf", "bfloat"), ("fp", "float")):
        if short.startswith(prefix):
            return word + short.removeprefix(prefix)
    return short


def name_set(text: str) -> frozenset[str]:
    """Return the names in ``text``, which are separated by white space."""
    return frozenset(text.split())


def constant(value: Any) -> Any:
    """Return the value of a Name of kind "constant"."""
    if isinstance(value, dict):
        return tuple(constant(part) for part in value["tuple"]) if "tuple" in value else float(value["float"])
    return value
