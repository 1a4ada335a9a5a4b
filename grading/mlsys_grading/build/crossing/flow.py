"""Rules on exceptions, generators, records and random numbers (LK231 to LK234)."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

from mlsys_grading.build.crossing import Objection
from mlsys_grading.build.python import root_name, words
from mlsys_grading.build.view import View

_EXCEPTION_PARTS = words("__cause__ __context__ __traceback__ __notes__ errno filename tb_frame")
_STATE = words("""
    torch.get_rng_state torch.set_rng_state torch.initial_seed numpy.random.get_state numpy.random.set_state
    random.getstate random.setstate
""")
_SEEDS = {"torch.manual_seed": "torch", "numpy.random.seed": "numpy", "random.seed": "random"}
_TORCH_DRAWS = words("rand randn randint randperm normal bernoulli multinomial rand_like")


def exceptions(view: View) -> Iterator[Objection]:
    """Find exceptions other than Python's, the kit's, LinAlgError and those of locked and solution cells."""
    for node in view.nodes:
        kinds: list[ast.expr] = []
        if isinstance(node, ast.Try | ast.TryStar) and view.calls_student(*node.body):
            if isinstance(node, ast.TryStar):
                yield node, "except*: a group of exceptions does not cross"
            for handler in node.handlers:
                kinds += handler.type.elts if isinstance(handler.type, ast.Tuple) else filter(None, [handler.type])
                yield from _parts(view, handler)
        elif isinstance(node, ast.Call) and view.called(node).rpartition(".")[2] in ("expect_raises", "raises"):
            kinds = node.args[:1]
        for kind in kinds:
            if why := _does_not_cross(view, kind):
                yield kind, why


def _parts(view: View, handler: ast.ExceptHandler) -> Iterator[Objection]:
    for node in (node for each in handler.body for node in ast.walk(each)):
        of = node.value if isinstance(node, ast.Attribute) and node.attr in _EXCEPTION_PARTS else None
        if isinstance(of, ast.Name) and of.id == handler.name:
            yield node, f"`{view.text(node)}` of an exception does not cross"


def _does_not_cross(view: View, kind: ast.expr) -> str:
    name = view.called(kind)
    own = getattr(builtins, name, None)
    if isinstance(own, type) and issubclass(own, BaseException):
        if not issubclass(own, Exception):
            return f"{name} arrives as a RuntimeError: no student ends the examiner"
        if issubclass(own, StopIteration | StopAsyncIteration | Warning):
            return f"{name} arrives as an Exception"
        return ""
    root = name.partition(".")[0]
    is_known = name == "numpy.linalg.LinAlgError" or root == "mlsys_labkit"
    is_imported = isinstance(kind, ast.Name | ast.Attribute) and root_name(kind) in view.names
    return f"{name} arrives as one of Python's own exceptions" if is_imported and not is_known else ""


def generators(view: View) -> Iterator[Objection]:
    """Find uses of a generator other than next() and send(), which alone cross."""
    for node in view.nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "throw":
            if view.origin(node.func.value) == "answer":
                yield node, ".throw() does not reach a generator of the student's"
        elif isinstance(node, ast.Call) and view.called(node) == "isinstance" and len(node.args) == 2:
            if view.called(node.args[1]) == "types.GeneratorType" and view.origin(node.args[0]) == "answer":
                yield node, "a generator of the student's is a stand-in here"
        elif isinstance(node, ast.With):
            raises = any(isinstance(each, ast.Raise) for each in node.body)
            for origin, text in ((view.origin(each.context_expr), view.text(each.context_expr)) for each in node.items):
                if origin == "answer":
                    yield node, f"`with {text}`: what a function made is no context here"
                elif origin == "object" and raises:
                    yield node, f"`with {text}`: its __exit__ gets no exception of the test's"


def records(view: View) -> Iterator[Objection]:
    """Find named tuples and coroutines of the student's: their types exist in the student's process alone."""
    for node in view.nodes:
        if isinstance(node, ast.ClassDef) and any("NamedTuple" in ast.unparse(base) for base in node.bases):
            yield node, f"the named tuple {node.name} of a solution arrives as a tuple"
        elif isinstance(node, ast.Call) and view.called(node) in ("collections.namedtuple", "typing.NamedTuple"):
            yield node, "a named tuple of a solution arrives as a tuple"
        elif isinstance(node, ast.AsyncFunctionDef):
            yield node, f"the coroutine {node.name} cannot be awaited here"


def random_numbers(view: View) -> Iterator[Objection]:
    """Find draws that continue those of the other process: a seed is set in both, but each draws for itself."""
    for call in view.calls:
        if view.called(call) in _STATE:
            yield call, f"{view.called(call)}: the two processes have states of their own"
    draws = {name: _family_drawn(view, node) for name, node in view.student.functions.items()}
    last: dict[str, tuple[str, str]] = {}
    for call in view.calls:
        name = view.called(call)
        student = call.func.id if isinstance(call.func, ast.Name) else ""
        if "seed" in name:  # a helper of the lab counts, too
            for family in [_SEEDS[name]] if name in _SEEDS else _SEEDS.values():
                last[family] = ("seed", "")
        elif family := draws.get(student, ""):
            if last.get(family, ("seed", ""))[0] == "test":
                yield call, f"{student} draws on from the seed, and not from where the test's draws left off"
            last[family] = ("student", student)
        elif family := _family(view, call):
            if last.get(family, ("seed", ""))[0] == "student":
                yield call, f"draws on from the seed, and not from where {last[family][1]} left off"
            last[family] = ("test", "")


def _family_drawn(view: View, function: ast.AST) -> str:
    found = (_family(view, node) for node in ast.walk(function) if isinstance(node, ast.Call))
    return next(filter(None, found), "")


def _family(view: View, call: ast.Call) -> str:
    """Return the library whose global state a call draws from; empty if none."""
    home, _, name = view.called(call).rpartition(".")
    if any(each.arg == "generator" for each in call.keywords):
        return ""
    if home == "torch" and name in _TORCH_DRAWS:
        return "torch"
    if home == "numpy.random" and name.islower() and name not in ("default_rng", "seed", "get_state", "set_state"):
        return "numpy"
    return "random" if home == "random" and name.islower() and name not in ("seed", "getstate", "setstate") else ""
