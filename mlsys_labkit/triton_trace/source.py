"""``KernelSource``: a kernel and the jitted functions that it calls, as text that another process checks and runs."""

from __future__ import annotations

import ast
import inspect
import math
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from mlsys_labkit._base.cells import cell_label
from mlsys_labkit.triton_trace.errors import RefusedSourceError

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
            (another Function: its ``key``), "constant" (the value itself), "python" (a built-in function) or
            "refused" (why a kernel may not use it).
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
class TritonParameter:
    """One parameter. ``default`` is a Name of kind "constant" or "language", or None where there is no default."""

    name: str
    constexpr: bool = False
    default: Name | None = None
    keyword_only: bool = False
    annotation: str = ""


@dataclass(frozen=True)
class Function:
    """One jitted function.

    Attributes:
        key: unique in its KernelSource.
        text: the source from ``def`` on, dedented. Its first line is line ``first_line`` of ``place``.
        place: the cell ("In[3]") or the file's name.
        names: meanings of its global names.
    """

    key: str
    name: str
    text: str
    place: str
    first_line: int
    parameters: tuple[TritonParameter, ...]
    names: dict[str, Name]

    def line_text(self, line: int) -> str:
        """Return the text of line ``line`` of ``place``, "" where it is not in this function."""
        lines = self.text.splitlines()
        return lines[line - self.first_line].strip() if 0 <= line - self.first_line < len(lines) else ""


@dataclass(frozen=True)
class KernelSource:
    """A kernel with everything it calls.

    Attributes:
        kernel: key of the function that is launched.
        functions: it and the jitted functions that it calls, directly or not.

    Example:
        >>> import triton, triton.language as tl
        >>> @triton.jit
        ... def fill(x, value: tl.constexpr = 3):
        ...     tl.store(x, value)
        >>> [(one.name, one.constexpr) for one in KernelSource.of(fill).entry.parameters]
        [('x', False), ('value', True)]
    """

    kernel: str
    functions: tuple[Function, ...]

    @staticmethod
    def of(kernel: Any) -> KernelSource:
        """Return the source of a ``@triton.jit`` function. Raises RefusedSourceError where Python has none."""
        found: dict[str, Function] = {}
        waiting = [plain(kernel)]
        while waiting:
            function = waiting.pop()
            if _key(function) not in found:
                found[_key(function)] = _read(function, waiting)
        return KernelSource(_key(plain(kernel)), tuple(found.values()))

    @property
    def entry(self) -> Function:
        """Return the function that is launched."""
        return self.function(self.kernel)

    def function(self, key: str) -> Function:
        return next(function for function in self.functions if function.key == key)

    def line_text(self, place: str, line: int) -> str:
        """Return the text of a line, "" where no function of the kernel has it."""
        texts = (one.line_text(line) for one in self.functions if one.place == place)
        return next((text for text in texts if text), "")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> KernelSource:
        return KernelSource(data["kernel"], tuple(_function(one) for one in data["functions"]))


def layers(kernel: Any) -> Iterator[Any]:
    """Yield a kernel and what it wraps, from ``@triton.autotune`` and its like to the Python function."""
    yield kernel
    while not isinstance(kernel, FunctionType) and hasattr(kernel, "fn"):
        kernel = kernel.fn
        yield kernel


def plain(kernel: Any) -> FunctionType:
    """Return the Python function under ``@triton.jit`` and other decorators."""
    *_, inner = layers(kernel)
    if isinstance(inner, WithheldName):
        raise RefusedSourceError(inner.reason)
    if not isinstance(inner, FunctionType) or inner is kernel:
        raise RefusedSourceError(f"expected a function under @triton.jit, got {type(kernel).__name__}")
    return inner


def _key(function: FunctionType) -> str:
    return f"{function.__module__}.{function.__qualname__}:{function.__code__.co_firstlineno}"


def _read(function: FunctionType, waiting: list[FunctionType]) -> Function:
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        raise RefusedSourceError(
            f"{function.__name__}: Python cannot find its source; define it in a cell or in a file"
        ) from None
    dedented = textwrap.dedent("".join(lines))
    node = ast.parse(dedented).body[0]
    if not isinstance(node, ast.FunctionDef):
        raise RefusedSourceError(f"{function.__name__}: a kernel is a plain function, written with def")
    text = "".join(dedented.splitlines(keepends=True)[node.lineno - 1 :])
    file = function.__code__.co_filename
    return Function(
        key=_key(function),
        name=function.__name__,
        text=text,
        place=cell_label(file) or Path(file).name,
        first_line=first + node.lineno - 1,
        parameters=tuple(_parameters(function, node)),
        names={name: _meaning(name, function, waiting) for name in sorted(_global_names(node))},
    )


