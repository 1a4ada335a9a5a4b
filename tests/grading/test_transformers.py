"""Tests that cells are transformed as IPython transforms them, whether they are tokenized or not."""

from __future__ import annotations

from pathlib import Path

import pytest
from IPython.core.async_helpers import _should_be_async
from IPython.core.inputtransformer2 import TransformerManager
from jupytext import reads

from mlsys_grading.kernel.transformers import QuickTransformers, may_await

SOLUTIONS = Path(__file__).parents[2] / "solutions"
SPECIAL = (
    "%time x",
    "x = %time 1",
    "x = \\\n  %time 1",
    "x = !ls",
    "x =   !ls",
    "x: list = !ls",
    "  !ls",
    "if x:\n    !ls {x}\n",
    "len?",
    "?len",
    "a.b??",
    ",f a b",
    ";f a b",
    "/f a b",
    "%%time\nx = 1",
    ">>> x = 1\n>>> y",
    "\n\n  x = 1\n  y = 2",
    "for x in y:\n    a = %timeit -o x\n",
    "\x0c%time x",
    "x = 1\r\n%time x\r\n",
    "f(a\n  % b)",
    "x != 1 ; y",
    'text = """\n%time\n!ls\n"""',
    "y = x %time",
    "(\n",
    "  x\n y",
)


def outcome(manager: TransformerManager, source: str) -> str:
    try:
        return str(manager.transform_cell(source))
    except SyntaxError as error:
        return type(error).__name__


@pytest.mark.parametrize("source", SPECIAL)
def test_special_syntax_is_transformed_as_ipython_does(source: str) -> None:
    assert outcome(QuickTransformers(), source) == outcome(TransformerManager(), source)


def test_cells_of_a_lab_are_transformed_as_ipython_does() -> None:
    path = next(iter(sorted(SOLUTIONS.glob("lab*/lab*.py"))))
    cells = [cell.source for cell in reads(path.read_text(), fmt="py:percent").cells if cell.cell_type == "code"]
    assert len(cells) > 10
    for cell in cells:
        assert outcome(QuickTransformers(), cell) == outcome(TransformerManager(), cell)


def test_plain_cells_are_not_tokenized(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TransformerManager, "do_token_transforms", lambda *_: pytest.fail("it was tokenized"))
    assert (
        QuickTransformers().transform_cell("def f(x):\n    return x % 2 != 1") == "def f(x):\n    return x % 2 != 1\n"
    )


def test_a_transformer_of_the_students_own_is_called() -> None:
    manager = QuickTransformers()
    manager.token_transformers.append(Shout)
    assert manager.transform_cell("x = 1") == "X = 1\n"


class Shout:
    priority = start_line = start_col = 0

    @classmethod
    def find(cls, tokens_by_line: list[list[object]]) -> Shout | None:
        return None if cls.is_done else cls()

    is_done = False

    def sortby(self) -> tuple[int, int, int]:
        return 0, 0, 0

    def transform(self, lines: list[str]) -> list[str]:
        type(self).is_done = True
        return [line.upper() for line in lines]


@pytest.mark.parametrize(
    "source",
    [
        "await f()",
        "async for x in y:\n    pass",
        "async with f():\n    pass",
        "[x async for x in y]",
        "x = [await f()]",
    ],
)
def test_cells_that_await_are_recognised(source: str) -> None:
    assert _should_be_async(source)
    assert may_await(source)


def test_cells_without_the_keywords_are_not_compiled() -> None:
    assert not may_await("x = 1\nprint(x)")
