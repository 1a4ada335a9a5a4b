"""A class of any size: honest answers drawn from many ways to write the same, and copies disguised as students do."""

# ruff: noqa: E501 (programs as text)
from __future__ import annotations

import ast
import random
from pathlib import Path
from typing import Any

from mlsys_grading.lab import Cell, Lab, WrongAnswer

SHORT, LONG, CLASS = "mean", "blocked", "Cache"


def _cell(index: int, source: str, name: str = "", **flags: Any) -> Cell:
    metadata = {"nbgrader": {"grade_id": name, "schema_version": 3, "task": False} | flags} if name else {}
    return Cell(index, "code", source, 1, metadata)


def _task(name: str, source: str, points: float) -> list[tuple[str, str, dict[str, Any]]]:
    solution = {"solution": True, "grade": False, "locked": False}
    test = {"solution": False, "grade": True, "locked": True, "points": points}
    return [(source, name, solution), (f"assert {name}", f"{name}_test", test)]


def lab(wrong: tuple[WrongAnswer, ...] = ()) -> Lab:
    parts: list[tuple[str, str, dict[str, Any]]] = [
        ("import numpy as np", "", {}),
        ("def shown(x):\n    return f'{x:.3f}'", "helper", {"solution": False, "grade": False, "locked": True}),
        *_task(SHORT, "def mean(xs):\n    ### BEGIN SOLUTION\n    return sum(xs) / len(xs)\n    ### END SOLUTION", 10),
        *_task(LONG, f"def blocked(a, b, size):\n    ### BEGIN SOLUTION\n{_BLOCKED}    ### END SOLUTION", 40),
        *_task(CLASS, f"class Cache:\n    def __init__(self, capacity):\n{_CACHE}    ### END SOLUTION", 50),
    ]
    cells = tuple(_cell(at, source, name, **flags) for at, (source, name, flags) in enumerate(parts))
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return Lab(Path("/nowhere"), "lab92_class", cells, wrong, kernel)


_BLOCKED = """\
    n, k = a.shape
    m = b.shape[1]
    out = np.zeros((n, m))
    for i in range(0, n, size):
        for j in range(0, m, size):
            for p in range(0, k, size):
                out[i : i + size, j : j + size] += a[i : i + size, p : p + size] @ b[p : p + size, j : j + size]
    return out
"""
_CACHE = """\
        ### BEGIN SOLUTION
        self.capacity = capacity
        self.items = {}

    def get(self, key):
        if key in self.items:
            self.items[key] = self.items.pop(key)
            return self.items[key]
        return None

    def put(self, key, value):
        self.items.pop(key, None)
        self.items[key] = value
        if len(self.items) > self.capacity:
            del self.items[next(iter(self.items))]
"""

