"""The namespace of a kernel in the worker: public names of ``tl`` and ``triton``, and Python's words as Triton's.

``Language.speak`` changes ``triton.language`` for the rest of the process.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType
from typing import Any

import numpy as np
import triton
import triton.language as tl

from mlsys_labkit.triton_trace import rules
from mlsys_labkit.triton_trace.gluon.layouts import layout_of
from mlsys_labkit.triton_trace.gluon.objects import AggregateClass
from mlsys_labkit.triton_trace.interpret.blocks import plain, reduce, scan, shape_of
from mlsys_labkit.triton_trace.interpret.branches import Branches, is_one, unmarked
from mlsys_labkit.triton_trace.interpret.builder import Builder
from mlsys_labkit.triton_trace.interpret.carried import carried, note_sum, variables
from mlsys_labkit.triton_trace.interpret.private import Handle, TritonSemantic, on_library_call, speak_through
from mlsys_labkit.triton_trace.interpret.public_modules import Absent, attribute_of, is_instance, public_modules
from mlsys_labkit.triton_trace.interpret.records import ConstantTuple, attribute, constants, like, record_class, spread
from mlsys_labkit.triton_trace.interpret.rewrite import compiled
from mlsys_labkit.triton_trace.interpret.run import CompilerRefusal, Refused, StaticAssertionError
from mlsys_labkit.triton_trace.interpret.undefined import require_defined
from mlsys_labkit.triton_trace.names import Name, constant
from mlsys_labkit.triton_trace.source import Function, KernelSource

_DESCRIBE, _DOT_SCALED, _ITEM = TritonSemantic.make_tensor_descriptor, TritonSemantic.dot_scaled, tl.tensor.__getitem__


class ShapeList(list[Any]):
    """A list of a kernel's, which can also be joined to a tuple, as Triton's shapes are."""

    def __add__(self, other: Any) -> Any:
        return ShapeList([*self, *other])

    def __radd__(self, other: Any) -> Any:
        return ShapeList([*other, *self])


class Language:
    """A factory of Python functions from kernels' sources.

    Attributes:
        semantic: type rules over ``builder``: Triton's own, unless others are given.
        modules: the modules that a kernel sees, by their dotted names.
    """

    def __init__(self, builder: Builder, semantic: Any = None) -> None:
        self.semantic = semantic or TritonSemantic(builder)
        self.builder = self._builder = builder
        self.modules: dict[str, Any] = {}
        self._branches = Branches(builder, self.semantic.to_tensor, self._decided)
        self._library: dict[FunctionType, Callable[..., Any]] = {}
        self._python = self._python_as_triton()

    def speak(self) -> None:
        """Make ``triton.language`` call this language's builder, until another one speaks."""
        # Of the class: Triton 3.6 makes an object of it for each function of tl.
        TritonSemantic.make_tensor_descriptor = _with_constant_stride(_DESCRIBE)
        TritonSemantic.dot_scaled = _with_formats(_DOT_SCALED)
        tl.tensor.__getitem__ = _ITEM
        speak_through(self._builder, self.semantic)
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
        on_library_call(self.library)
        for name in rules.MATH:  # x.exp() and its like, whose own functions ask for Triton's compiler
            if hasattr(tl.tensor, name):
                setattr(tl.tensor, name, _member(getattr(tl.math, name)))
        self.modules = public_modules(self.semantic)

    def begin(self) -> None:
        """Prepare for the next program."""

    def end(self) -> None:
        """Finish a program."""

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
            paths = {path: f"_lk_path_{i}" for i, path in enumerate(function.names) if "." in path}
            constants = function.constant
            code = compiled(
                function.text, file, function.first_line, of_constants=constants, paths=paths, fields=source.fields
            )
            exec(code, space)
            if constants:
                space["range"] = range
            made[function.key] = space[function.name]
            self._give_defaults(made[function.key], function)
            if function.noinline:
                made[function.key] = _of_scalars(function, made[function.key])
        for function in source.functions:
            for i, (name, meaning) in enumerate(function.names.items()):
                if meaning.kind == "function":
                    value = made[meaning.value]
                elif meaning.kind == "aggregate":
                    value = AggregateClass(meaning.value, made)
                else:
                    value = self._named(name, meaning)
                spaces[function.key][f"_lk_path_{i}" if "." in name else name] = value
        return made

    def _named(self, name: str, meaning: Name) -> Any:
        """Return the object of a global name, or a stand-in that refuses every use of it.

        check_rules lets a refused name pass in a branch that constants choose, which is perhaps not taken.
        """
        if meaning.kind == "refused":
            return Absent(str(meaning.value))
        module, _, short = str(meaning.value).rpartition(".")
        if meaning.kind == "language" and short not in rules.names_of(module):
            return Absent(f"{name} is not interpreted")
        if meaning.kind == "module" and meaning.value not in self.modules:
            return Absent(f"{name}: {meaning.value} is not interpreted")
        return self.meaning(meaning)

    def meaning(self, name: Name) -> Any:
        """Return the object of a global name. Raises Refused where this version of Triton has no such name."""
        if name.kind == "constant":
            return constant(name.value)
        if name.kind == "python":
            return self._python[name.value]
        if name.kind == "record":
            return record_class(name.value)
        if name.kind == "layout":
            return layout_of(name.value)
        if name.value in self.modules:
            return self.modules[name.value]
        module, _, attribute = name.value.rpartition(".")
        if not hasattr(self.modules.get(module), attribute):
            raise Refused(f"Triton {triton.__version__} has no {name.value}")
        return getattr(self.modules[module], attribute)

    def _give_defaults(self, made: Any, function: Function) -> None:
        given = [(one, self.meaning(one.default)) for one in function.parameters if one.default]
        made.__defaults__ = tuple(value for one, value in given if not one.keyword_only) or None
        made.__kwdefaults__ = {one.name: value for one, value in given if one.keyword_only} or None

    def library(self, function: FunctionType) -> Callable[..., Any]:
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
        if isinstance(value, ConstantTuple):
            return value
        if isinstance(value, (tuple, list)):
            return like(value, (self._assigned(one) for one in value))
        return unmarked(self.semantic.to_tensor(value, False))

    def _decided(self, condition: Any) -> bool:
        """Return a condition's truth, and report one that depends on an undefined value."""
        truth = _truth(condition)
        if isinstance(condition, tl.tensor) and self._builder.run:
            require_defined(self._builder.run, "takes a branch by", None, condition.handle)
        return truth

    def _carried(self, before: dict[str, Any], name: str, now: Any, summed: bool) -> None:
        """Check a variable at the end of a turn of a loop; ``summed``: the turn has added to it."""
        carried(before, name, now)
        run = self._builder.run
        if summed and run and run.traced:
            note_sum(run, before, name, now)

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
            "_lk_constant": constants,
            "_lk_list": lambda *values: ShapeList(values),
            "_lk_and": lambda *operands: _joined(operands, "logical_and", False),
            "_lk_or": lambda *operands: _joined(operands, "logical_or", True),
            "_lk_not": lambda value: value.__not__() if isinstance(value, tl.tensor) else not value,
            "_lk_truth": self._decided,
            "_lk_branch": self._branches.choose,
            "_lk_select": self._branches.select,
            "_lk_return": self._branches.returned,
            "_lk_turn": self._branches.turn,
            "_lk_assert": asserted,
            "_lk_raise": _raise,
            "_lk_variables": variables,
            "_lk_attribute": attribute,
            "_lk_spread": spread,
            "_lk_carried": self._carried,
            "range": counted,
            "min": chosen(min, "minimum"),
            "max": chosen(max, "maximum"),
            "len": len,
            "int": int,
            "float": float,
            "isinstance": is_instance,
            "getattr": attribute_of,
            "hasattr": lambda value, name: attribute_of(value, name, None) is not None,
            "print": lambda *values, **options: tl.device_print(*values, **options),
        }


