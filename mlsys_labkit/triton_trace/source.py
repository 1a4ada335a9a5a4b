"""``KernelSource``: a kernel and the jitted functions that it calls, as text that another process checks and runs."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

from mlsys_labkit._base.cells import cell_label
from mlsys_labkit.triton_trace.errors import RefusedSourceError
from mlsys_labkit.triton_trace.gluon.aggregates import is_aggregate
from mlsys_labkit.triton_trace.names import (
    Name,
    WithheldName,
    aggregate_name,
    dotted_path,
    function_key,
    is_constant,
    is_edited,
    is_jitted,
    meanings,
    value_name,
)


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
        names: meanings of its global names, and of those in other modules ("helpers.f").
        constant: it is a ``@triton.constexpr_function``, which calculates with constants.
        in_file: it is written in a file, not in a cell.
        noinline: it is ``@triton.jit(noinline=True)``, which takes no blocks.
    """

    key: str
    name: str
    text: str
    place: str
    first_line: int
    parameters: tuple[TritonParameter, ...]
    names: dict[str, Name]
    constant: bool = False
    in_file: bool = False
    noinline: bool = False

    def line_text(self, line: int) -> str:
        """Return the text of line ``line`` of ``place``, "" where it is not in this function."""
        lines = self.text.splitlines()
        return lines[line - self.first_line].strip() if 0 <= line - self.first_line < len(lines) else ""


@dataclass(frozen=True)
class KernelSource:
    """A kernel with everything it calls.

    Attributes:
        kernel: key of the function that is launched.
        functions: it and the jitted functions that it calls, directly or not, or is given.
        fields: names of the fields of named tuples, and of the fields and methods of aggregates.
        gluon: the kernel is under ``@gluon.jit``.

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
    fields: tuple[str, ...] = ()
    gluon: bool = False

    @staticmethod
    def of(kernel: Any, arguments: Iterable[Any] = ()) -> KernelSource:
        """Return the source of a ``@triton.jit`` function. Raises RefusedSourceError where Python has none.

        Args:
            arguments: of a launch; jitted functions among them become part of the source.
        """
        plain(kernel)
        found: dict[str, Function] = {}
        fields: set[str] = set()
        inner = _inner(kernel)
        waiting = [inner, *_functions_in(arguments, fields)]
        while waiting:
            function = waiting.pop()
            if function_key(function) not in found:
                found[function_key(function)] = one = _read(function, waiting)
                fields.update(*(_fields_of(name) for name in one.names.values()))
        is_gluon = type(inner).__name__ == "GluonJITFunction"
        return KernelSource(function_key(inner), tuple(found.values()), tuple(sorted(fields)), is_gluon)

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
        functions = tuple(_function(one) for one in data["functions"])
        return KernelSource(data["kernel"], functions, tuple(data["fields"]), data["gluon"])


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


def _inner(kernel: Any) -> Any:
    """Return the innermost object with a function, which ``@triton.jit`` made."""
    *_, inner, _ = layers(kernel)
    return inner


def _functions_in(values: Iterable[Any], fields: set[str]) -> Iterator[Any]:
    """Yield the jitted functions among the arguments of a launch, and add the fields of named tuples to ``fields``."""
    for value in values:
        if isinstance(value, tuple):
            fields.update(getattr(value, "_fields", ()))
            yield from _functions_in(value, fields)
        elif is_jitted(value):
            yield value
        elif is_aggregate(value):
            methods: list[Any] = []
            fields.update(_fields_of(aggregate_name(value, methods)))
            yield from methods


def _fields_of(name: Name) -> list[str]:
    """Return the names that a class of named tuples, or an aggregate, gives to attributes."""
    if name.kind == "aggregate":
        return [*name.value["fields"], *name.value["methods"]]
    return list(name.value) if name.kind == "record" else []


def _read(kernel: Any, waiting: list[Any]) -> Function:
    function = kernel.fn
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        raise RefusedSourceError(
            f"{function.__name__}: Python cannot find its source; define it in a cell or in a file"
        ) from None
    dedented = textwrap.dedent("".join(lines))
    if is_edited(kernel):
        before = next(i for i, line in enumerate(lines) if line.lstrip().startswith("def "))
        dedented = "\n" * before + kernel.src
    node = ast.parse(dedented).body[0]
    if not isinstance(node, ast.FunctionDef):
        raise RefusedSourceError(f"{function.__name__}: a kernel is a plain function, written with def")
    text = b"".join(dedented.encode().splitlines(keepends=True)[node.lineno - 1 :]).decode()  # not at form feeds
    file = function.__code__.co_filename
    return Function(
        key=function_key(kernel),
        name=function.__name__,
        text=text,
        place=cell_label(file) or Path(file).name,
        first_line=first + node.lineno - 1,
        parameters=tuple(_parameters(function, node)),
        names=dict(meanings(_global_names(node), kernel, waiting)),
        constant=is_constant(kernel),
        in_file=not cell_label(file) and Path(file).is_file(),
        noinline=bool(getattr(kernel, "noinline", False)),
    )


def _parameters(function: FunctionType, node: ast.FunctionDef) -> Iterator[TritonParameter]:
    if node.args.vararg or node.args.kwarg:
        raise RefusedSourceError(f"{node.name}: a kernel takes no *args and no **kwargs; name every parameter")
    annotations = {one.arg: one.annotation for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}
    for name, parameter in inspect.signature(function).parameters.items():
        text = _annotation(annotations[name], parameter.annotation)
        default = None
        if parameter.default is not parameter.empty:
            default = value_name(parameter.default) or Name("refused", "a default value that is no plain constant")
        text = "constexpr" if _is_constexpr(parameter.annotation) else text
        yield TritonParameter(name, text == "constexpr", default, parameter.kind is parameter.KEYWORD_ONLY, text)


def _annotation(given: ast.expr | None, meant: Any) -> str:
    """Return an annotation as text: a type of Triton's by its short name."""
    if type(meant).__name__ == "dtype":
        return str(meant.name)
    return ast.unparse(given).strip("'\"").split(".")[-1] if given else ""


def _is_constexpr(annotation: Any) -> bool:
    """Return whether an annotation is tl.constexpr, imported under whatever name."""
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return bool(name.split(".")[-1] == "constexpr")


def _global_names(node: ast.FunctionDef) -> set[str]:
    """Return the names that the function reads and does not bind itself, with their attributes: "helpers.f"."""
    nodes = [one for part in node.body for one in ast.walk(part)]
    bound = {one.id for one in nodes if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load)}
    bound |= {one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}
    inner = {id(one.value) for one in nodes if isinstance(one, ast.Attribute)}
    paths = {dotted_path(one) for one in nodes if isinstance(one, (ast.Name, ast.Attribute)) and id(one) not in inner}
    return {path for path in paths if path and path.partition(".")[0] not in bound}


def _function(data: dict[str, Any]) -> Function:
    parameters = tuple(
        TritonParameter(**{**one, "default": Name(**one["default"]) if one["default"] else None})
        for one in data["parameters"]
    )
    names = {name: Name(**one) for name, one in data["names"].items()}
    return Function(**{**data, "parameters": parameters, "names": names})
