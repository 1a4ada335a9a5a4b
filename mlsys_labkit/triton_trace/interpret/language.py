"""The namespace of a kernel in the worker: public names of ``tl`` and ``triton``, and Python's words as Triton's.

Making a ``Language`` changes ``triton.language`` for the rest of the process.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np
import triton
import triton.language as tl
from triton.language.extra.cuda import libdevice

from mlsys_labkit.triton_trace import rules
from mlsys_labkit.triton_trace.errors import TritonKernelError
from mlsys_labkit.triton_trace.interpret.blocks import plain, reduce, scan, shape_of
from mlsys_labkit.triton_trace.interpret.branches import Branches, is_one, unmarked
from mlsys_labkit.triton_trace.interpret.builder import Builder
from mlsys_labkit.triton_trace.interpret.carried import carried, variables
from mlsys_labkit.triton_trace.interpret.private import Handle, TritonSemantic, on_library_call, speak_through
from mlsys_labkit.triton_trace.interpret.rewrite import compiled
from mlsys_labkit.triton_trace.interpret.run import Refused
from mlsys_labkit.triton_trace.interpret.undefined import require_defined
from mlsys_labkit.triton_trace.libdevice_names import LIBDEVICE
from mlsys_labkit.triton_trace.source import Function, KernelSource, Name, constant


class Language:
    """A factory of Python functions from kernels' sources; one per process.

    Attributes:
        semantic: Triton's type rules over ``builder``.
    """

    def __init__(self, builder: Builder) -> None:
        self.semantic = TritonSemantic(builder)
        self._builder = builder
        self._branches = Branches(builder, self.semantic.to_tensor, self._decided)
        self._library: dict[FunctionType, Callable[..., Any]] = {}
        # Of the class: Triton 3.6 makes an object of it for each function of tl.
        TritonSemantic.make_tensor_descriptor = _with_constant_stride(TritonSemantic.make_tensor_descriptor)
        TritonSemantic.dot_scaled = _with_formats(TritonSemantic.dot_scaled)
        speak_through(builder, self.semantic)
        self._python = self._python_as_triton()
        for module in (tl, tl.core):
            module.range = self._python["range"]
            module.static_range = _static_range
            module.static_assert = _static_assert
            module.static_print = self._static_print
            module.reduce = reduce
            module.associative_scan = scan
            module.map_elementwise = self._mapped
        tl.tensor.__getitem__ = _checked_item(tl.tensor.__getitem__)
        tl.tensor.__bool__ = lambda tensor: True  # Triton's own code tests "if mask:" for the presence of a mask
        on_library_call(self._library_function)
        self._modules = _public_modules(self.semantic)

    def _mapped(self, function: Any, *blocks: Any, pack: int = 1) -> Any:
        """Call a function of scalars on each element, or on ``pack`` elements in a row."""
        shape = np.broadcast_shapes(*(one.handle.data.shape for one in blocks))
        flat = [np.broadcast_to(one.handle.data, shape).reshape(-1) for one in blocks]
        rows, single = [], False
        for at in range(0, flat[0].size, pack):
            operands = [
                tl.tensor(Handle(np.array(data[i : i + 1]), one.dtype), one.dtype)
                for data, one in zip(flat, blocks, strict=True)
                for i in range(at, at + pack)
            ]
            results = function(*operands)
            single = not isinstance(results, (tuple, tl.tuple))
            rows.append([self.semantic.to_tensor(one) for one in ([results] if single else results)])
        made = []
        for first in range(0, len(rows[0]), pack):
            dtype = rows[0][first].dtype
            data = np.concatenate([one.handle.data.reshape(-1) for row in rows for one in row[first : first + pack]])
            made.append(tl.tensor(Handle(data.reshape(shape), dtype), tl.block_type(dtype, list(shape))))
        return made[0] if single else tuple(made)

    def functions(self, source: KernelSource, places: dict[str, str]) -> dict[str, Any]:
        """Return every jitted function of ``source`` by its key, and add file name -> cell to ``places``."""
        self._branches.begin()
        spaces: dict[str, dict[str, Any]] = {}
        made: dict[str, Any] = {}
        for index, function in enumerate(source.functions):
            file = f"<kernel {index}>"
            places[file] = function.place
            space = spaces[function.key] = {"__builtins__": {}, **self._python}
            exec(compiled(function.text, file, function.first_line), space)
            made[function.key] = space[function.name]
            self._give_defaults(made[function.key], function)
        for function in source.functions:
            for name, meaning in function.names.items():
                known = meaning.kind == "function"
                spaces[function.key][name] = made[meaning.value] if known else self._named(name, meaning)
        return made

    def _named(self, name: str, meaning: Name) -> Any:
        """Return the object of a global name, or a stand-in that refuses every use of it.

        check_rules lets a refused name pass in a branch that constants choose, which is perhaps not taken.
        """
        if meaning.kind == "refused":
            return _Absent(str(meaning.value))
        module, _, short = str(meaning.value).rpartition(".")
        if meaning.kind == "language" and short not in rules.names_of(module):
            return _Absent(f"{name} is not interpreted")
        if meaning.kind == "module" and meaning.value not in self._modules:
            return _Absent(f"{name}: {meaning.value} is not interpreted")
        return self.meaning(meaning)

    def meaning(self, name: Name) -> Any:
        """Return the object of a global name. Raises Refused where this version of Triton has no such name."""
        if name.kind == "constant":
            return constant(name.value)
        if name.kind == "python":
            return self._python[name.value]
        if name.value in self._modules:
            return self._modules[name.value]
        module, _, attribute = name.value.rpartition(".")
        if not hasattr(self._modules.get(module), attribute):
            raise Refused(f"Triton {triton.__version__} has no {name.value}")
        return getattr(self._modules[module], attribute)

    def _give_defaults(self, made: Any, function: Function) -> None:
        given = [(one, self.meaning(one.default)) for one in function.parameters if one.default]
        made.__defaults__ = tuple(value for one, value in given if not one.keyword_only) or None
        made.__kwdefaults__ = {one.name: value for one, value in given if one.keyword_only} or None

    def _library_function(self, function: FunctionType) -> Callable[..., Any]:
        """Return a function of Triton's own library that is written in Triton, such as ``tl.sum``."""
        if function not in self._library:
            lines, first = inspect.getsourcelines(function)
            start = next(i for i, line in enumerate(lines) if line.lstrip().startswith("def "))
            text = textwrap.dedent("".join(lines[start:]))
            space = {**self._python, **function.__globals__, "range": self._python["range"]}
            exec(compiled(text, inspect.getfile(function), first + start, keep_defaults=True), space)
            self._library[function] = space[function.__name__]
        return self._library[function]

    def _assigned(self, value: Any) -> Any:
        """Return a value as an assignment stores it: numbers, and those in a tuple, as tensors."""
        if isinstance(value, (tuple, list)):
            return tuple(self._assigned(one) for one in value)
        return unmarked(self.semantic.to_tensor(value, False))

    def _decided(self, condition: Any) -> bool:
        """Return a condition's truth, and report one that depends on an undefined value."""
        truth = _truth(condition)
        if isinstance(condition, tl.tensor) and self._builder.run:
            require_defined(self._builder.run, "takes a branch by", None, condition.handle)
        return truth

    def _static_print(self, *values: Any, **options: Any) -> None:
        run = self._builder.run
        if run:
            run.print(" ".join(str(_shown(value)) for value in values) + "\n")

    def _python_as_triton(self) -> dict[str, Any]:
        """Return the functions that rewrite.py inserts, and Python's functions that Triton's compiler accepts."""
        semantic = self.semantic

        def counted(*given: Any, **options: Any) -> Iterator[Any]:
            rest = ("arg1", "arg2", "step")[len(given) :]
            named = (options[name] for name in rest if plain(options.get(name)) is not None)
            tensors = [semantic.to_tensor(one) for one in (*given, *named)]
            dtype = tl.int64 if any(one.dtype.int_bitwidth == 64 for one in tensors) else tl.int32
            for one in tensors:
                require_defined(self._builder.running, "counts a loop by", None, one.handle)
            bounds = [int(one.handle.data.reshape(-1)[0]) for one in tensors]
            for index in (0,) if self._branches.trying else range(*bounds):
                yield semantic.scalar_constant(index, dtype)

        def asserted(condition: Any, message: str) -> None:
            if isinstance(condition, tl.tensor):
                tl.device_assert(condition, message)
            else:
                _static_assert(condition, message)

        def chosen(by_python: Callable[..., Any], by_triton: str) -> Callable[..., Any]:
            def choose(*values: Any, **options: Any) -> Any:
                if any(isinstance(one, tl.tensor) for one in values):
                    return getattr(tl, by_triton)(*values, **options)
                return by_python(*map(plain, values))

            return choose

        return {
            "_lk_to_tensor": self._assigned,
            "_lk_and": lambda *operands: _joined(operands, "logical_and", False),
            "_lk_or": lambda *operands: _joined(operands, "logical_or", True),
            "_lk_not": lambda value: value.__not__() if isinstance(value, tl.tensor) else not value,
            "_lk_truth": self._decided,
            "_lk_branch": self._branches.choose,
            "_lk_select": self._branches.select,
            "_lk_return": self._branches.returned,
            "_lk_turn": self._branches.turn,
            "_lk_assert": asserted,
            "_lk_variables": variables,
            "_lk_carried": carried,
            "range": counted,
            "min": chosen(min, "minimum"),
            "max": chosen(max, "maximum"),
            "len": len,
            "int": int,
            "float": float,
            "isinstance": _is_instance,
            "getattr": _attribute,
            "hasattr": lambda value, name: _attribute(value, name, None) is not None,
            "print": lambda *values, **options: tl.device_print(*values, **options),
        }


