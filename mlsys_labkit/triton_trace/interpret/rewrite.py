"""Rewriting of a jitted function's syntax tree, so that Python runs it with Triton's meaning.

Triton's compiler turns assigned numbers into tensors, joins conditions with ``and`` element by element, counts loops in
int32 tensors and checks ``assert`` on the device. Python's own ``and`` of two blocks would be the last block. A
variable that a loop changes keeps its type and shape from turn to turn there, so each turn ends with a check of that.
Both branches of an ``if`` are compiled, so each is a function as well, which branches.py tries. What a turn or one
branch alone gives a value has none afterwards.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Collection, Iterable, Mapping
from types import CodeType, MappingProxyType

from mlsys_labkit.triton_trace.names import dotted_path

_OF_CONSTANTS = frozenset(("type", "value"))  # constants are numbers here, which have neither
_OF_THE_GRID = frozenset(("program_id", "num_programs"))


class _Names(ast.NodeTransformer):
    """A transformer of attributes and of the head of a function; ``paths`` and ``attributes`` are to be replaced."""

    def __init__(self, paths: Mapping[str, str], attributes: Collection[str]) -> None:
        self._paths = paths
        self._attributes = attributes

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if not isinstance(node.ctx, ast.Load):
            return node
        if path := self._paths.get(dotted_path(node)):
            return ast.copy_location(ast.Name(path, ast.Load()), node)
        self.generic_visit(node)
        if node.attr not in self._attributes:
            return node
        return ast.copy_location(_call("_lk_attribute", node.value, ast.Constant(node.attr)), node)

    def visit_List(self, node: ast.List) -> ast.AST:
        self.generic_visit(node)
        return ast.copy_location(_call("_lk_list", *node.elts), node) if isinstance(node.ctx, ast.Load) else node

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        return ast.copy_location(ast.Expr(_call("_lk_raise", ast.Constant(ast.unparse(node)))), node)

    def visit_Starred(self, node: ast.Starred) -> ast.AST:
        self.generic_visit(node)
        node.value = _call("_lk_spread", node.value)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.decorator_list = []
        node.returns = None
        for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            one.annotation = None
        return node


class _Rewriter(_Names):
    """A transformer of one function; ``checks`` is False for Triton's own functions.

    ``paths`` and ``fields`` are those of ``compiled``.

    Attributes:
        branches: a function for each branch of each ``if``.
    """

    def __init__(self, file: str, checks: bool, paths: Mapping[str, str], fields: Collection[str]) -> None:
        super().__init__(paths, _OF_CONSTANTS.union(fields) if checks else frozenset())
        self._file = file
        self._checks = checks
        self._count = 0
        self._loops = 0
        self._returns = False
        self.branches: list[ast.stmt] = []

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        node.value = _call("_lk_to_tensor", node.value)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        self.generic_visit(node)
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        constant = ast.unparse(node.annotation).strip("'\"").endswith("constexpr")
        value = _call("_lk_constant" if constant else "_lk_to_tensor", node.value)
        return ast.copy_location(ast.Assign([node.target], value), node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        name = "_lk_and" if isinstance(node.op, ast.And) else "_lk_or"
        return ast.copy_location(_call(name, *(_lazy(value) for value in node.values)), node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return ast.copy_location(_call("_lk_not", node.operand), node) if isinstance(node.op, ast.Not) else node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        tested = _tested(node.test)
        self.generic_visit(node)
        if not self._checks:
            node.test = ast.copy_location(_call("_lk_truth", node.test), node.test)
            return node
        chosen = _call("_lk_select", node.test, _lazy(node.body), _lazy(node.orelse), _names(tested))
        return ast.copy_location(chosen, node)

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        changed, tested, used = _changed([*node.body, *node.orelse], of_branch=True), _tested(node.test), _used(node)
        in_loop = bool(self._loops) and _returns(node)
        self.generic_visit(node)
        if not self._checks:
            node.test = ast.copy_location(_call("_lk_truth", node.test), node.test)
            return node
        number = self._next()
        self._add_branch(f"_lk_then_{number}", node.body)
        if node.orelse:
            self._add_branch(f"_lk_else_{number}", node.orelse)
        taken, gone = f"_lk_taken_{number}", f"_lk_gone_{number}"
        both = ast.Tuple([ast.Name(taken, ast.Store()), ast.Name(gone, ast.Store())], ast.Store())
        names = (_names(each) for each in (changed, used, tested))
        chosen = _call("_lk_branch", ast.Constant(number), node.test, *names, ast.Constant(in_loop))
        choice = _at(ast.Assign([both], chosen), node)
        node.test = ast.copy_location(ast.Name(taken, ast.Load()), node.test)
        if node.orelse:
            is_taken = ast.Compare(ast.Name(taken, ast.Load()), [ast.Is()], [ast.Constant(False)])
            node.orelse = [_at(ast.If(is_taken, node.orelse, []), node)]
        forgotten = [_at(ast.If(_is_in(name, gone), [_forget(name)], []), node) for name in changed]
        return [choice, node, *([_at(ast.If(ast.Name(gone, ast.Load()), forgotten, []), node)] if forgotten else [])]

    def _add_branch(self, name: str, body: list[ast.stmt]) -> None:
        """Add a function of a branch, whose variables are its globals."""
        nodes = [one for part in body for one in ast.walk(part) if isinstance(one, ast.Name)]
        stored = sorted({one.id for one in nodes if not isinstance(one.ctx, ast.Load)})
        nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        declared: list[ast.stmt] = [ast.Global(stored)] if stored else []
        function = ast.FunctionDef(name, nothing, [*declared, *copy.deepcopy(body)], [])
        self.branches.append(_at(function, body[0]))

    def visit_While(self, node: ast.While) -> list[ast.stmt]:
        changed = _changed(node.body)
        summed = _summed(changed)
        self._loops += 1
        self.generic_visit(node)
        self._loops -= 1
        loop = f"{self._file}:{self._next()}"
        node.test = ast.copy_location(_call("_lk_turn", ast.Constant(loop), node.test), node.test)
        return self._carried(node, changed, summed)

    def visit_For(self, node: ast.For) -> list[ast.stmt]:
        called = node.iter.func if isinstance(node.iter, ast.Call) else None
        unrolled = "static_range" in (getattr(called, "attr", ""), getattr(called, "id", ""))
        changed = {} if unrolled else _changed(node.body)
        summed = _summed(changed)
        self._loops += not unrolled
        self.generic_visit(node)
        self._loops -= not unrolled
        return self._carried(node, changed, summed)

    def _carried(
        self, loop: ast.While | ast.For, changed: dict[str, ast.stmt], summed: set[ast.stmt]
    ) -> list[ast.stmt]:
        """Add checks to a loop: ``changed`` are the names that its body assigns, each with its last assignment.

        ``summed`` are the assignments that add to the variable.
        """
        if not changed or not self._checks:
            return [loop]
        before = f"_lk_before_{self._next()}"
        kept = _at(ast.Assign([ast.Name(before, ast.Store())], _call("_lk_variables", _names(changed))), loop)
        for name, statement in changed.items():
            parts = ast.Name(before, ast.Load()), ast.Constant(name), ast.Name(name, ast.Load())
            check = _call("_lk_carried", *parts, ast.Constant(statement in summed))
            loop.body.append(_at(ast.If(_is_in(name, before), [ast.Expr(check)], [_forget(name)]), statement))
        return [kept, loop]

    def _next(self) -> int:
        self._count += 1
        return self._count

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        self.generic_visit(node)
        message = node.msg or ast.Constant("")
        return ast.copy_location(ast.Expr(_call("_lk_assert", node.test, message)), node)

    def visit_Return(self, node: ast.Return) -> ast.AST:
        self.generic_visit(node)
        if self._returns:
            node.value = _call("_lk_return", ast.Name("_lk_kinds", ast.Load()), node.value or ast.Constant(None))
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self._returns = self._checks and any(isinstance(one, ast.If) and _returns(one) for one in ast.walk(node))
        super().visit_FunctionDef(node)
        if self._returns:
            node.body.insert(0, ast.Assign([ast.Name("_lk_kinds", ast.Store())], ast.List([], ast.Load())))
        return node


def _returns(node: ast.If) -> bool:
    return any(isinstance(one, ast.Return) for one in ast.walk(node))


def _changed(body: list[ast.stmt], of_branch: bool = False) -> dict[str, ast.stmt]:
    """Return the names that statements assign, each with the last one; of a branch also constants and counters."""
    kinds = (ast.Assign, ast.AugAssign, *((ast.AnnAssign, ast.For) if of_branch else ()))
    found: dict[str, ast.stmt] = {}
    for statement in (each for part in body for each in ast.walk(part)):
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        if isinstance(statement, kinds):
            stored = [one for target in targets if target for one in ast.walk(target) if isinstance(one, ast.Name)]
            found |= {one.id: statement for one in stored if isinstance(one.ctx, ast.Store)}
    return found


def _summed(changed: dict[str, ast.stmt]) -> set[ast.stmt]:
    """Return the assignments that add to the variable: s += x, s = s * y + x, s = tl.dot(x, y, s)."""
    found = set()
    for name, statement in changed.items():
        value = getattr(statement, "value", None)
        parts: list[ast.expr] = []
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
            parts = [value.left, value.right]
            parts += [each for one in parts if isinstance(one, ast.BinOp) for each in (one.left, one.right)]
        elif isinstance(value, ast.Call) and getattr(value.func, "attr", "") == "dot":
            parts = [*value.args, *(one.value for one in value.keywords)]
        added = isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Add)
        if added or any(isinstance(one, ast.Name) and one.id == name for one in parts):
            found.add(statement)
    return found


def _used(node: ast.If) -> list[str]:
    """Return the names in the branches of an ``if``."""
    nodes = [one for part in (*node.body, *node.orelse) for one in ast.walk(part)]
    return sorted({one.id for one in nodes if isinstance(one, ast.Name)})


def _tested(test: ast.expr) -> list[str]:
    """Return the names in a condition; none if it depends on the program, so that no constants decide it."""
    nodes = list(ast.walk(test))
    if any(getattr(one, "attr", getattr(one, "id", "")) in _OF_THE_GRID for one in nodes):
        return []
    return sorted({one.id for one in nodes if isinstance(one, ast.Name)})


def _names(names: Iterable[str]) -> ast.Tuple:
    return ast.Tuple([ast.Constant(name) for name in names], ast.Load())


def _is_in(name: str, names: str) -> ast.expr:
    return ast.Compare(ast.Constant(name), [ast.In()], [ast.Name(names, ast.Load())])


def _forget(name: str) -> ast.stmt:
    """Return a statement that takes a variable its value, if it has one."""
    forget = ast.Delete([ast.Name(name, ast.Del())])
    return ast.Try([forget], [ast.ExceptHandler(None, None, [ast.Pass()])], [], [])


def _at(made: ast.stmt, node: ast.AST) -> ast.stmt:
    """Return a new statement with all its parts at the place of another node, where they have none."""
    for one in ast.walk(made):
        if "lineno" in one._attributes and not hasattr(one, "lineno"):
            ast.copy_location(one, node)
    return made


def _call(name: str, *arguments: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])


def _lazy(value: ast.expr) -> ast.expr:
    nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.Lambda(nothing, value)


def compiled(
    text: str,
    file: str,
    first_line: int,
    *,
    keep_defaults: bool = False,
    of_constants: bool = False,
    paths: Mapping[str, str] = MappingProxyType({}),
    fields: Collection[str] = (),
) -> CodeType:
    """Compile a module that defines the function of ``text``, with the student's ``file`` and lines.

    Args:
        of_constants: the function is one of Python's on constants, whose statements stay as they are.
        paths: names in other modules, as "helpers.f", and the global names that replace them.
        fields: names of the fields of named tuples.
    """
    tree = ast.parse(text)
    node = tree.body[0]
    assert isinstance(node, ast.FunctionDef)
    if not keep_defaults:
        node.args.defaults = []
        node.args.kw_defaults = [None] * len(node.args.kwonlyargs)
    if of_constants:
        rewritten = _Names(paths, _OF_CONSTANTS.union(fields)).visit(tree)
    else:
        rewriter = _Rewriter(file, not keep_defaults, paths, fields)
        rewritten = rewriter.visit(tree)
        rewritten.body.extend(rewriter.branches)
    ast.fix_missing_locations(rewritten)
    code: CodeType = compile(ast.increment_lineno(rewritten, first_line - 1), file, "exec")
    return code
