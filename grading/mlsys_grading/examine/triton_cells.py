"""Triton kernels of a submission, with all that they call, defined from the text of its cells.

No Python of the student's runs here. Of a cell only this is taken over: functions under ``@triton.jit``, whose bodies
only Triton and the tracer read; ``@triton.autotune`` and ``@triton.heuristics``; imports of triton; constants. Values
are computed by ``written_values``. All else that a kernel names becomes a ``WithheldName``, which says why.
"""

from __future__ import annotations
import __future__

import ast
import importlib
import linecache
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any

import triton
import triton.language as tl

from mlsys_grading.examine.plan import bindings, parsed
from mlsys_grading.examine.written_values import NotWrittenError, value_of
from mlsys_labkit.triton_trace.errors import RefusedSourceError
from mlsys_labkit.triton_trace.names import WithheldName

_MODULES = ("math", "numpy", "itertools", "torch", "triton", "triton.language", "triton.language.math")
_DROPPED = ("prune_configs_by", "do_bench", "warmup", "rep", "use_cuda_graph")  # only how configurations are timed
_OF_JIT = ("do_not_specialize", "do_not_specialize_on_alignment", "noinline", "debug")
_ADVICE = "the tests take kernels as text and run no other Python"


class TritonCells:
    """The names that the cells of a submission bind, as far as kernels can use them.

    Args:
        locked: the examiner's namespace, with what the locked cells bound.

    Example:
        >>> import triton, triton.language as tl
        >>> cells = TritonCells({"triton": triton, "tl": tl})
        >>> cells.read("cell 3", "N = tl.constexpr(2 ** 3)\\n@triton.jit\\ndef f(x, n=open('/x')):\\n    return x + N")
        >>> cells.read("cell 4", "import os\\nM = os.getpid()")
        >>> cells.kernel("f").fn.__defaults__, cells.globals["N"].value
        ((None,), 8)
        >>> cells.globals["M"].reason.partition(";")[2]
        ' write the value: M = tl.constexpr(...)'
    """

    def __init__(self, locked: Mapping[str, Any]) -> None:
        self.globals: dict[str, Any] = {"__name__": "answers", "__builtins__": {}}
        self._locked = locked
        self._own: set[str] = set()
        self._functions: dict[str, ast.FunctionDef] = {}
        self._from_locked: set[str] = set()

    def read(self, place: str, source: str) -> None:
        """Take over one cell of the student's. A cell that is no Python, or nested too deeply, binds nothing."""
        try:
            tree, text = parsed(source)
            statements = list(_statements(tree.body))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return
        self._share()
        lines = [each.decode() for each in text.encode().splitlines(keepends=True)]  # as Python counts them
        linecache.cache[place] = (len(text), None, lines, place)
        for name, statement in statements:
            if name == "*":
                self._import_all(statement)
            elif (value := self._value(name, statement, place)) is not None:
                self._own.add(name)
                self.globals[name] = value

    def read_locked(self, names: Iterable[str]) -> None:
        """Take over what a locked cell binds: its names lose the student's meaning."""
        for name in self._own.intersection(names):
            self._own.discard(name)
            del self.globals[name]
        self._share()

    def kernel(self, name: str) -> Any:
        """Return the kernel of that name, or an object that refuses to be one, with a reason."""
        self._share()
        found = self.globals.get(name) if name in self._own else None
        if hasattr(found, "fn") or isinstance(found, WithheldName):
            return found
        return WithheldName(f"{name} is no function under @triton.jit; define it in its answer cell")

    def _share(self) -> None:
        """Give kernels the names of the locked cells that the student did not bind."""
        for name in self._from_locked - self._own:
            self.globals.pop(name, None)
        shared = {name: value for name, value in self._locked.items() if not name.startswith("_")}
        self._from_locked = shared.keys() - self._own
        self.globals |= {name: shared[name] for name in self._from_locked}

    def _import_all(self, statement: ast.AST) -> None:
        if isinstance(statement, ast.ImportFrom) and statement.module in ("triton.language", "math"):
            module = importlib.import_module(statement.module)
            found = {name: getattr(module, name) for name in getattr(module, "__all__", dir(module)) if name[:1] != "_"}
            self._own |= found.keys()
            self.globals |= found

    def _value(self, name: str, statement: ast.AST, place: str) -> Any:
        """Return the value that a statement gives to a name; None to leave the name as it is."""
        if isinstance(statement, ast.FunctionDef):
            self._functions.pop(name, None)
            if any(self._is(each, "jit") for each in statement.decorator_list):
                return self._kernel(statement, place)
            self._functions[name] = statement
            return WithheldName(f"{name} is a function of Python; write @triton.jit above its def")
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            return self._imported(name, statement)
        is_locked = name in self._locked and name not in self._own
        if isinstance(statement, ast.AnnAssign) and statement.value is None:
            return None
        if isinstance(statement, ast.Assign) and not isinstance(statement.targets[0], ast.Name):
            return None if is_locked else WithheldName(f"{name}: {_ADVICE}; assign it on a line of its own")
        if isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
            found = self._assigned(name, statement.value, place)
            return None if is_locked and isinstance(found, WithheldName) else found
        if is_locked:
            return None
        return WithheldName(f"{name}: {_ADVICE}; define it by @triton.jit or tl.constexpr at the top level of a cell")

    def _imported(self, name: str, statement: ast.Import | ast.ImportFrom) -> Any:
        for alias in statement.names:
            if (alias.asname or alias.name.partition(".")[0]) != name:
                continue
            if isinstance(statement, ast.Import):
                path, attribute = (alias.name if alias.asname else name), ""
            else:
                path, attribute = statement.module or "", alias.name
            if not path.startswith("triton.language.") and path not in _MODULES:
                break
            try:
                module = sys.modules.get(path) or importlib.import_module(path)
                return getattr(module, attribute) if attribute else module
            except (ImportError, AttributeError):
                break
        if name in self._locked and name not in self._own:
            return None
        return WithheldName(f"{name} is imported from elsewhere; a kernel can only use triton and tl")

    def _assigned(self, name: str, value: ast.expr, place: str) -> Any:
        if isinstance(value, ast.Name) and value.id in self.globals:
            return self.globals[value.id]
        given = value.args[0] if isinstance(value, ast.Call) and value.args and self._is(value, "jit") else None
        if isinstance(given, ast.Name) and given.id in self._functions:
            return self._kernel(self._functions[given.id], place)
        if (made := self._made(value)) is not None:
            return self._kernel(made, place)
        try:
            found = value_of(value, self._names())
        except NotWrittenError:
            return WithheldName(f"{name} = {_shown(value)}: {_ADVICE}; write the value: {name} = tl.constexpr(...)")
        names = [each.id for each in ast.walk(value) if isinstance(each, ast.Name)]
        of_constexprs = any(isinstance(self.globals.get(each), tl.constexpr) for each in names)
        of_constexprs &= isinstance(value, (ast.BinOp, ast.UnaryOp))
        return tl.constexpr(found) if of_constexprs else found

    def _made(self, value: ast.expr) -> ast.FunctionDef | None:
        """Return the kernel that a call returns, of a function without arguments that does nothing but define it."""
        if not isinstance(value, ast.Call) or value.args or value.keywords or not isinstance(value.func, ast.Name):
            return None
        match self._functions.get(value.func.id):
            case ast.FunctionDef(
                body=[*before, ast.FunctionDef(name=name) as kernel, ast.Return(ast.Name(id=returned))]
            ):
                is_kernel = name == returned and any(self._is(each, "jit") for each in kernel.decorator_list)
                text_only = all(isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant) for each in before)
                return kernel if is_kernel and text_only else None
        return None

    def _names(self) -> Mapping[str, Any]:
        return {**self.globals, **self._functions}

    def _is(self, node: ast.expr, name: str) -> bool:
        """Return whether an expression, or the function that it calls, is triton's or tl's ``name``."""
        node = node.func if isinstance(node, ast.Call) else node
        known = [getattr(module, name) for module in (triton, tl) if hasattr(module, name)]
        if isinstance(node, ast.Name):
            return any(self.globals.get(node.id) is each for each in known)
        if isinstance(node, ast.Attribute) and node.attr == name:
            try:
                return isinstance(value_of(node.value, self._names()), ModuleType)
            except NotWrittenError:
                return False
        return False

    def _kernel(self, statement: ast.FunctionDef, place: str) -> Any:
        """Define a function without running a decorator, default or annotation of its text."""
        options: dict[str, Any] = {}
        layers = []
        try:
            for node in statement.decorator_list:
                if self._is(node, "jit"):
                    options = self._options(node, _OF_JIT)
                elif self._is(node, "autotune"):
                    layers.append(self._autotune(node))
                elif self._is(node, "heuristics"):
                    layers.append(self._heuristics(node))
        except NotWrittenError as error:
            return WithheldName(f"{statement.name}: {_ADVICE}; write constants in its decorators, not {error}")
        try:
            kernel = triton.jit(self._function(statement, place), **options)
            for layer in reversed(layers):
                kernel = layer(kernel)
        except Exception as error:  # what Triton refuses it refuses in the notebook, too
            return WithheldName(f"{statement.name}: {type(error).__name__}: {error}")
        return kernel

    def _function(self, statement: ast.FunctionDef, place: str) -> FunctionType:
        arguments = statement.args
        defaults = [self._default(each) for each in arguments.defaults]
        by_keyword = [None if each is None else self._default(each) for each in arguments.kw_defaults]
        bare = ast.arguments(
            posonlyargs=[self._argument(each) for each in arguments.posonlyargs],
            args=[self._argument(each) for each in arguments.args],
            vararg=arguments.vararg and ast.arg(arguments.vararg.arg),
            kwonlyargs=[self._argument(each) for each in arguments.kwonlyargs],
            kw_defaults=[None if each is None else ast.Constant(None) for each in arguments.kw_defaults],
            kwarg=arguments.kwarg and ast.arg(arguments.kwarg.arg),
            defaults=[ast.Constant(None) for _ in defaults],
        )
        definition = ast.FunctionDef(statement.name, bare, statement.body, [], None)
        if sys.version_info >= (3, 12):
            definition.type_params = []
        tree = ast.fix_missing_locations(ast.Module([ast.copy_location(definition, statement)], []))
        flags = __future__.annotations.compiler_flag  # annotations stay text
        made: dict[str, FunctionType] = {}
        exec(compile(tree, place, "exec", flags, dont_inherit=True), self.globals, made)
        function = made[statement.name]
        function.__defaults__ = tuple(defaults) or None
        names = [each.arg for each, one in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if one]
        function.__kwdefaults__ = dict(zip(names, (one for one in by_keyword if one is not None), strict=False)) or None
        return function

    def _argument(self, argument: ast.arg) -> ast.arg:
        """Return a parameter with its annotation as text: only whether it is tl.constexpr, or a type's name, counts."""
        given = argument.annotation
        if given is not None:
            text = given.value if isinstance(given, ast.Constant) else ast.unparse(given)
            given = ast.Name("constexpr" if self._is(given, "constexpr") else str(text).rpartition(".")[2], ast.Load())
            given = given if given.id.isidentifier() else None
        return ast.copy_location(ast.arg(argument.arg, given), argument)

    def _default(self, node: ast.expr) -> Any:
        try:
            return value_of(node, self._names())
        except NotWrittenError:
            return None

    def _options(self, node: ast.expr, names: Iterable[str]) -> dict[str, Any]:
        keywords = node.keywords if isinstance(node, ast.Call) else []
        given = {each.arg or "**": each.value for each in keywords}
        return {name: value_of(given[name], self._names()) for name in names if name in given}

    def _autotune(self, node: ast.expr) -> Any:
        call = node if isinstance(node, ast.Call) else ast.Call(node, [], [])
        given = dict(zip(("configs", "key"), call.args, strict=False))
        given |= {each.arg or "**": each.value for each in call.keywords if each.arg not in _DROPPED}
        if unknown := given.keys() - {"configs", "key", "reset_to_zero", "restore_value", "cache_results"}:
            raise NotWrittenError(", ".join(sorted(unknown)))
        return triton.autotune(**{name: value_of(each, self._names()) for name, each in given.items()})

    def _heuristics(self, node: ast.expr) -> Any:
        call = node if isinstance(node, ast.Call) else ast.Call(node, [], [])
        values = call.args[0] if call.args else next((each.value for each in call.keywords), None)
        if not isinstance(values, ast.Dict):
            raise NotWrittenError("@triton.heuristics without a dictionary")
        rules = {}
        for key, rule in zip(values.keys, values.values, strict=True):
            if isinstance(rule, ast.Name) and (function := self._functions.get(rule.id)) is not None:
                body = [each.value for each in function.body if isinstance(each, ast.Return) and each.value]
                rule = ast.Lambda(function.args, body[0]) if len(body) == len(function.body) == 1 else rule
            if not isinstance(key, ast.Constant) or not isinstance(rule, ast.Lambda) or len(rule.args.args) != 1:
                raise NotWrittenError(_shown(rule))
            rules[str(key.value)] = _Heuristic(rule, self._names())
        return triton.heuristics(rules)