def _public_modules(semantic: Any) -> dict[str, Any]:
    def public(module: Any, names: Iterable[str]) -> SimpleNamespace:
        return _Module("tl", {name: getattr(module, name) for name in names if hasattr(module, name)})

    mathematics = public(tl.math, rules.MATH)
    language = public(tl, rules.LANGUAGE)
    language.math = mathematics
    language.random = language
    for name in rules.KINDS:
        setattr(language, name, _Kind(getattr(tl, name)))
    language.tuple = _Tuple(tl.tuple)
    language.constexpr = plain
    extra = _extra_modules(semantic)
    language.extra = extra["triton.language.extra"]
    top = SimpleNamespace(
        language=language, cdiv=_for_constants(triton.cdiv), next_power_of_2=_for_constants(triton.next_power_of_2)
    )
    return {"triton": top, "triton.language": language, "triton.language.math": mathematics, **extra}


class _Module(SimpleNamespace):
    """Public names of a module; it refuses the others by name."""

    def __init__(self, name: str, members: dict[str, Any]) -> None:
        super().__init__(**members)
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in rules.KNOWN:
            raise AttributeError(name)
        raise Refused(f"{self._name}.{name} is not interpreted")


class _Kind:
    """A class of Triton's, for isinstance only: a kernel must not make a block of anything that it likes."""

    def __init__(self, kind: type) -> None:
        self.kinds = (kind, tuple) if kind is tl.tuple else (kind,)


