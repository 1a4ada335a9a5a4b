"""Rewriting of a jitted function's syntax tree, so that Python runs it with Triton's meaning.

Triton's compiler turns assigned numbers into tensors, joins conditions with ``and`` element by element, counts loops in
int32 tensors and checks ``assert`` on the device. Python's own ``and`` of two blocks would be the last block. A
variable that a loop changes keeps its type and shape from turn to turn there, so each turn ends with a check of that.
"""

from __future__ import annotations

import ast
from types import CodeType


class _Rewriter(ast.NodeTransformer):
    """A transformer of one function; ``checks_loops`` is False for Triton's own functions."""

    def __init__(self, checks_loops: bool) -> None:
        self._checks_loops = checks_loops
        self._loops = 0

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        node.value = _call("_lk_to_tensor", node.value)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        self.generic_visit(node)
        node.annotation = ast.Constant(None)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        name = "_lk_and" if isinstance(node.op, ast.And) else "_lk_or"
        return ast.copy_location(_call(name, *(_lazy(value) for value in node.values)), node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return ast.copy_location(_call("_lk_not", node.operand), node) if isinstance(node.op, ast.Not) else node

    def _with_truth(self, node: ast.If | ast.While | ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        node.test = ast.copy_location(_call("_lk_truth", node.test), node.test)
        return node

    visit_If = visit_IfExp = _with_truth

    def visit_While(self, node: ast.While) -> list[ast.stmt]:
        changed = _changed(node.body)
        self._with_truth(node)
        return self._carried(node, changed)

    def visit_For(self, node: ast.For) -> list[ast.stmt]:
        called = node.iter.func if isinstance(node.iter, ast.Call) else None
        unrolled = "static_range" in (getattr(called, "attr", ""), getattr(called, "id", ""))
        changed = {} if unrolled else _changed(node.body)
        self.generic_visit(node)
        return self._carried(node, changed)

    def _carried(self, loop: ast.While | ast.For, changed: dict[str, ast.stmt]) -> list[ast.stmt]:
        """Add checks to a loop: ``changed`` are the names that its body assigns, each with its last assignment."""
        if not changed or not self._checks_loops:
            return [loop]
        self._loops += 1
        before = f"_lk_before_{self._loops}"
        names = ast.Tuple([ast.Constant(name) for name in changed], ast.Load())
        kept = ast.copy_location(ast.Assign([ast.Name(before, ast.Store())], _call("_lk_variables", names)), loop)
        for name, statement in changed.items():
            check = _call("_lk_carried", ast.Name(before, ast.Load()), ast.Constant(name), ast.Name(name, ast.Load()))
            loop.body.append(ast.copy_location(ast.Expr(check), statement))
        return [kept, loop]

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        self.generic_visit(node)
        message = node.msg or ast.Constant("")
        return ast.copy_location(ast.Expr(_call("_lk_assert", node.test, message)), node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.decorator_list = []
        node.returns = None
        for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            one.annotation = None
        return node


def _changed(body: list[ast.stmt]) -> dict[str, ast.stmt]:
    found: dict[str, ast.stmt] = {}
    for statement in (each for part in body for each in ast.walk(part)):
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        if isinstance(statement, (ast.Assign, ast.AugAssign)):
            stored = [one for target in targets if target for one in ast.walk(target) if isinstance(one, ast.Name)]
            found |= {one.id: statement for one in stored if isinstance(one.ctx, ast.Store)}
    return found


def _call(name: str, *arguments: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])


def _lazy(value: ast.expr) -> ast.expr:
    nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.Lambda(nothing, value)


def compiled(text: str, file: str, first_line: int, *, keep_defaults: bool = False) -> CodeType:
    """Compile a module that defines the function of ``text``, with the student's ``file`` and lines."""
    tree = ast.parse(text)
    node = tree.body[0]
    assert isinstance(node, ast.FunctionDef)
    if not keep_defaults:
        node.args.defaults = []
        node.args.kw_defaults = [None] * len(node.args.kwonlyargs)
    rewritten = ast.fix_missing_locations(_Rewriter(checks_loops=not keep_defaults).visit(tree))
    code: CodeType = compile(ast.increment_lineno(rewritten, first_line - 1), file, "exec")
    return code
