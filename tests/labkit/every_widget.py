"""Every widget of the kit, with something worth drawing in it. A new widget joins by the example in its docstring."""

from __future__ import annotations

import doctest
import importlib
import inspect
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from mlsys_labkit.widgets import base
from tests.labkit import test_examples, test_widgets
from tests.ranks import test_planner_widgets, test_ranks_widgets
from tests.serving import test_serving_widgets

ROOM = Path(base.__file__).parent
SAMPLES: dict[str, Callable[[], Any]] = {
    **test_widgets.MAKERS,
    **test_ranks_widgets.MAKERS,
    **{f"sizing_{name}": make for name, make in test_planner_widgets.MAKERS.items()},
    **test_serving_widgets.MAKERS,
}


def folders() -> set[str]:
    """Return the kinds of widget: every folder with a view."""
    return {view.parent.name for view in ROOM.glob("*/view.js")}


@cache
def every() -> Mapping[str, Callable[[], Any]]:
    """Return the code that makes each sample, by name; kinds without a sample are shown by their own examples."""
    made = dict(SAMPLES)
    for folder in sorted(folders() - {folder_of(make) for make in SAMPLES.values()}):
        for number, (kind, state) in enumerate(_from_examples().get(folder, [])):
            made[f"{folder}_{number}"] = lambda kind=kind, state=state: kind.show(**state)
    return made


def folder_of(make: Callable[[], Any]) -> str:
    return shown_by(make)[0].folder


def shown_by(make: Callable[[], Any]) -> tuple[base.Kind, Mapping[str, Any]]:
    """Return the kind and the state that a maker shows."""
    shown: list[tuple[base.Kind, Mapping[str, Any]]] = []
    with mock.patch.object(base.Kind, "show", lambda kind, **state: shown.append((kind, state))):
        make()
    return shown[0]


@cache
def by_folder() -> Mapping[str, tuple[base.Kind, Mapping[str, Any]]]:
    """Return one sample for each folder."""
    return {kind.folder: (kind, state) for kind, state in map(shown_by, every().values())}


@cache
def _from_examples() -> dict[str, list[tuple[base.Kind, Mapping[str, Any]]]]:
    """Collect the widgets that the examples in the docstrings of the kit's public names show, by folder."""
    seen: dict[str, list[tuple[base.Kind, Mapping[str, Any]]]] = {}
    show = base.Kind.show

    def note(kind: base.Kind, **state: Any) -> Any:
        if (kind, state) not in seen.setdefault(kind.folder, []):
            seen[kind.folder].append((kind, state))
        return show(kind, **state)

    with mock.patch.object(base.Kind, "show", note):
        for name, thing in test_examples.public():
            module = importlib.import_module(getattr(thing, "__module__", base.__name__))
            if "widgets" not in inspect.getsource(module):
                continue  # its examples would take seconds, and show none
            for test in doctest.DocTestFinder().find(thing, name):
                test.globs.update(vars(module))
                doctest.DocTestRunner(verbose=False).run(test, out=lambda text: None)
    return seen


def notebook() -> Any:
    """Build a notebook that shows every sample and a figure of the kit; its kernel finds this file by PYTHONPATH."""
    import nbformat

    sources = ["from tests.labkit import every_widget", *(f"every_widget.every()[{name!r}]()" for name in every())]
    figure = "lk.show(go.Figure(go.Bar(y=[1, 4], name='bytes')), 'The second bar is four times the first.')"
    sources.append(f"import plotly.graph_objects as go, mlsys_labkit as lk\n{figure}")
    cells = [nbformat.v4.new_markdown_cell("# Every widget\n\nA formula: $n^2$.\n\n## One by one")]
    cells += [nbformat.v4.new_code_cell(source) for source in sources]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})


# All that a reader can see of a widget's section.
SEEN = """(section) => section.innerHTML + [...section.querySelectorAll("input, select")]
  .map((node) => `${node.value} ${node.checked}`)"""
HANDLES = (
    "input[type=range]",
    "[role=slider]",
    "[role=option][tabindex='0']",
    "input[type=radio]",
    "input[type=checkbox]",
    "button:enabled",
    "[role=button][tabindex]",
    "select",
)


def handle(section: Any) -> Any:
    """Return a widget's main handle: its first slider, or what it has instead."""
    for selector in HANDLES:
        for found in section.locator(selector).all():
            if found.is_visible():
                return found
    raise AssertionError("a widget without a handle")


def press(section: Any) -> None:
    """Move the main handle by keyboard."""
    found = handle(section)
    kind = found.evaluate("node => node.type || node.getAttribute('role')")
    if kind.startswith("select"):
        found.press("ArrowDown" if found.evaluate("node => node.selectedIndex === 0") else "ArrowUp")
    elif kind == "range":
        at_end = found.evaluate("node => Number(node.value) >= Number(node.max)")
        found.press("ArrowLeft" if at_end else "ArrowRight")
    else:
        found.press(
            {"option": "ArrowUp", "slider": "ArrowRight", "radio": "Space", "checkbox": "Space"}.get(kind, "Enter")
        )


def grip(section: Any) -> None:
    """Move the main handle by mouse: drag a slider to its other side, click what is no slider."""
    found = handle(section)
    found.scroll_into_view_if_needed()
    kind = found.evaluate("node => node.type || node.getAttribute('role')")
    if kind.startswith("select"):  # its list is the system's own window, where no page's mouse comes
        at = found.evaluate("node => node.selectedIndex")
        found.select_option(index=1 if at == 0 else 0)
        return
    if kind == "button" and found.evaluate("node => node.tagName") != "BUTTON":
        found.click()
        return
    if kind == "slider":  # a handle of the picture, along its own axis, to the side where it has room
        axis = found.get_attribute("data-axis") or "x"
        low, now, high = (float(found.get_attribute(f"aria-value{name}")) for name in ("min", "now", "max"))
        room = 150 if now <= (low + high) / 2 else -150
        box, mouse = found.bounding_box(), found.page.mouse
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        mouse.move(x, y)
        mouse.down()
        mouse.move(x + room * ("x" in axis), y - room * ("y" in axis), steps=4)
        mouse.up()
        return
    if kind != "range":
        section.locator("[role=option], input[type=radio], input[type=checkbox], button:enabled").last.click()
        return
    box, right = found.bounding_box(), found.evaluate("node => node.value - node.min > (node.max - node.min) / 2")
    mouse, middle = found.page.mouse, box["y"] + box["height"] / 2
    mouse.move(box["x"] + box["width"] * (0.9 if right else 0.1), middle)
    mouse.down()
    mouse.move(box["x"] + box["width"] * (0.1 if right else 0.9), middle, steps=4)
    mouse.up()


def changes(section: Any, move: Callable[[Any], None]) -> None:
    """Make a move, and wait until the widget shows it: a page handles a mouse's moves with its next frame."""
    before = section.evaluate(SEEN)
    move(section)
    differs = f"([node, before]) => ({SEEN})(node) !== before"
    section.page.wait_for_function(differs, arg=[section.element_handle(), before])
