"""Imports go down the floors of CONTRIBUTING.md, in both packages, and no files import each other in a circle."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests import architecture
from tests.architecture import GRADERS, KIT, file_graph, imports, modules, room_graph
from tests.conftest import ROOT

PACKAGES = pytest.mark.parametrize("package", [KIT, GRADERS], ids=lambda package: package.name)


def floors(package: Path) -> dict[str, int]:
    """Read room -> floor from the package's table: ``| 2 | `device` (...), `timing`, ... |``."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.split(f"Inside `{package.relative_to(ROOT)}`")[1]
    table = re.search(r"(^\|.*\n)+", section, re.MULTILINE)
    assert table, "a table follows"
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", table[0], re.MULTILINE)
    placed = [
        (room, int(floor)) for floor, rooms in rows for room in re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", rooms))
    ]
    assert len(placed) == len(dict(placed)), "a room stands on two floors"
    return dict(placed)


def climbs(package: Path, floor: Mapping[str, int]) -> list[str]:
    """List every import from a room on a higher floor, as "file:line imports module".

    A room's ``command.py`` is an entry point: it may import any room, and no other file may import it.
    """
    found = []
    for module, file in modules(package).items():
        for line, target in imports(file, package):
            room, _, rest = target.partition(".")
            # A name of the package's __init__.py, such as __version__, has no floor.
            rises = floor.get(room, 0) > floor[module.partition(".")[0]] and file.name != "command.py"
            if rises or rest.partition(".")[0] == "command":
                found.append(f"{file.relative_to(package)}:{line} imports {target}")
    return found


@PACKAGES
def test_every_room_stands_on_a_floor(package: Path) -> None:
    assert set(room_graph(package)) == set(floors(package))


@PACKAGES
def test_no_room_imports_from_a_higher_floor(package: Path) -> None:
    assert climbs(package, floors(package)) == []


@PACKAGES
@pytest.mark.parametrize("graph", [file_graph, room_graph])
def test_no_circle_of_imports(package: Path, graph: Callable[[Path], Mapping[str, set[str]]]) -> None:
    TopologicalSorter(graph(package)).prepare()


def test_the_drawing_shows_the_imports() -> None:
    drawn = architecture.SVG.read_text(encoding="utf-8")
    assert drawn == architecture.draw(), "say: python -m tests.architecture"


def test_the_kit_never_imports_the_graders() -> None:
    pattern = re.compile(r"^\s*(from|import) mlsys_grading", re.MULTILINE)
    assert [file for file in KIT.rglob("*.py") if pattern.search(file.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(
    "source",
    [
        "import kit.checks",
        "from kit import checks",
        "from kit.checks import expect_close",
        "from kit.checks.close import expect_close as close",
        "def f():\n    from kit import specs, checks",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from kit.checks import CheckError",
    ],
)
def test_an_import_up_the_floors_is_found(tmp_path: Path, source: str) -> None:
    kit = tmp_path / "kit"
    (kit / "work").mkdir(parents=True)
    (kit / "work" / "record.py").write_text(source)
    (kit / "work" / "command.py").write_text(source)  # the front end of a verb may
    (kit / "checks.py").write_text("from kit.work import Work")  # down is allowed
    found = climbs(kit, {"work": 1, "specs": 1, "checks": 4})
    line = source.count("\n") + 1
    assert [each.partition(" imports ")[0] for each in found] == [f"work/record.py:{line}"]
    assert " imports checks" in found[0]


def test_a_lazy_circle_of_files_is_found(tmp_path: Path) -> None:
    (tmp_path / "kit").mkdir()
    (tmp_path / "kit" / "a.py").write_text("def f():\n    from kit.b import g")
    (tmp_path / "kit" / "b.py").write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from kit import a")
    with pytest.raises(CycleError):
        TopologicalSorter(file_graph(tmp_path / "kit")).prepare()
