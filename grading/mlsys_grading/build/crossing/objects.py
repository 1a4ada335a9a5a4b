"""Rules on objects of the student's, which are stand-ins in the examiner, and on their answers (LK201 to LK206)."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mlsys_grading.build.crossing import Objection
from mlsys_grading.build.python import words
from mlsys_grading.build.view import View, methods_of

_CHANGES = words("""
    append extend insert pop remove clear update add discard sort reverse setdefault popitem appendleft popleft
    fill put resize
""")
_CONVERTS = words("""
    float int bool complex abs round numpy.asarray numpy.array torch.as_tensor torch.tensor
""")
_ITERATES = words("list tuple set sum sorted dict iter enumerate zip map min max")
_OWN_NAMES = words("__name__ __qualname__ __doc__ __module__")


def identity(view: View) -> Iterator[Objection]:
    """Find ``is`` between two answers: both are copies. Only the student's objects and arguments keep identity."""
    for node in view.nodes:
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Is | ast.IsNot):
            sides = (node.left, node.comparators[0])
            if all(view.origin(side) == "answer" and not _is_property_of_answer(view, side) for side in sides):
                yield node, f"`{view.text(node)}`: two answers are two copies, the same or not"


def _is_property_of_answer(view: View, node: ast.AST) -> bool:
    """Return whether ``node`` is an attribute of a plain answer, in the examiner, or of a class, a constant."""
    return isinstance(node, ast.Attribute) and view.origin(node.value) in ("answer", "class")


def change_of_an_answer(view: View) -> Iterator[Objection]:
    """Find changes of what an attribute or a call returned: they change the examiner's copy."""
    for node in view.nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name, of = node.func.attr, node.func.value
            changes = name in _CHANGES or (name.endswith("_") and not name.startswith("_"))
            if changes and name not in view.student.methods and _is_direct_answer(view, of):
                yield node, f"`{view.text(node)}` changes a copy of what {view.text(of)} is"
        elif isinstance(node, ast.Assign | ast.AugAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Subscript) and _is_direct_answer(view, target.value):
                    yield node, f"`{view.text(target)} = …` changes a copy of what {view.text(target.value)} is"
        elif isinstance(node, ast.Delete):
            for target in node.targets:
                if isinstance(target, ast.Attribute) and view.origin(target.value) == "object":
                    yield node, f"`del {view.text(target)}` deletes nothing in the student's process"


def _is_direct_answer(view: View, node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute | ast.Call) and view.origin(node) == "answer"


def class_relations(view: View) -> Iterator[Objection]:
    """Find reads of the bases of a student's class: a stand-in's class has its name and no bases."""
    for node in view.nodes:
        if isinstance(node, ast.ClassDef):
            for base in node.bases:
                if view.origin(base) == "class":
                    yield node, f"{node.name} is derived from the student's {view.text(base)}"
        elif isinstance(node, ast.Call) and view.called(node) == "issubclass" and len(node.args) == 2:
            if any(view.origin(each) == "class" for each in node.args):
                yield node, f"`{view.text(node)}` asks for the bases of a stand-in"
        elif isinstance(node, ast.Call) and view.called(node) == "isinstance" and len(node.args) == 2:
            own, kind = view.class_of(node.args[0]), node.args[1]
            if own and not (isinstance(kind, ast.Name) and kind.id == own):
                yield node, f"`{view.text(node)}` asks for the bases of a stand-in of {own}"


def operators(view: View) -> Iterator[Objection]:
    """Find operators, truth tests and conversions of a student's object, which its class would decide."""

    def is_object(node: ast.AST) -> bool:
        return view.origin(node) == "object"

    for node in view.nodes:
        used: list[ast.AST] = []
        if isinstance(node, ast.BinOp):
            used = [node.left, node.right]
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE):
            used = [node.left, *node.comparators]
        elif isinstance(node, ast.UnaryOp):
            used = [node.operand]
        elif isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert):
            used = [node.test]
        elif isinstance(node, ast.BoolOp):
            used = list(node.values)
        elif isinstance(node, ast.FormattedValue) and node.format_spec is not None:
            used = [node.value]
        elif isinstance(node, ast.Call) and view.called(node) in _CONVERTS:
            used = list(node.args[:1])
        elif isinstance(node, ast.For | ast.comprehension):
            used = [] if _has(view, node.iter, "__iter__") else [node.iter]
        elif isinstance(node, ast.Call) and is_object(node.func) and not _has(view, node.func, "__call__"):
            used = [node.func]
        elif isinstance(node, ast.Call) and view.called(node) in _ITERATES:
            used = [each for each in node.args if not _has(view, each, "__iter__")]
        for each in used:
            if is_object(each):
                where = node.iter if isinstance(node, ast.comprehension) else node
                yield where, f"`{view.text(each)}` is the student's: it has the methods it defines, and attributes"


def _has(view: View, node: ast.AST, special: str) -> bool:
    kind = view.student.classes.get(view.class_of(node))
    return kind is None or special in methods_of(kind)


def introspection(view: View) -> Iterator[Objection]:
    """Find reads of a student function's code, defaults and attributes: here it is a name that can be called."""
    for node in view.nodes:
        if isinstance(node, ast.Attribute) and node.attr not in _OWN_NAMES and view.origin(node.value) == "function":
            yield node, f"`{view.text(node)}`: only the name and the docstring of a student function are known here"
        elif isinstance(node, ast.Call):
            name = view.called(node)
            if name.startswith("inspect.") and any(view.origin(each) in ("function", "class") for each in node.args):
                yield node, f"{name} looks at a stand-in"
            elif name == "dir" and any(view.origin(each) == "object" for each in node.args):
                yield node, "dir() lists what a stand-in has"


def copies(view: View) -> Iterator[Objection]:
    """Find copies and pickles of stand-ins."""
    for call in view.calls:
        is_copy = view.called(call) in ("copy.copy", "copy.deepcopy", "pickle.dumps", "pickle.dump", "torch.save")
        if is_copy and any(view.origin(each) in ("object", "function", "class") for each in call.args):
            yield call, f"`{view.text(call)}`: a stand-in cannot be copied or pickled"
