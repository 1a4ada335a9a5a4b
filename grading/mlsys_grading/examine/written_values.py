"""Values of expressions, computed from their text: no attribute and no function is used that is not listed here.

A kernel's constants, defaults and decorators are such expressions: ``tl.constexpr(1 / math.sqrt(2))``,
``[triton.Config({"B": b}, num_warps=w) for b in (64, 128) for w in (4, 8)]``. Work and sizes have limits.
"""

from __future__ import annotations

import ast
import builtins
import itertools
import math
import operator
import sys
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

from mlsys_labkit.triton_trace.names import WithheldName, name_set

_STEPS, _ITEMS, _BITS, _DEPTH = 20_000, 1_024, 4_096, 20
_PLAIN = (bool, int, float, str, type(None))
# Without round and pow: round(1, -10**9) takes minutes.
_BUILTINS = name_set("abs bool dict enumerate float int len list max min range set sorted sum tuple zip")
_MATH = name_set("ceil cos e erf exp exp2 floor inf isqrt log log10 log1p log2 nan pi prod sin sqrt tan tanh tau")
_OPERATORS: Mapping[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
    ast.Invert: operator.invert,
    ast.Not: operator.not_,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
_NO_TEXT = frozenset(("pre_hook", "ir_override"))
_OF_ARRAYS = frozenset(("shape", "ndim"))
_ASKED_OF_ARRAYS = frozenset(("numel", "element_size", "stride", "size", "dim"))


class NotWrittenError(Exception):
    """An expression whose value does not follow from its text by the rules of this module."""


def value_of(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """Return the value of an expression. Raises NotWrittenError.

    Args:
        names: values, modules, and plain functions as the ``ast.FunctionDef`` that defines them.

    Example:
        >>> value_of(ast.parse("[1 / math.sqrt(n) for n in (4, 16)]", mode="eval").body, {"math": math})
        [0.5, 0.25]
        >>> value_of(ast.parse("open('/x')", mode="eval").body, {})
        Traceback (most recent call last):
        ...
        mlsys_grading.examine.written_values.NotWrittenError: open
    """
    try:
        return _Evaluation().value(node, names)
    except NotWrittenError:
        raise
    except Exception as error:  # of an operation on plain values: 1 / 0, a missing key, too deep
        raise NotWrittenError(f"{type(error).__name__}: {error}") from None


class _Evaluation:
    def __init__(self) -> None:
        self._steps = self._depth = 0

    def value(self, node: ast.AST, names: Mapping[str, Any]) -> Any:
        self._steps += 1
        if self._steps > _STEPS:
            raise NotWrittenError("too long a computation")
        found = getattr(self, f"_{type(node).__name__.lower()}", None)
        if found is None:
            raise NotWrittenError(ast.unparse(node))
        return _bounded(found(node, names))

    def _constant(self, node: ast.Constant, names: Mapping[str, Any]) -> Any:
        if not isinstance(node.value, _PLAIN):
            raise NotWrittenError(ast.unparse(node))
        return node.value

    def _name(self, node: ast.Name, names: Mapping[str, Any]) -> Any:
        found = names.get(node.id, self)
        if found is self or isinstance(found, (ast.AST, WithheldName)):
            raise NotWrittenError(node.id)
        return _unwrapped(found)

    def _attribute(self, node: ast.Attribute, names: Mapping[str, Any]) -> Any:
        base = self.value(node.value, names)
        if isinstance(base, ModuleType):
            return _of_module(base, node.attr)
        if node.attr in _OF_ARRAYS and _is_array(base):
            found = getattr(base, node.attr)
            return tuple(int(n) for n in found) if node.attr == "shape" else int(found)
        raise NotWrittenError(ast.unparse(node))

    def _unaryop(self, node: ast.UnaryOp, names: Mapping[str, Any]) -> Any:
        return _OPERATORS[type(node.op)](_plain(self.value(node.operand, names)))

    def _binop(self, node: ast.BinOp, names: Mapping[str, Any]) -> Any:
        if type(node.op) not in _OPERATORS:
            raise NotWrittenError(ast.unparse(node))
        a, b = _plain(self.value(node.left, names)), _plain(self.value(node.right, names))
        _require_small(node.op, a, b)
        return _OPERATORS[type(node.op)](a, b)

    def _boolop(self, node: ast.BoolOp, names: Mapping[str, Any]) -> Any:
        found = None
        for part in node.values:
            found = _plain(self.value(part, names))
            if bool(found) is isinstance(node.op, ast.Or):
                break
        return found

    def _compare(self, node: ast.Compare, names: Mapping[str, Any]) -> Any:
        left = self.value(node.left, names)
        for operation, right in zip(node.ops, (self.value(each, names) for each in node.comparators), strict=True):
            is_identity = isinstance(operation, (ast.Is, ast.IsNot))
            if not _OPERATORS[type(operation)](*((left, right) if is_identity else (_plain(left), _plain(right)))):
                return False
            left = right
        return True

    def _ifexp(self, node: ast.IfExp, names: Mapping[str, Any]) -> Any:
        return self.value(node.body if _plain(self.value(node.test, names)) else node.orelse, names)

    def _tuple(self, node: ast.Tuple, names: Mapping[str, Any]) -> Any:
        return tuple(self._items(node.elts, names))

    def _list(self, node: ast.List, names: Mapping[str, Any]) -> Any:
        return self._items(node.elts, names)

    def _set(self, node: ast.Set, names: Mapping[str, Any]) -> Any:
        return set(self._items(node.elts, names))

    def _items(self, nodes: list[ast.expr], names: Mapping[str, Any]) -> list[Any]:
        found: list[Any] = []
        for each in nodes:
            if isinstance(each, ast.Starred):
                found += _sequence(self.value(each.value, names))
            else:
                found.append(self.value(each, names))
        return found

    def _dict(self, node: ast.Dict, names: Mapping[str, Any]) -> Any:
        found: dict[Any, Any] = {}
        for key, each in zip(node.keys, node.values, strict=True):
            if key is None:
                found |= self.value(each, names)
            else:
                found[self.value(key, names)] = self.value(each, names)
        return found

    def _subscript(self, node: ast.Subscript, names: Mapping[str, Any]) -> Any:
        base, key = self.value(node.value, names), self.value(node.slice, names)
        if not isinstance(base, (dict, list, tuple, str, range)):
            raise NotWrittenError(ast.unparse(node))
        return base[key]

    def _slice(self, node: ast.Slice, names: Mapping[str, Any]) -> Any:
        bounds = (node.lower, node.upper, node.step)
        return slice(*(None if each is None else self.value(each, names) for each in bounds))

    def _listcomp(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp, names: Mapping[str, Any]) -> Any:
        return [self.value(node.elt, inner) for inner in self._loops(node.generators, names)]

    _generatorexp = _listcomp

    def _setcomp(self, node: ast.SetComp, names: Mapping[str, Any]) -> Any:
        return set(self._listcomp(node, names))

    def _dictcomp(self, node: ast.DictComp, names: Mapping[str, Any]) -> Any:
        loops = self._loops(node.generators, names)
        return {self.value(node.key, inner): self.value(node.value, inner) for inner in loops}

    def _loops(self, loops: list[ast.comprehension], names: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        if not loops:
            yield names
            return
        for each in _sequence(self.value(loops[0].iter, names)):
            inner = {**names, **_bound(loops[0].target, each)}
            if all(_plain(self.value(condition, inner)) for condition in loops[0].ifs):
                yield from self._loops(loops[1:], inner)

    def _call(self, node: ast.Call, names: Mapping[str, Any]) -> Any:
        if isinstance(node.func, ast.Attribute) and node.func.attr in _ASKED_OF_ARRAYS:
            base = self.value(node.func.value, names)
            if _is_array(base):
                return getattr(base, node.func.attr)(*(_plain(self.value(each, names)) for each in node.args))
        function = self._function(node.func, names)
        args = self._items(node.args, names)
        keywords: dict[str, Any] = {}
        for each in node.keywords:
            keywords |= {each.arg: self.value(each.value, names)} if each.arg else self.value(each.value, names)
        if isinstance(function, ast.FunctionDef):
            return self._written(function, args, keywords, names)
        if getattr(function, "__name__", "") == "Config" and (len(args) > 5 or keywords.keys() & _NO_TEXT):
            raise NotWrittenError("a triton.Config with a pre_hook")
        if function is itertools.product and keywords:
            raise NotWrittenError("itertools.product with repeat")
        given = [*args, *keywords.values()]
        _require_plain(given)
        if function is math.prod and not all(isinstance(one, (int, float)) for one in _sequence(args[0])):
            raise NotWrittenError("math.prod of something else than numbers")
        found = function(*args, **keywords)
        lazy = isinstance(found, (enumerate, zip, itertools.product))
        return list(itertools.islice(found, _ITEMS + 1)) if lazy else found

    def _function(self, node: ast.expr, names: Mapping[str, Any]) -> Any:
        if isinstance(node, ast.Name) and node.id not in names and node.id in _BUILTINS:
            return getattr(builtins, node.id)
        function = names.get(node.id) if isinstance(node, ast.Name) else self.value(node, names)
        if isinstance(function, ast.FunctionDef) or any(function is one for one in _callable()):
            return function
        raise NotWrittenError(ast.unparse(node))

    def _written(self, function: ast.FunctionDef, args: list[Any], keywords: dict[str, Any], names: Any) -> Any:
        """Return the value of a call of a function that only returns an expression."""
        body = [each for each in function.body if not _is_text(each)]
        parameters = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
        if len(body) != 1 or not isinstance(body[0], ast.Return) or body[0].value is None or function.decorator_list:
            raise NotWrittenError(f"{function.name}()")
        defaults = function.args.defaults
        given = dict(zip(parameters[len(parameters) - len(defaults) :], defaults, strict=True))
        inner = {name: self.value(default, names) for name, default in given.items()}
        inner |= dict(zip(parameters, args, strict=False)) | keywords
        self._depth += 1
        if self._depth > _DEPTH or inner.keys() != set(parameters):
            raise NotWrittenError(f"{function.name}()")
        found = self.value(body[0].value, {**names, **inner})
        self._depth -= 1
        return found


def _require_plain(values: Any) -> None:
    """Raise NotWrittenError for arrays: what a kernel computes from their elements it has to load."""
    if any(_is_array(one) for one in _leaves(values)):
        raise NotWrittenError("the elements of an array")


def _leaves(value: Any) -> Iterator[Any]:
    """Yield what nested sequences hold. Raises NotWrittenError for many values: lists may share their parts."""
    waiting, seen = [value], 0
    while waiting:
        one = waiting.pop()
        seen += 1
        if seen > _STEPS:
            raise NotWrittenError("too long a sequence")
        if isinstance(one, (list, tuple, set)):
            waiting += one
        elif type(one).__name__ != "range":
            yield one


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _callable() -> list[Any]:
    """Return the functions of libraries that an expression may call."""
    triton, tl = sys.modules.get("triton"), sys.modules.get("triton.language")
    of_triton = [getattr(triton, name) for name in ("Config", "cdiv", "next_power_of_2")] if triton else []
    of_math = [getattr(math, name, None) for name in _MATH]
    return [*of_math, itertools.product, *of_triton, *([tl.constexpr] if tl else [])]


def _of_module(module: ModuleType, name: str) -> Any:
    if module.__name__ in ("math", "numpy") and name in _MATH and hasattr(math, name):
        return getattr(math, name)
    if module.__name__ == "itertools" and name == "product":
        return itertools.product
    if module.__name__.partition(".")[0] == "triton" and not name.startswith("_") and hasattr(module, name):
        return getattr(module, name)
    raise NotWrittenError(f"{module.__name__}.{name}")


def _require_small(operation: ast.operator, a: Any, b: Any) -> None:
    """Raise NotWrittenError if the result of a operation b could be large."""
    if isinstance(a, int) and isinstance(b, int):
        bits = {ast.Pow: a.bit_length() * b, ast.LShift: a.bit_length() + b}.get(type(operation), 0)
        if bits > _BITS:
            raise NotWrittenError("too large a number")
    elif isinstance(operation, ast.Mult) and any(isinstance(one, (str, list, tuple)) for one in (a, b)):
        if max(len(one) if hasattr(one, "__len__") else one for one in (a, b)) > _ITEMS:
            raise NotWrittenError("too long a sequence")
    elif isinstance(operation, ast.Mod) and isinstance(a, str):
        raise NotWrittenError("a formatted text")


def _unwrapped(value: Any) -> Any:
    return value.value if type(value).__name__ == "constexpr" else value


def _is_array(value: Any) -> bool:
    return type(value).__name__ in ("Tensor", "Parameter", "ndarray") and type(value).__module__ in (
        "torch",
        "torch.nn.parameter",
        "numpy",
    )


def _plain(value: Any) -> Any:
    """Return a value that operators may be applied to. Raises NotWrittenError for others, such as the tests' arrays."""
    value = _unwrapped(value)
    if isinstance(value, (*_PLAIN, list, tuple, dict, set, range)):
        return value
    raise NotWrittenError(f"an operation on a {type(value).__name__}")


def _sequence(value: Any) -> list[Any]:
    if not isinstance(value, (list, tuple, range, dict, set, str)) or len(value) > _ITEMS:
        raise NotWrittenError("a loop over something else than a short sequence")
    return list(value)


def _bound(target: ast.expr, value: Any) -> dict[str, Any]:
    if isinstance(target, ast.Name):
        return {target.id: value}
    if isinstance(target, (ast.Tuple, ast.List)):
        pairs = zip(target.elts, _sequence(value), strict=True)
        return {name: each for part, one in pairs for name, each in _bound(part, one).items()}
    raise NotWrittenError(ast.unparse(target))


def _bounded(value: Any) -> Any:
    if isinstance(value, int) and value.bit_length() > _BITS:
        raise NotWrittenError("too large a number")
    if isinstance(value, (list, tuple, dict, set, str, range)) and len(value) > _ITEMS:
        raise NotWrittenError("too long a sequence")
    if isinstance(value, (list, tuple)):
        for _ in _leaves(value):
            pass
    return value
