"""Rules on values: those that are no plain data, or lose something on the way (LK221 to LK225)."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from mlsys_grading.build.crossing import Objection
from mlsys_grading.build.python import is_true, words
from mlsys_grading.build.view import View

_NOT_PLAIN = words("""
    io.StringIO io.BytesIO open memoryview array.array uuid.UUID types.SimpleNamespace threading.Lock threading.RLock
    torch.Generator random.Random numpy.random.RandomState numpy.longdouble fractions.Fraction decimal.Decimal
    pathlib.Path datetime.datetime datetime.date datetime.timedelta
""")
_LOSE = {
    "collections.Counter": "arrives as a dict",
    "collections.defaultdict": "arrives as a dict",
    "collections.OrderedDict": "arrives as a dict",
    "torch.nn.Parameter": "arrives as a tensor",
    "numpy.ma.array": "arrives without its mask",
    "numpy.ma.masked_array": "arrives without its mask",
}
_ARRAYS = tuple(f"numpy.{name}" for name in ("array", "asarray", "zeros", "ones", "empty", "full"))
_CALLED_ONLY = words("__init__ __call__ __repr__ __str__ __post_init__")
_PLAIN_BASES = words("object Exception ValueError Protocol")
_GRADIENTS = words("grad_fn requires_grad is_leaf retain_grad backward grad")
_INSIDE = words("_base _version owndata OWNDATA")
_SHARING = words("shares_memory may_share_memory expect_shares_memory")
_MODULES = words("numpy torch math random torch.nn.functional torch.distributed")


def arguments(view: View) -> Iterator[Objection]:
    """Find arguments that are no plain data, or lose something on the way."""
    local = {node.name: node for node in view.nodes if isinstance(node, ast.ClassDef)}
    for call, given in view.arguments():
        if isinstance(given, ast.Name) and given.id in view.names and view.names[given.id] in _MODULES:
            yield call, f"the module {given.id} cannot be an argument"
        inner = given
        while isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and _is_call(inner.func.value):
            if inner.func.attr == "to_sparse":
                yield call, "a sparse tensor cannot be an argument"
            inner = inner.func.value  # torch.Generator().manual_seed(3)
        if not isinstance(inner, ast.Call):
            continue
        name = view.called(inner)
        if name in _NOT_PLAIN:
            yield call, f"{name} is no plain data and cannot be an argument"
        elif name in _LOSE:
            yield call, f"{name} {_LOSE[name]}"
        elif isinstance(inner.func, ast.Name) and inner.func.id in local and (why := _more(local[inner.func.id])):
            yield call, f"{inner.func.id} {why}: of an object of the test's only calls and public attributes cross"
        elif isinstance(given, ast.Call) and isinstance(given.func, ast.Attribute) and given.func.attr == "view":
            if given.args and isinstance(given.args[0], ast.Name) and given.args[0].id in local:
                yield call, f"a {given.args[0].id} arrives as a plain array"
        elif name in _ARRAYS and _odd_type(view, inner):
            yield call, "an array of objects, text, dates or records cannot be an argument"


def _is_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call)


def _more(kind: ast.ClassDef) -> str:
    """Describe what a class of the test's has that does not cross; empty if nothing."""
    dunders = {node.name for node in kind.body if isinstance(node, ast.FunctionDef) and node.name.startswith("__")}
    if lost := sorted(dunders - _CALLED_ONLY):
        return f"has {lost[0]}"
    bases = [ast.unparse(base) for base in kind.bases]
    return f"is a {bases[0]}" if bases and bases[0] not in _PLAIN_BASES else ""


