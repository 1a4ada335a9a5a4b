"""No room of the kit imports one on a higher floor, wherever the import stands: CONTRIBUTING.md has the floors."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.conftest import ROOT

KIT = ROOT / "mlsys_labkit"


def floors(text: str) -> dict[str, int]:
    """Room -> floor, of a table with a row for each floor: ``| 2 | `limits` (...), `device`, ... |``."""
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", text, re.MULTILINE)
    placed = [(room, int(floor)) for floor, rooms in rows for room in re.findall(r"`(\w+)`", rooms)]
    assert len(placed) == len(dict(placed)), "a room stands on two floors"
    return dict(placed)


def imports(source: str) -> Iterator[tuple[int, str]]:
    """(line, room) of every import of the package's rooms: at the top, in a function, for type checkers alone."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"line {node.lineno}: write imports in full, so that this test can read them"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from ((node.lineno, name.split(".")[1]) for name in names if name.startswith("mlsys_labkit."))


def room_of(file: Path, kit: Path = KIT) -> str:
    return file.relative_to(kit).parts[0].removesuffix(".py")


def climbs(kit: Path, floor: dict[str, int]) -> list[str]:
    """Every import from a room on a higher floor, as "file:line imports room"."""
    return [
        f"{file.relative_to(kit)}:{line} imports {room}"
        for file in sorted(kit.rglob("*.py"))
        if file.parent != kit or file.name != "__init__.py"  # the front door hands out every room
        for line, room in imports(file.read_text(encoding="utf-8"))
        if floor.get(room, 0) > floor[room_of(file, kit)]  # 0: a name of the front door, such as __version__
    ]


@pytest.fixture(scope="module")
def floor() -> dict[str, int]:
    return floors((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))


def test_every_room_stands_on_a_floor(floor: dict[str, int]) -> None:
    rooms = {room_of(file) for file in KIT.rglob("*.py") if file != KIT / "__init__.py"}
    assert rooms == set(floor)


def test_no_room_imports_from_a_higher_floor(floor: dict[str, int]) -> None:
    assert climbs(KIT, floor) == []


def test_rooms_have_no_cycles() -> None:
    graph: dict[str, set[str]] = {}
    for file in KIT.rglob("*.py"):
        rooms = {room for _, room in imports(file.read_text(encoding="utf-8"))}
        if file != KIT / "__init__.py":
            graph.setdefault(room_of(file), set()).update(rooms - {room_of(file)})
    assert list(TopologicalSorter(graph).static_order())


def test_the_kit_never_imports_the_graders() -> None:
    pattern = re.compile(r"^\s*(from|import) mlsys_grading", re.MULTILINE)
    assert [file for file in KIT.rglob("*.py") if pattern.search(file.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(
    "source",
    [
        "import mlsys_labkit.checks",
        "from mlsys_labkit import checks",
        "from mlsys_labkit.checks import expect_close",
        "from mlsys_labkit.checks.close import expect_close as close",
        "def f():\n    from mlsys_labkit import specs, checks",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from mlsys_labkit.checks import CheckError",
    ],
)
def test_an_import_up_the_floors_is_found(tmp_path: Path, source: str) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "record.py").write_text(source)
    (tmp_path / "checks.py").write_text("from mlsys_labkit.work import Work")  # down is allowed
    line = source.count("\n") + 1
    found = climbs(tmp_path, {"work": 1, "specs": 1, "checks": 4})
    assert found == [f"work/record.py:{line} imports checks"]