# Steps of a long function, each in the ways that people write it: what is independent is drawn independently.
_STEPS = (
    ("n, k = a.shape", "n = a.shape[0]\nk = a.shape[1]", "n = len(a)\nk = len(b)", "(n, k), _ = a.shape, b.shape"),
    ("m = b.shape[1]", "_, m = b.shape", "m = len(b[0])", "m = b.T.shape[0]"),
    ("assert k == b.shape[0]", "if b.shape[0] != k:\n    raise ValueError(k)", "size = min(size, n)", ""),
    (
        "out = np.zeros((n, m))",
        "out = np.zeros([n, m], dtype=float)",
        "out = np.full((n, m), 0.0)",
        "out = 0 * (a @ b)",
    ),
    ("left = np.ascontiguousarray(a)", "left = a.copy()", "left = np.array(a, dtype=float)", "left = a"),
    ("right = np.asarray(b)", "right = b.copy()", "right = np.array(b, order='F')", "right = b + 0.0"),
    (
        "rows = range(0, n, size)",
        "rows = np.arange(0, n, size)",
        "rows = [size * i for i in range(-(-n // size))]",
        "rows = []\nat = 0\nwhile at < n:\n    rows.append(at)\n    at += size",
    ),
    (
        "cols = list(range(0, m, size))",
        "cols = np.arange(0, m, step=size)",
        "cols = [j for j in range(m) if j % size == 0]",
        "cols = []\nfor j in range(m):\n    if not j % size:\n        cols.append(j)",
    ),
    (
        "deep = tuple(range(0, k, size))",
        "deep = np.arange(k)[::size]",
        "deep = sorted({p // size * size for p in range(k)})",
        "deep = [p * size for p in range((k + size - 1) // size)]",
    ),
    (
        "blocks = [(i, j) for i in rows for j in cols]",
        "blocks = []\nfor i in rows:\n    for j in cols:\n        blocks.append((i, j))",
        "import itertools\nblocks = itertools.product(rows, cols)",
        "blocks = ((i, j) for j in cols for i in rows)",
    ),
    (
        "for i, j in blocks:\n    for p in deep:\n        out[i : i + size, j : j + size] += left[i : i + size, p : p + size] @ right[p : p + size, j : j + size]",
        "for i, j in blocks:\n    tile = 0\n    for p in deep:\n        tile = tile + np.dot(left[i : i + size, p : p + size], right[p : p + size, j : j + size])\n    out[i : i + size, j : j + size] = tile",
        "for block in blocks:\n    r = slice(block[0], block[0] + size)\n    c = slice(block[1], block[1] + size)\n    out[r, c] = sum(left[r, p : p + size] @ right[p : p + size, c] for p in deep)",
        "for p in deep:\n    for i in rows:\n        strip = left[i : i + size, p : p + size]\n        for j in cols:\n            out[i : i + size, j : j + size] += np.matmul(strip, right[p : p + size, j : j + size])",
    ),
    ("return out", "return np.asarray(out)", "return out.astype(float)", "result = out\nreturn result"),
)
_METHODS = {
    "get(self, key)": (
        (
            "value = self.items.get(key)",
            "value = self.items[key] if key in self.items else None",
            "value = None\nif key in self.items:\n    value = self.items[key]",
            "try:\n    value = self.items[key]\nexcept KeyError:\n    value = None",
        ),
        (
            "if value is not None:\n    self.touch(key)",
            "if value is None:\n    self.misses += 1\nelse:\n    self.touch(key)",
            "self.misses += value is None\nself.touch(key)",
            "if key in self.items:\n    self.touch(key)",
        ),
        (
            "return value",
            "self.gets += 1\nreturn value",
            "return value if value is not None else None",
            "if value is None:\n    return None\nreturn value",
        ),
    ),
    "touch(self, key)": (
        (
            "self.now += 1",
            "self.now = self.now + 1",
            "self.now = max(self.used.values(), default=0) + 1",
            "self.now = next(self.clock)",
        ),
        (
            "self.used[key] = self.now",
            "self.used.update({key: self.now})",
            "if key in self.items:\n    self.used[key] = self.now",
            "self.used.pop(key, None)\nself.used[key] = self.now",
        ),
    ),
    "put(self, key, value)": (
        (
            "if key in self.items:\n    del self.items[key]",
            "self.items.pop(key, None)",
            "had = key in self.items",
            "if len(self.items) >= self.capacity and key not in self.items:\n    self.evict()",
        ),
        (
            "self.items[key] = value",
            "self.items.update({key: value})",
            "self.items = {**self.items, key: value}",
            "self.items |= {key: value}",
        ),
        (
            "self.touch(key)",
            "self.touch(key)\nself.puts += 1",
            "self.used[key] = 0\nself.touch(key)",
            "self.touch(key)\nassert key in self.used",
        ),
        (
            "if len(self.items) > self.capacity:\n    self.evict()",
            "while len(self.items) > self.capacity:\n    self.evict()",
            "for _ in range(len(self.items) - self.capacity):\n    self.evict()",
            "if self.capacity < len(self.items):\n    self.evict()\n    self.evictions += 1",
        ),
    ),
    "evict(self)": (
        (
            "old = min(self.used, key=self.used.get)",
            "old = sorted(self.used, key=lambda one: self.used[one])[0]",
            "old, _ = min(self.used.items(), key=lambda pair: pair[1])",
            "old = None\nfor one in self.used:\n    if old is None or self.used[one] < self.used[old]:\n        old = one",
        ),
        (
            "del self.items[old]",
            "self.items.pop(old)",
            "self.items = {one: self.items[one] for one in self.items if one != old}",
            "gone = self.items.pop(old, None)\nself.last = gone",
        ),
        (
            "del self.used[old]",
            "self.used.pop(old)",
            "self.used = {one: at for one, at in self.used.items() if one != old}",
            "self.used.pop(old, None)\nreturn old",
        ),
    ),
}


