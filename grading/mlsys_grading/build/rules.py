"""The rules for test cells, read off the source. Rule 6 (the solution passes) is ``labkit prove``'s.

Tests will run in another process than the student's code and see plain data, so a test may not lean on the student's
objects, process or clock. Each rule is one function ``(TestCell) -> (line, problem, what to write instead)``.
The rules are heuristics that would rather miss a case than accuse a sound test.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from mlsys_grading.build.finding import Finding, at
from mlsys_grading.build.python import calls, dotted, imported_names, loaded, parse, stored
from mlsys_grading.lab import Cell, Lab

Objection = tuple[int, str, str]


@dataclass(frozen=True)
class Student:
    """What the solution cells define."""

    functions: frozenset[str]
    classes: frozenset[str]
    returns: Mapping[str, str]  # function -> the student's class that it is annotated to return


@dataclass(frozen=True)
class TestCell:
    """One test cell as the rules see it."""

    __test__ = False  # pytest would take it for a test
    tree: ast.Module
    names: Mapping[str, str]  # what imports anywhere in the notebook bind
    student: Student

    def called(self, call: ast.Call) -> str:
        return dotted(call.func, self.names)


def equality_on_student_objects(cell: TestCell) -> Iterator[Objection]:
    """Rule 1: ``==`` on a student's object asks the student's own ``__eq__`` whether the answer is right."""
    objects = {
        target.id: node.value
        for node in ast.walk(cell.tree)
        if isinstance(node, ast.Assign) and _makes_student_object(cell, node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }

    def is_object(node: ast.AST) -> bool:
        return (isinstance(node, ast.Name) and node.id in objects) or _makes_student_object(cell, node)

    for node in ast.walk(cell.tree):
        sides: list[ast.expr] = []
        if isinstance(node, ast.Compare) and any(isinstance(op, ast.Eq | ast.NotEq | ast.In) for op in node.ops):
            sides = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and cell.called(node).rpartition(".")[2] in ("expect_equal", "assert_equal"):
            sides = node.args[:2]
        if any(is_object(side) for side in sides):
            yield (
                node.lineno,
                "== on an object of the student's class",
                "compare its attributes or what its methods return",
            )


def _makes_student_object(cell: TestCell, node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return False
    return node.func.id in cell.student.classes or node.func.id in cell.student.returns


def records_outside_locked_cells(cell: TestCell) -> Iterator[Objection]:
    """Rule 2: a record that crosses between the two processes must be known to both, so its type is locked."""
    for node in ast.walk(cell.tree):
        if isinstance(node, ast.ClassDef):
            decorators = {dotted(d.func if isinstance(d, ast.Call) else d, cell.names) for d in node.decorator_list}
            bases = {dotted(base, cell.names).rpartition(".")[2] for base in node.bases}
            record = any(name.endswith("dataclass") for name in decorators)
            if record or any(
                re.fullmatch(r"\w*Enum|Flag|IntFlag|NamedTuple|TypedDict|\w*(Exception|Error)", b) for b in bases
            ):
                yield (
                    node.lineno,
                    f"the record type {node.name} is defined in a test cell",
                    "define it in a locked cell before the task",
                )
        elif isinstance(node, ast.Call) and cell.called(node) in (
            "collections.namedtuple",
            "dataclasses.make_dataclass",
        ):
            yield node.lineno, "a record type is made in a test cell", "define it in a locked cell before the task"


_EXPECTED = re.compile(r"(expect|want|ref|true|truth|correct|oracle|theory|target|answer)", re.IGNORECASE)


def expected_after_in_place_call(cell: TestCell) -> Iterator[Objection]:
    """Rule 3: a bare call changes its argument; what is computed from it afterwards tests the answer against itself."""
    for block in _blocks(cell.tree):
        touched: dict[str, tuple[str, int]] = {}  # argument -> (function, line)
        for statement in block:
            for value, compared in _expected_values(statement):
                for name in sorted(loaded(value) & set(touched)):
                    if compared is None or name == compared:
                        function, line = touched[name]
                        yield (
                            statement.lineno,
                            f"the expected value comes from {name!r} after {function}() changed it (cell line {line})",
                            "compute it before the call",
                        )
            for name in stored(statement):
                touched.pop(name, None)
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                call = statement.value
                if isinstance(call.func, ast.Name) and call.func.id in cell.student.functions:
                    for argument in call.args:
                        if isinstance(argument, ast.Name):
                            touched[argument.id] = (call.func.id, statement.lineno)


def _blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                yield block


def _expected_values(statement: ast.stmt) -> Iterator[tuple[ast.AST, str | None]]:
    """Computed values that a statement takes for the truth, and the name they are compared with (None: stored)."""
    if isinstance(statement, ast.Assign) and _computes(statement.value):
        if any(isinstance(t, ast.Name) and _EXPECTED.match(t.id) for t in statement.targets):
            yield statement.value, None
        return
    if not isinstance(statement, ast.Expr | ast.Assert):
        return
    for node in ast.walk(statement):
        pairs: list[ast.expr] = []
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq):
            pairs = [node.left, node.comparators[0]]
        elif isinstance(node, ast.Call) and re.search(r"close|equal", dotted(node.func, {})):
            pairs = node.args[:2]
        if len(pairs) == 2:
            for one, other in (pairs, pairs[::-1]):
                if isinstance(one, ast.Name) and _computes(other):
                    yield other, one.id


def _computes(node: ast.AST) -> bool:
    return any(isinstance(part, ast.Call | ast.BinOp) for part in ast.walk(node))


_ASK = "ask through mlsys_labkit.checks by name"
_COUNT = "count the work with lk.count_work or lk.trace_accesses in its place"
_NO_CLOCK = "marks never come from a clock: count with lk.count_work, or show lk.bench in an ungraded cell"
_MODULES = {
    "tracemalloc": f"{_ASK}: expect_peak, or lk.trace_memory",
    "resource": f"{_ASK}: expect_peak",
    "psutil": f"{_ASK}: expect_peak",
    "gc": f"{_ASK}: expect_peak",
    "mock": _COUNT,
    "unittest.mock": _COUNT,
    "time": _NO_CLOCK,
    "timeit": _NO_CLOCK,
}
_NAMES = {
    "sys.modules": "test what the function returns",
    "sys.settrace": _COUNT,
    "sys.setprofile": _COUNT,
    "sys.getsizeof": f"{_ASK}: expect_peak",
    "numpy.shares_memory": f"{_ASK}: expect_shares_memory",
    "numpy.may_share_memory": f"{_ASK}: expect_shares_memory",
    "torch.cuda.memory_allocated": f"{_ASK}: expect_peak",
    "torch.cuda.max_memory_allocated": f"{_ASK}: expect_peak",
    "mlsys_labkit.bench": _NO_CLOCK,
    "mlsys_labkit.compare": _NO_CLOCK,
}
_BUILTINS = {
    "globals": "call the student's function by its name",
    "locals": "call the student's function by its name",
    "vars": "read the attributes by name",
    "id": f"{_ASK}: expect_shares_memory",
}
_ATTRIBUTES = ("data_ptr", "untyped_storage", "__array_interface__", "__globals__", "__code__", "__dict__")


def student_process(cell: TestCell) -> Iterator[Objection]:
    """Rule 4: memory, sharing, call counts, globals, patches and clocks belong to the student's process."""
    for node in ast.walk(cell.tree):
        for name, advice in _process_names(cell, node):
            yield getattr(node, "lineno", 1), f"{name} looks into the student's process", advice


