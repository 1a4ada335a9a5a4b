"""Chapters as a reader works through them: pictures on the way, and exercises whose answer can be checked."""

from __future__ import annotations

import pytest

from mlsys_labkit import drawings as drawn
from tests.course import chapters
from tests.course.chapters import NAMES, exercises, longest_way, source

MOST_WORDS = 900  # between two figures
EXERCISES = 6
MOST_COLUMNS = 80


@pytest.mark.parametrize("name", NAMES)
def test_figures_are_near_to_each_other(name: str) -> None:
    words, start = longest_way(source(name))
    assert words <= MOST_WORDS, f"{words} words without a figure after {start}"


@pytest.mark.parametrize("name", NAMES)
def test_every_exercise_has_an_answer_or_a_task_that_checks_it(name: str) -> None:
    found = exercises(source(name))
    assert len(found) >= EXERCISES
    assert [one.text for one in found if not (one.answered or one.has_task)] == []


def test_every_drawing_has_its_place_in_a_chapter() -> None:
    shown = set().union(*(chapters.drawings(source(name)) for name in NAMES))
    made = {name for name, made in vars(drawn).items() if callable(made) and name[0].islower()}
    assert len(made) >= 24
    assert shown == made


def test_counts_of_a_chapter_with_mistakes() -> None:
    text = (
        "# T\n\none two three\n\n```{code-cell} python\nlk.widgets.prediction('?')\n```\n\nfour\n\n"
        "```{code-cell} python\nlk.drawings.node()\n```\n\nfive\n\n## Exercises\n\n1. Think.\n"
        "2. [Lab 01](x), task `offset`: do.\n"
        "3. Compute.\n\n```{code-cell} python\nlk.widgets.answer('3')\n```\n\n## Words\n"
    )
    assert longest_way(text) == (6, "the beginning")
    assert [(one.answered, one.has_task) for one in exercises(text)] == [(False, False), (False, True), (True, False)]
    assert chapters.drawings(text) == {"node"}


@pytest.mark.parametrize("name", NAMES)
def test_code_that_a_reader_sees_fits_a_narrow_column(name: str) -> None:
    assert [line for line in chapters.shown_code(source(name)) if len(line) > MOST_COLUMNS] == []


@pytest.mark.parametrize("name", NAMES)
def test_every_cell_begins_a_line_of_its_own(name: str) -> None:
    """A fence behind a sentence makes no cell: Markdown prints the code that follows, and nothing runs."""
    lines = source(name).splitlines()
    assert [line for line in lines if "```" in line and not line.lstrip().startswith("```")] == []
