"""The rules for test cells, read off the source: one rule a file.

Tests will run in another process than the student's code and see plain data, so a test may not lean on the student's
objects, process or clock. Each rule is a function ``(View) -> objections``.
The rules are heuristics that would rather miss a case than accuse a sound test.
"""

Objection = tuple[int, str, str]
"""Line in the cell, problem, what to write instead."""
