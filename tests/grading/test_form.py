"""The rules for a lab's form: a lab that breaks one is refused with a message that names the reason."""

# ruff: noqa: E501 - a table of broken and sound code reads best with one case a line

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.grading.course import Course

STRUCTURE: list[tuple[str, str, str, str]] = [
    ("header", "#   kernelspec:\n#     display_name: Python 3 (ipykernel)\n#     language: python\n#     name: python3\n", "#   title: x\n", "no kernelspec"),
    ("header", "#     name: python3", "#     name: julia", "the kernel is 'julia'"),
    ("title", "# # Lab 90", "# Lab 90", "no title"),
    ("parameters", '# %% tags=["parameters"]', "# %%", "0 cells are tagged"),
    ("parameters", "seed = 0", "sead = 0", "seed is not set"),
    ("metadata", '"grade_id": "record", "locked": true,', '"grade_id": "record", "locked": True,', "no JSON"),
    ("metadata", '"solution": false, "task": false}\nfrom dataclasses', '"solution": false}\nfrom dataclasses', "lacks task"),
    ("kind", '"grade": false, "grade_id": "scaled"', '"grade": true, "points": 3, "grade_id": "scaled"', "marked by hand"),
    ("kind", '"grade_id": "scaled_test_empty", "locked": true', '"grade_id": "scaled_test_empty", "locked": false', "not locked"),
    ("kind", '"points": 10', '"points": 0', "no points"),
    ("grade id", '"grade_id": "record"', '"grade_id": "scaled"', "'scaled' stands at"),
    ("grade id", '"grade_id": "record"', '"grade_id": ""', "has none"),
    ("grade id", '"grade_id": "record"', '"grade_id": "a record"', "no cell id"),
    ("test name", '"grade_id": "scaled_test_empty"', '"grade_id": "empty_test"', "follows the task 'scaled'"),
    ("points", '"points": 50', '"points": 49', "they sum to 99 (scaled 50, Tally 49)"),
    ("marker", "    return secret_copy\n    ### END SOLUTION", "    return secret_copy", "without its END"),
    ("marker", "### BEGIN HIDDEN TESTS\nrng", "rng", "END HIDDEN TESTS without its BEGIN"),
    ("marker", "    secret_copy *= factor\n", "    ### BEGIN SOLUTION\n    secret_copy *= factor\n", "BEGIN SOLUTION inside the SOLUTION"),
    ("marker", "smoke = False", "### BEGIN SOLUTION\nsmoke = False\n### END SOLUTION", "outside a solution cell"),
    ("marker", "smoke = False", "### BEGIN HIDDEN TESTS\nsmoke = False\n### END HIDDEN TESTS", "outside a test cell"),
    ("stub", "def scaled(x, factor):\n", "### BEGIN SOLUTION\nzero = 0\n### END SOLUTION\ndef scaled(x, factor):\n", "outside a function"),
    ("syntax", "### BEGIN HIDDEN TESTS\nassert tally.see", "for _ in (1,):\n    ### BEGIN HIDDEN TESTS\n    assert tally.see", "without its hidden tests"),
    ("syntax", 'assert tally.see("b") == another', 'assert tally.see("b") == = another', "Tally_test"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "old", "new", "said"), STRUCTURE)
def test_rules_for_the_form(course: Course, rule: str, old: str, new: str, said: str) -> None:
    course.edit(course.source, old, new)
    assert [finding for finding in course.findings() if finding.rule == rule and said in str(finding)]


BESIDE: list[tuple[str, Callable[[Course], object], str]] = [
    ("wrong answers", lambda c: c.edit(c.wrong, '"name": "shared", "misconception"', '"name": "total", "misconception"'), "two wrong answers called total"),
    ("wrong answers", lambda c: c.edit(c.wrong, '"Tally", "name": "shared"', '"Telly", "name": "shared"'), "'Telly' is no graded task"),
    ("wrong answers", lambda c: c.edit(c.wrong, '"Tally", "name": "shared"', '"scaled", "name": "shared"'), "the task Tally has 2"),
    ("wrong answers", lambda c: c.edit(c.wrong, '"keeps": 10}\ndef scaled(x, factor):\n    x', '"keeps": 50}\ndef scaled(x, factor):\n    x'), "keeps 50 of 50"),
    ("wrong answers", lambda c: c.wrong.unlink(), "the task scaled has 0"),
    ("coach", lambda c: c.notes.unlink(), "the file is missing"),
    ("coach", lambda c: c.edit(c.notes, "[Tally]", "[Telly]"), "[Tally] is missing"),
    ("coach", lambda c: c.edit(c.notes, "answer = 1", "answer = 3"), "answer = 3"),
    ("coach", lambda c: c.edit(c.notes, 'because = "Nothing was seen."\n', ""), "has no because"),
    ("coach", lambda c: c.edit(c.notes, 'hints = ["Where do counts live?"]', "hints = []"), "has 0 hints"),
    ("coach", lambda c: c.edit(c.notes, "answer = 1", "answer = "), "not valid TOML"),
    ("files", lambda c: (c.source.parent / "helper.py").write_text("x = 1"), "neither the source"),
    ("leak", lambda c: c.edit(c.notes, "Allocate the result.", "np.array(x, dtype=np.float64,  copy=True)"), "coach's notes"),
    ("leak", lambda c: c.edit(c.source, "# The end.", "# self.counts[thing] = self.counts.get(thing, 0) + 1"), "solution of Tally"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "damage", "said"), BESIDE)
def test_rules_for_files_beside_the_notebook(
    course: Course, rule: str, damage: Callable[[Course], object], said: str
) -> None:
    damage(course)
    assert [finding for finding in course.findings() if finding.rule == rule and said in str(finding)]
