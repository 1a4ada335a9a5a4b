"""The packages' imports. ``python -m tests.architecture`` draws them in ``course/_static/architecture.svg``.

A box is a package or module at the top of ``mlsys_labkit`` or ``mlsys_grading``. An arrow is an import, also one in
a function or for type checkers. Arrows that follow from others are left out. A box stands above all that it imports.
"""

from __future__ import annotations

import ast
import math
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

from mlsys_labkit._base.light_dark_colours import COLOURS

ROOT = Path(__file__).resolve().parents[1]
SVG = ROOT / "course/_static/architecture.svg"
KIT, GRADERS = ROOT / "mlsys_labkit", ROOT / "grading/mlsys_grading"
_PANEL, _ROW, _BOX, _CHARACTER = 560, 66, 26, 7.4

Graph = dict[str, set[str]]


@cache
def imports(file: Path, package: Path) -> tuple[tuple[int, str], ...]:
    """Return line and dotted name, without the package's, of each import of ``package`` anywhere in ``file``."""
    found = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{file}:{node.lineno}: write imports in full, so that this reader can follow them"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        prefix = f"{package.name}."
        found += [(node.lineno, name.removeprefix(prefix)) for name in names if name.startswith(prefix)]
    return tuple(found)


def modules(package: Path) -> dict[str, Path]:
    """Return the package's files by their modules' dotted names, without the package's own ``__init__.py``."""
    names = {".".join(file.relative_to(package).with_suffix("").parts): file for file in sorted(package.rglob("*.py"))}
    return {name.removesuffix(".__init__"): file for name, file in names.items() if name != "__init__"}


def file_graph(package: Path) -> Graph:
    """Return the modules that each module of ``package`` imports from it."""
    known = modules(package)
    graph: Graph = {}
    for module, file in known.items():
        targets = [target for _, target in imports(file, package)]
        homes = {target if target in known else target.rpartition(".")[0] for target in targets}
        graph[module] = (homes & known.keys()) - {module}
    return graph


def room_graph(package: Path) -> Graph:
    """Return the rooms that each room imports. A room's ``command.py`` is an entry point that may import any room."""
    graph: Graph = {}
    for module, targets in file_graph(package).items():
        room = module.partition(".")[0]
        below = graph.setdefault(room, set())
        if not module.endswith(".command"):
            below.update(target.partition(".")[0] for target in targets)
            below.discard(room)
    return graph


def reduced(graph: Graph) -> Graph:
    """Return ``graph`` without the edges that a longer way implies."""
    below: Graph = {}
    for name in TopologicalSorter(graph).static_order():
        below[name] = set().union(graph[name], *(below[target] for target in graph[name]))
    return {
        name: {target for target in targets if not any(target in below[other] for other in targets)}
        for name, targets in graph.items()
    }


def layers(graph: Graph) -> list[list[str]]:
    """Return the rooms row by row, the lowest first: each row imports only from rows below it."""
    row: dict[str, int] = {}
    for name in TopologicalSorter(graph).static_order():
        row[name] = max((row[target] + 1 for target in graph[name]), default=0)
    rows: list[list[str]] = [[] for _ in range(max(row.values()) + 1)]
    for name in sorted(row):
        rows[row[name]].append(name)
    return rows


def places(rows: list[list[str]], edges: Graph) -> dict[str, tuple[float, int]]:
    """Return for each room the centre of its box and its row; a row is ordered by the mean of what its boxes import."""
    place: dict[str, tuple[float, int]] = {}
    for row, names in enumerate(rows):
        below = {name: [place[target][0] for target in sorted(edges[name])] for name in names}
        names.sort(key=lambda name: (math.fsum(below[name]) / len(below[name]) if below[name] else _PANEL / 2, name))
        gap = (_PANEL - math.fsum(map(_box_width, names))) / (len(names) + 1)
        left = gap
        for name in names:
            place[name] = (left + _box_width(name) / 2, row)
            left += _box_width(name) + gap
    return place


def _box_width(name: str) -> float:
    return len(name) * _CHARACTER + 22


def draw_package(package: Path, left: float, height: float) -> list[str]:
    """Return the SVG lines of one package's panel, whose lowest row ends at ``height``."""
    edges = reduced(room_graph(package))
    rows = layers(edges)
    place = places(rows, edges)

    def box_top(name: str) -> float:
        return height - _BOX - _ROW * place[name][1]

    title = height - _BOX - _ROW * (len(rows) - 1) - 22
    lines = [
        f'<g transform="translate({left:g})">',
        f'<text class="title" x="{_PANEL / 2:g}" y="{title}">{package.name}</text>',
    ]
    for name in sorted(edges):
        x, y = place[name][0], box_top(name) + _BOX
        for target in sorted(edges[name]):
            to, end = place[target][0], box_top(target) - 2
            lines.append(
                f'<path d="M{x:.0f} {y:.0f}C{x:.0f} {y + 24:.0f} {to:.0f} {end - 24:.0f} {to:.0f} {end:.0f}"/>'
            )
    for name, (x, _) in sorted(place.items()):
        width, top = _box_width(name), box_top(name)
        lines.append(
            f'<g class="{"private" if name.startswith("_") else "room"}">'
            f'<rect x="{x - width / 2:.1f}" y="{top}" width="{width:.1f}" height="{_BOX}" rx="5"/>'
            f'<text x="{x:.1f}" y="{top + 17.5}">{name}</text></g>'
        )
    return [*lines, "</g>"]


def draw() -> str:
    """Return the drawing of both packages as SVG, light and dark."""
    height = 40 + _ROW * max(len(layers(room_graph(package))) for package in (KIT, GRADERS))
    panels = [*draw_package(KIT, 0, height), *draw_package(GRADERS, _PANEL + 40, height)]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * _PANEL + 40} {height + 12}" role="img">',
            "<title>Packages of mlsys_labkit and mlsys_grading; an arrow points to what a package imports</title>",
            "<style>text{font:12.5px ui-monospace,Menlo,Consolas,monospace;text-anchor:middle}",
            ".title{font-weight:600;font-size:15px}.private rect{stroke-dasharray:4 3}",
            "path{fill:none;stroke-width:1.2;marker-end:url(#tip)}.tip{marker-end:none}",
            f"{_colours('light')}@media(prefers-color-scheme:dark){{{_colours('dark')}}}</style>",
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="7" markerHeight="7"',
            ' orient="auto">',
            '<path class="tip" d="M0 0.5 7 4 0 7.5z"/></marker></defs>',
            *panels,
            f'<path d="M{_PANEL + 60} {height / 3:.0f}h-56"/>',  # mlsys_grading imports mlsys_labkit
            "</svg>\n",
        ]
    )


def _colours(theme: str) -> str:
    ink, edge, wash = (getattr(COLOURS[name], theme) for name in ("ink", "edge", "wash"))
    return f"text{{fill:{ink}}}rect{{fill:{wash};stroke:{edge}}}path{{stroke:{edge}}}.tip{{fill:{edge};stroke:none}}"


if __name__ == "__main__":
    SVG.write_text(draw(), encoding="utf-8")