class _Tuple(_Kind):
    """``tl.tuple``, which a kernel may also make."""

    def __call__(self, values: Any) -> Any:
        return tl.tuple(list(values))


class _Absent:
    """A stand-in for a name that is not interpreted."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def __getattr__(self, name: str) -> Any:
        raise Refused(self._reason)

    def __call__(self, *args: Any, **options: Any) -> Any:
        raise Refused(self._reason)


def _extra_modules(semantic: Any) -> dict[str, Any]:
    """Return ``tl.extra`` for NVIDIA: libdevice, and what a launch after another one waits with."""

    def bound(function: Any) -> Callable[..., Any]:
        return lambda *operands: function(*operands, _semantic=semantic)

    library = SimpleNamespace(**{name: bound(one) for name, one in vars(libdevice).items() if name in LIBDEVICE})
    cuda = SimpleNamespace(libdevice=library, **dict.fromkeys(rules.DEPENDENT_LAUNCH, lambda: None))
    extra = SimpleNamespace(libdevice=library, cuda=cuda)
    place = "triton.language.extra"
    return {place: extra, f"{place}.cuda": cuda, f"{place}.libdevice": library, f"{place}.cuda.libdevice": library}


def _is_instance(value: Any, kind: Any) -> bool:
    """Return whether ``value`` is of a kind; constants of compile time are plain values here."""
    if kind is plain:
        return not isinstance(value, tl.tensor)
    if isinstance(kind, tuple):
        return any(_is_instance(value, one) for one in kind)
    return isinstance(value, kind.kinds if isinstance(kind, _Kind) else kind)


_NOTHING = object()


def _attribute(value: Any, name: str, default: Any = _NOTHING) -> Any:
    """Return a public attribute of a module or a block, as a kernel may write it after a point."""
    if not isinstance(name, str) or name not in rules.ATTRIBUTES:
        if default is not _NOTHING:
            return default
        raise Refused(f"getattr: {name} is no attribute that a kernel may use")
    return getattr(value, name) if default is _NOTHING else getattr(value, name, default)


def _with_constant_stride(describe: Callable[..., Any]) -> Callable[..., Any]:
    """Return Triton's rule for descriptors, for which an argument of value 1 is the constant that a last stride is."""

    def create(semantic: Any, base: Any, shape: Any, strides: Any, *rest: Any, **named: Any) -> Any:
        steps = list(strides)
        if steps and isinstance(steps[-1], tl.tensor) and is_one(steps[-1]):
            steps[-1] = tl.constexpr(1)
        return describe(semantic, base, list(shape), steps, *rest, **named)

    return create