class _Heuristic:
    """A rule of ``@triton.heuristics``: an expression on the launch's arguments, computed by ``written_values``."""

    def __init__(self, rule: ast.Lambda, names: Mapping[str, Any]) -> None:
        self._rule, self._names = rule, names

    def __call__(self, arguments: Mapping[str, Any]) -> Any:
        (parameter,) = self._rule.args.args
        try:
            return value_of(self._rule.body, {**self._names, parameter.arg: dict(arguments)})
        except NotWrittenError as error:
            shown = _shown(self._rule.body)
            raise RefusedSourceError(f"@triton.heuristics, {shown}: {_ADVICE}; it cannot compute {error}") from None


def _shown(node: ast.AST) -> str:
    """Return the beginning of an expression's text; of one that is nested too deeply, nothing."""
    try:
        text = ast.unparse(node)
    except RecursionError:
        return "…"
    return text if len(text) < 60 else text[:59] + "…"


def _statements(body: Iterable[ast.stmt]) -> Iterator[tuple[str, ast.AST]]:
    """Yield the names that statements bind; ``a, b = 1, 2`` comes as two assignments."""
    for name, statement in bindings(body):
        if isinstance(statement, ast.Assign):
            found = next((each for target in statement.targets for each in _part(target, statement.value, name)), None)
            yield name, statement if found is None else ast.Assign([ast.Name(name, ast.Store())], found)
        else:
            yield name, statement


def _part(target: ast.expr, value: ast.expr, name: str) -> Iterator[ast.expr]:
    if isinstance(target, ast.Name):
        yield from [value] if target.id == name else []
    elif isinstance(target, (ast.Tuple, ast.List)) and isinstance(value, (ast.Tuple, ast.List)):
        for one, each in zip(target.elts, value.elts, strict=False):
            yield from _part(one, each, name)