def _odd_type(view: View, call: ast.Call) -> bool:
    given = [*(each.value for each in call.keywords if each.arg == "dtype"), *call.args[1:2]]
    if any(isinstance(each, ast.List) for each in given):
        return True
    names = [each.id if isinstance(each, ast.Name) else view.called(each) for each in given]
    texts = [each.value for each in given if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    if {"object", "str", "numpy.longdouble"} & set(names) or any(each[:1] in "OUSMV" for each in texts):
        return True
    first = call.args[0] if call.args else None
    items = first.elts if isinstance(first, ast.List) else []
    return bool(items) and all(isinstance(each, ast.Constant) and isinstance(each.value, str) for each in items)


def writes_to_a_test_object(view: View) -> Iterator[Objection]:
    """Find student functions that set attributes of an object of the test's: they set those of a stand-in."""
    local = {node.name for node in view.nodes if isinstance(node, ast.ClassDef)}
    for call, given in view.arguments():
        made = isinstance(given, ast.Call) and isinstance(given.func, ast.Name) and given.func.id in local
        function = call.func.id if isinstance(call.func, ast.Name) else ""
        definition = view.student.functions.get(function)
        if made and definition is not None:
            nodes = list(ast.walk(definition))
            parameters = {each.arg for each in nodes if isinstance(each, ast.arg)} - {"self"}
            if any(of in parameters for _, of in _stores(nodes)):
                yield call, f"{function} sets attributes of an object of the test's, which are read here"


def kept_arguments(view: View) -> Iterator[Objection]:
    """Find later uses of an argument that the student keeps: after the call, the student has a copy."""
    makings: list[tuple[ast.stmt, ast.expr]]
    makings = [(node, node.value) for node in view.nodes if isinstance(node, ast.Assign)]
    makings += [(node, item.context_expr) for node in view.nodes if isinstance(node, ast.With) for item in node.items]
    for statement, made in makings:
        if not isinstance(made, ast.Call) or not view.class_of(made) or not isinstance(made.func, ast.Name):
            continue
        for given in (*made.args, *(keyword.value for keyword in made.keywords)):
            if isinstance(given, ast.Name) and _is_mutable(view, given):
                for line, what in _uses_after(view, given.id, statement.lineno):
                    yield line, f"{given.id} was given to {made.func.id}(), which has a copy of it: {what}"


def _is_mutable(view: View, name: ast.Name) -> bool:
    value = view.assigned.get(name.id)
    if isinstance(value, ast.List | ast.Dict | ast.Set | ast.ListComp):
        return True
    return isinstance(value, ast.Call) and view.called(value).startswith(("numpy.", "torch."))


def _uses_after(view: View, name: str, line: int) -> Iterator[tuple[ast.AST, str]]:
    for node in view.nodes:
        if getattr(node, "lineno", 0) <= line:
            continue
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            of = node.func.value
            if isinstance(of, ast.Name) and of.id == name and node.func.attr in ("append", "extend", "clear", "pop"):
                yield node, "changing it here changes nothing there"
        elif isinstance(node, ast.Assert):
            read = [each for each in ast.walk(node.test) if isinstance(each, ast.Name) and each.id == name]
            in_student = [each for call in view.student_calls for each in ast.walk(call)]
            if any(each not in in_student for each in read):
                yield node, "what a later call does to it is not seen here"


def gradients(view: View) -> Iterator[Objection]:
    """Find uses of gradients: tensors cross as data, without graph and gradient."""
    for node in view.nodes:
        if isinstance(node, ast.Attribute) and node.attr in _GRADIENTS and view.origin(node.value) == "answer":
            if not (isinstance(node.value, ast.Attribute) and view.origin(node.value.value) == "object"):
                yield node, f"`{view.text(node)}`: a tensor comes back as data, without its graph"
        elif isinstance(node, ast.Call):
            name = view.called(node)
            if name == "torch.autograd.grad" and any(view.origin(each) for each in node.args):
                yield node, "torch.autograd.grad: a tensor comes back as data, without its graph"
            elif name.startswith("torch.autograd.") and any(view.origin(each) == "function" for each in node.args):
                yield node, f"{name} needs the graph that the student's code makes"
    for call, given in view.arguments():
        if any(_asks_for_gradients(each) for each in ast.walk(given)):
            yield call, "requires_grad does not cross: the argument arrives as data"
        elif isinstance(given, ast.Call | ast.Name) and _has_gradient(view, call):
            yield call, "the .grad of an argument does not cross"


def _asks_for_gradients(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    by_word = any(each.arg == "requires_grad" and is_true(each.value) for each in node.keywords)
    return by_word or (isinstance(node.func, ast.Attribute) and node.func.attr == "requires_grad_")


def _has_gradient(view: View, call: ast.Call) -> bool:
    given = {each.id for each in call.args if isinstance(each, ast.Name)}
    return any(node.attr == "grad" and of in given for node, of in _stores(view.nodes))


def _stores(nodes: Iterable[ast.AST]) -> Iterator[tuple[ast.Attribute, str]]:
    """Yield every ``name.attribute`` that is assigned to, with the name."""
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name):
            yield node, node.value.id


def memory_of_arrays(view: View) -> Iterator[Objection]:
    """Find reads of an array's owner and history: the answer concerns the examiner's copy."""
    for node in view.nodes:
        if isinstance(node, ast.Attribute) and node.attr in _INSIDE:
            yield node, f".{node.attr} describes the examiner's copy"
        elif isinstance(node, ast.Call) and view.called(node).rpartition(".")[2] in _SHARING and node.args:
            answers = [each for each in node.args if _is_call(each) and view.origin(each) == "answer"]
            if answers == node.args:
                yield node, "the answers of two calls share no memory here"