class _Format(str):
    """The name of a format, which Triton before 3.9 takes as a tl.constexpr and Triton 3.9 as a string."""

    value = property(str)


def _with_formats(dot: Callable[..., Any]) -> Callable[..., Any]:
    """Return Triton's rule for ``tl.dot_scaled``, which takes the names of formats from its compiler."""

    def create(semantic: Any, a: Any, a_scale: Any, a_form: Any, *rest: Any) -> Any:
        b, b_scale, b_form, *more = rest
        return dot(semantic, a, a_scale, _Format(plain(a_form)), b, b_scale, _Format(plain(b_form)), *more)

    return create


def _checked_item(item: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``tensor[...]`` for new axes, with advice for any other index."""

    def checked(tensor: Any, index: Any, **options: Any) -> Any:
        parts = [plain(one) for one in (index if isinstance(index, (tuple, tl.tuple)) else (index,))]
        if all(one is None or (isinstance(one, slice) and one == slice(None)) for one in parts):
            return item(tensor, index, **options)
        if tensor.dtype.is_ptr():
            raise Refused("a pointer has no []; load with tl.load(pointer + i, mask=...), and store with tl.store")
        raise Refused("a block has [] for new axes only, as in [:, None]; load the elements that you need from memory")

    return checked


def _for_constants(function: Any) -> Callable[..., Any]:
    def checked(*values: Any) -> Any:
        if any(isinstance(value, tl.tensor) for value in values):
            raise Refused(f"triton.{function.__name__} takes constants in a kernel; for others there is tl.cdiv")
        return function(*map(plain, values))

    return checked


def _joined(operands: Sequence[Callable[[], Any]], method: str, decisive: bool) -> Any:
    """Evaluate ``and`` or ``or``: constants decide at once, blocks are joined element by element."""
    tensors: list[Any] = []
    last = None
    for operand in operands:
        last = operand()
        if isinstance(last, tl.tensor):
            tensors.append(last)
        elif bool(last) is decisive:
            return last
    result = tensors[0] if tensors else last
    for tensor in tensors[1:]:
        result = getattr(result, method)(tensor)
    return result


def _truth(condition: Any) -> bool:
    if not isinstance(condition, tl.tensor):
        return bool(condition)
    if condition.handle.data.size != 1:
        raise Refused(f"a block of shape {shape_of(condition)} is not one condition; use tl.where, or reduce it first")
    return bool(condition.handle.data.reshape(-1)[0])


def _shown(value: Any) -> Any:
    return f"{value.dtype}{shape_of(value)}" if isinstance(value, tl.tensor) else plain(value)


def _static_range(start: Any, stop: Any = None, step: Any = None, **options: Any) -> range:
    bounds = [plain(one) for one in (start, stop, step) if one is not None]
    if any(isinstance(one, tl.tensor) for one in bounds):
        raise Refused("tl.static_range takes constants (tl.constexpr); use range or tl.range for numbers of run time")
    return range(*bounds)


def _static_assert(condition: Any, message: str = "") -> None:
    if not condition:
        raise TritonKernelError(f"tl.static_assert does not hold{f': {message}' if message else ''}")