def _process_names(cell: TestCell, node: ast.AST) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Import):
        used = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        used = [f"{node.module}.{alias.name}" for alias in node.names]
    elif isinstance(node, ast.Name | ast.Attribute) and _root(node) in cell.names:
        used = [dotted(node, cell.names)]
    else:
        used = []
    for name in used:
        if name in _NAMES:
            yield name, _NAMES[name]
        for module, advice in _MODULES.items():
            if name == module or name.startswith(f"{module}."):
                yield module, advice
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _BUILTINS:
        yield f"{node.func.id}()", _BUILTINS[node.func.id]
    elif isinstance(node, ast.Attribute) and node.attr in _ATTRIBUTES:
        yield f".{node.attr}", f"{_ASK}: expect_shares_memory, or compare values"
    elif isinstance(node, ast.Compare) and any(isinstance(op, ast.Is | ast.IsNot) for op in node.ops):
        sides = (node.left, *node.comparators)
        yield from ((".base by identity", f"{_ASK}: expect_shares_memory") for s in sides if _attribute(s) == "base")


def _root(node: ast.AST) -> str:
    """The name at the root of an attribute chain."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


_TORCH_DRAWS = {"rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial", "poisson"}
_TORCH_DRAWS |= {"rand_like", "randn_like", "randint_like"}
_TORCH_DRAWS_IN_PLACE = {"normal_", "uniform_", "random_", "bernoulli_", "exponential_", "geometric_", "log_normal_"}
_TORCH_LAYERS = {"Linear", "Bilinear", "Conv1d", "Conv2d", "Conv3d", "Embedding", "RNN", "LSTM", "GRU"}
_TORCH_LAYERS |= {"MultiheadAttention", "Transformer", "TransformerEncoderLayer", "TransformerDecoderLayer"}
_NUMPY_SAFE = {
    "default_rng",
    "Generator",
    "RandomState",
    "SeedSequence",
    "PCG64",
    "Philox",
    "seed",
    "get_state",
    "set_state",
}
_PYTHON_SAFE = {"seed", "Random", "getstate", "setstate"}
_SEEDS = {"numpy.random.seed", "random.seed", "torch.manual_seed", "torch.random.manual_seed"}
_RNG_NAMES = {"rng", "gen", "generator", "random_state"}


def unseeded_randomness(cell: TestCell) -> Iterator[Objection]:
    """Rule 5: a test cell draws the same numbers whatever ran before it, so each cell seeds itself."""
    seeded: dict[str, int] = {}
    for call in calls(cell.tree):
        name = cell.called(call)
        if name in _SEEDS and (call.args or call.keywords):
            seeded.setdefault(name.split(".")[0], call.lineno)
    for call in calls(cell.tree):
        name = cell.called(call)
        family, _, draw = name.rpartition(".")
        if (
            name in ("numpy.random.default_rng", "numpy.random.RandomState", "random.Random")
            and not call.args
            and not call.keywords
        ):
            yield call.lineno, f"{draw}() without a seed", f"write {draw}(seed + 1) or another fixed number"
        elif (
            family == "numpy.random" and draw not in _NUMPY_SAFE and seeded.get("numpy", call.lineno + 1) > call.lineno
        ):
            yield (
                call.lineno,
                f"{name} draws from numpy's global state",
                "write rng = np.random.default_rng(0) in this cell and draw from rng",
            )
        elif (
            family == "random"
            and draw not in _PYTHON_SAFE
            and "random" in cell.names.values()
            and seeded.get("random", call.lineno + 1) > call.lineno
        ):
            yield (
                call.lineno,
                f"{name} draws from Python's global state",
                "write rng = random.Random(0) in this cell and draw from rng",
            )
        elif _draws_from_torch(call, name) and seeded.get("torch", call.lineno + 1) > call.lineno:
            yield (
                call.lineno,
                f"{draw or _attribute(call.func)} draws from torch's global state",
                "write torch.manual_seed(0) before it in this cell, or pass generator=",
            )
        elif name in ("os.urandom", "uuid.uuid4") or family == "secrets":
            yield call.lineno, f"{name} cannot be seeded", "draw from np.random.default_rng(0)"
    bound = stored(cell.tree) | {
        arg.arg for node in ast.walk(cell.tree) if isinstance(node, ast.arguments) for arg in node.args
    }
    for call in calls(cell.tree):
        if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
            rng = call.func.value.id
            if rng in _RNG_NAMES and rng not in bound and rng not in cell.names:
                yield (
                    call.lineno,
                    f"{rng!r} comes from another cell, in whatever state that left it",
                    f"write {rng} = np.random.default_rng(0) in this cell",
                )
                return


def _draws_from_torch(call: ast.Call, name: str) -> bool:
    if any(keyword.arg == "generator" for keyword in call.keywords):
        return False
    family, _, draw = name.rpartition(".")
    return (
        (family == "torch" and draw in _TORCH_DRAWS)
        or (family == "torch.nn" and draw in _TORCH_LAYERS)
        or _attribute(call.func) in _TORCH_DRAWS_IN_PLACE
    )


def _attribute(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else ""


_REFERENCE = re.compile(
    r"_?(reference|ref|oracle|expected|solution|correct|truth)(_\w+)?|\w+_(reference|ref|oracle|solution)"
)


def references_in_locked_cells(lab: Lab) -> Iterator[Finding]:
    """Rule 2, the other half: students read locked cells, and a reference answer there is the solution."""
    for cell in lab.cells:
        if cell.is_locked and cell.kind == "code":
            for node in ast.walk(parse(cell.source)):
                if isinstance(node, ast.FunctionDef) and _REFERENCE.fullmatch(node.name):
                    yield at(
                        lab,
                        cell,
                        node.lineno,
                        "rule 2",
                        f"the reference answer {node.name}() stands in a locked cell, where students read it",
                        "move it into the hidden part of the test cell",
                    )


RULES: Mapping[str, Callable[[TestCell], Iterator[Objection]]] = {
    "rule 1": equality_on_student_objects,
    "rule 2": records_outside_locked_cells,
    "rule 3": expected_after_in_place_call,
    "rule 4": student_process,
    "rule 5": unseeded_randomness,
}


def check_tests(lab: Lab) -> Iterator[Finding]:
    """Every rule on every test cell of a lab."""
    trees = {cell.index: parse(cell.source) for cell in lab.cells if cell.kind == "code"}
    names = imported_names(trees.values())
    student = _student(cell for cell in lab.cells if cell.is_solution)
    for cell in lab.cells:
        if cell.is_test:
            view = TestCell(trees[cell.index], names, student)
            for rule, function in RULES.items():
                for line, problem, instead in sorted(set(function(view))):
                    yield at(lab, cell, line, rule, problem, instead)
    yield from references_in_locked_cells(lab)


def _student(solutions: Iterator[Cell]) -> Student:
    functions, classes, annotated = set(), set(), {}
    for cell in solutions:
        for node in parse(cell.source).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                functions.add(node.name)
                annotated[node.name] = ast.unparse(node.returns).strip("'\"") if node.returns else ""
            elif isinstance(node, ast.ClassDef):
                classes.add(node.name)
    returns = {name: kind for name, kind in annotated.items() if kind in classes}
    return Student(frozenset(functions), frozenset(classes), returns)