def _of_scalars(function: Function, made: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function under ``noinline``, which Triton calls with scalars only. Reference: _check_fn_args."""

    def call(*values: Any, **named: Any) -> Any:
        names = [one.name for one in function.parameters]
        for name, value in (*zip(names, values, strict=False), *named.items()):
            if isinstance(value, tl.tensor) and value.numel.value != 1:
                raise CompilerRefusal(
                    f"Function {function.name} is marked noinline, but was called with non-scalar argument {name}: "
                    "leave out noinline=True, or pass numbers and pointers"
                )
        return made(*values, **named)

    return call


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


def _member(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of ``tl.math`` as a method of blocks."""
    return lambda block, *operands, **options: function(block, *operands, **options)


def _checked_item(item: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``tensor[...]`` for new axes, with advice for any other index."""

    def checked(tensor: Any, index: Any, **options: Any) -> Any:
        parts = [plain(one) for one in (index if isinstance(index, (tuple, tl.tuple)) else (index,))]
        if all(one is None or (isinstance(one, slice) and one == slice(None)) for one in parts):
            return item(tensor, index, **options)
        if tensor.dtype.is_ptr():
            raise Refused(
                "unsupported tensor index: a pointer has no []; load with tl.load(pointer + i, mask=...), and store "
                "with tl.store"
            )
        raise Refused(
            "unsupported tensor index: a block has [] for new axes only, as in [:, None]; load the elements that you "
            "need from memory"
        )

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


def _raise(text: str) -> None:
    raise CompilerRefusal(f"{text}: the compiler reads this branch")


def _static_assert(condition: Any, message: str = "") -> None:
    if not condition:
        raise StaticAssertionError(f"tl.static_assert does not hold{f': {message}' if message else ''}")
