"""Coverage of subjects: each row says how far its subject is treated, and the text at its anchor bears it out."""

from __future__ import annotations

import collections
from functools import cache
from typing import Any

from tests.course.chapters import COURSE, Part, parts, rows

LEVELS = {"taught", "shown", "named"}


@cache
def parts_of(page: str) -> dict[str, Part]:
    return parts(COURSE / f"{page}.md")


def at(anchor: str) -> Part:
    page, name = anchor.split("#")
    return parts_of(page)[name]


def overstated(row: dict[str, Any]) -> bool:
    """Tell whether the text at the row's anchor holds less than its level promises."""
    part = at(row["anchor"])
    if row["level"] == "taught":
        return not (part.teaches or row.get("tasks"))
    return row["level"] == "shown" and not (part.shows or row.get("tasks"))


def test_every_subject_has_a_level_and_a_bare_name_has_a_reason() -> None:
    subjects = [row for row in rows() if "anchor" in row]
    assert [row["title"] for row in subjects if row.get("level") not in LEVELS] == []
    assert [row["title"] for row in subjects if row["level"] == "named" and not row.get("why")] == []


def test_text_at_the_anchor_holds_what_the_level_promises() -> None:
    """A derivation, a figure, a program or an exercise teaches a subject; a table or an explanation shows it."""
    assert [f"{row['title']}: {row['anchor']}" for row in rows() if "anchor" in row and overstated(row)] == []


def test_subjects_that_readers_missed_are_shown_and_half_of_them_taught() -> None:
    levels = collections.Counter(row["level"] for row in rows() if row["source"] == "readers")
    assert levels["named"] == 0
    assert levels["taught"] >= levels.total() / 2
    assert levels.total() >= 50


def test_evidence_of_levels() -> None:
    page = COURSE / "chapters/05_roofline.md"
    found = parts(page)
    assert found["takeaways"].label == "takeaways"
    assert any(part.teaches for part in found.values())
    assert not Part("x", "Ten words alone.").shows
    assert Part("x", "| a |\n|---|").shows
    assert not Part("x", "| a |\n|---|").teaches
    assert Part("x", "$$\na\n$$").teaches