def submission(answers: dict[str, str], *own: str) -> list[dict[str, Any]]:
    """Return a notebook's cells: the lab with these answers, and the student's own cells at its end."""
    cells = []
    for cell in lab().cells:
        source = answers.get(cell.grade_id, cell.source)
        cells.append({"cell_type": "code", "source": source, "metadata": dict(cell.metadata)})
    return cells + [{"cell_type": "code", "source": source, "metadata": {}} for source in own]


def honest(seed: int) -> dict[str, str]:
    """Draw one student's answers; each choice is independent of other students."""
    draw = random.Random(seed)
    return {SHORT: _mean(draw), LONG: _blocked(draw), CLASS: _cache(draw)}


def _mean(draw: random.Random) -> str:
    x = draw.choice(["xs", "values", "v"])
    body = draw.choice(
        [
            f"    return sum({x}) / len({x})",
            f"    return sum({x}) / len({x})",
            f"    return np.mean({x})",
            f"    total = 0\n    for each in {x}:\n        total += each\n    return total / len({x})",
        ]
    )
    return f"def mean({x}):\n{body}"


def _blocked(draw: random.Random) -> str:
    lines = [line for step in _STEPS for line in draw.choice(step).split("\n") if line]
    return "def blocked(a, b, size):\n" + "\n".join(f"    {line}" for line in lines)


def _cache(draw: random.Random) -> str:
    start = ["self.capacity = capacity", "self.items = {}", "self.used = {}", "self.now = 0", "self.misses = 0"]
    start += draw.sample(["self.gets = 0", "self.puts = 0", "self.last = None", "self.evictions = 0"], 2)
    draw.shuffle(start)
    methods = [("__init__(self, capacity)", "\n".join(start))]
    methods += [(head, "\n".join(draw.choice(step) for step in steps)) for head, steps in _METHODS.items()]
    text = [f"    def {head}:\n" + "\n".join(f"        {line}" for line in body.split("\n")) for head, body in methods]
    return "class Cache:\n" + "\n\n".join(text)


class _Renamed(ast.NodeTransformer):
    """A renaming of every name that the answer chooses; names that the tests call stay."""

    def __init__(self, tree: ast.AST, keep: set[str]) -> None:
        stored = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        stored |= {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
        stored |= {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}
        self.new = {name: f"renamed_{at}" for at, name in enumerate(sorted(stored - keep))}

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self.new.get(node.id, node.id)
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.arg = self.new.get(node.arg, node.arg)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        node.attr = self.new.get(node.attr, node.attr)
        return node


def disguised(source: str, seed: int) -> str:
    """Disguise a copy: other names, order of functions, layout, comments and docstrings."""
    draw = random.Random(seed)
    tree = ast.parse(source)
    tree = _Renamed(tree, {"self"}).visit(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            draw.shuffle(node.body)
        if isinstance(node, ast.FunctionDef):
            node.body.insert(0, ast.Expr(ast.Constant(f"My own words {seed}.")))
    lines = ast.unparse(ast.fix_missing_locations(tree)).split("\n")
    return "\n".join(f"{line}  # mine, all mine" if draw.random() < 0.4 and line.strip() else line for line in lines)