def _parameters(function: FunctionType, node: ast.FunctionDef) -> Iterator[TritonParameter]:
    if node.args.vararg or node.args.kwarg:
        raise RefusedSourceError(f"{node.name}: a kernel takes no *args and no **kwargs; name every parameter")
    annotations = {one.arg: one.annotation for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}
    for name, parameter in inspect.signature(function).parameters.items():
        given = annotations[name]
        text = ast.unparse(given).strip("'\"").split(".")[-1] if given else ""
        default = None
        if parameter.default is not parameter.empty:
            default = _value(parameter.default) or Name("refused", "a default value that is no plain constant")
        text = "constexpr" if _is_constexpr(parameter.annotation) else text
        yield TritonParameter(name, text == "constexpr", default, parameter.kind is parameter.KEYWORD_ONLY, text)


def _is_constexpr(annotation: Any) -> bool:
    """Return whether an annotation is tl.constexpr, imported under whatever name."""
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return bool(name.split(".")[-1] == "constexpr")


def _global_names(node: ast.FunctionDef) -> set[str]:
    """Return the names that the function reads and does not bind itself."""
    names = [one for part in node.body for one in ast.walk(part) if isinstance(one, ast.Name)]
    bound = {one.id for one in names if not isinstance(one.ctx, ast.Load)}
    bound |= {one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}
    return {one.id for one in names} - bound


def _meaning(name: str, function: FunctionType, waiting: list[FunctionType]) -> Name:
    closed = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    try:
        value = closed[name].cell_contents if name in closed else function.__globals__[name]
    except (KeyError, ValueError):
        if name in _PYTHON:
            return Name("python", name)
        instead = f"; Triton does not compile Python's {name}: write {_INSTEAD[name]}" if name in _INSTEAD else ""
        return Name("refused", f"{name} is not defined in a kernel{instead}" if instead else f"{name} is not defined")
    if isinstance(value, WithheldName):
        return Name("refused", value.reason)
    if isinstance(value, ModuleType):
        if value.__name__ in _MODULES:
            return Name("module", value.__name__)
        if value.__name__ in ("triton.language.core", "triton.language.standard", "triton.language.random"):
            return Name("module", "triton.language")
        if value.__name__.startswith(_EXTRA) and value.__name__.endswith("libdevice"):
            return Name("module", f"{_EXTRA}.libdevice")
        instead = ": write the number, or float('inf')" if value.__name__ == "math" else ""
        return Name("refused", f"{name} is the module {value.__name__}; a kernel can only use triton and tl{instead}")
    known = language_name(value)
    if known is not None:
        return known
    if hasattr(value, "fn") and isinstance(value.fn, FunctionType):
        waiting.append(value.fn)
        return Name("function", _key(value.fn))
    if type(value).__name__ == "constexpr" and type(value).__module__ == "triton.language.core":
        return _value(value.value) or Name("refused", f"{name} is a tl.constexpr of {type(value.value).__name__}")
    if isinstance(value, (int, float, str, bool)):
        return Name("refused", f"{name} is a global variable; write {name} = tl.constexpr({value!r}), or pass it")
    return Name("refused", f"{name} is a {type(value).__name__}; a kernel cannot use it")


def _value(value: Any) -> Name | None:
    """Return a plain constant as a Name, or None for other values."""
    if type(value).__name__ == "constexpr":
        value = value.value
    if value is None or isinstance(value, (bool, int, str)):
        return Name("constant", value)
    if isinstance(value, float):
        return Name("constant", value if math.isfinite(value) else {"float": str(value)})
    if isinstance(value, tuple):
        parts = [_value(part) for part in value]
        if all(part and part.kind == "constant" for part in parts):
            return Name("constant", {"tuple": [part.value for part in parts if part]})
    return language_name(value)


def language_name(value: Any) -> Name | None:
    """Return the public name of an object of triton or triton.language, or None for other objects."""
    if type(value).__name__ == "dtype" and type(value).__module__ == "triton.language.core":
        return Name("language", f"triton.language.{_type_name(value.name)}")
    name = getattr(value, "__name__", None)
    home = getattr(value, "__module__", None) or ""
    if home.startswith(_EXTRA) and not isinstance(value, ModuleType):
        return Name("language", f"{_EXTRA}.{'libdevice' if home.endswith('libdevice') else 'cuda'}.{name}")
    for module in reversed(_MODULES[:3]):
        if name and not isinstance(value, ModuleType):
            found = getattr(sys.modules.get(module), name, None)
            if found is value:
                return Name("language", f"{module}.{name}")
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


def _function(data: dict[str, Any]) -> Function:
    parameters = tuple(
        TritonParameter(**{**one, "default": Name(**one["default"]) if one["default"] else None})
        for one in data["parameters"]
    )
    names = {name: Name(**one) for name, one in data["names"].items()}
    return Function(**{**data, "parameters": parameters, "names": names})
