"""Names of a test's inputs, which an author writes as comments and a student reads in feedback.

A comment ``# Input: an empty list`` in a test cell names the input of the lines below it, up to the next such comment.
If one of these lines fails, feedback says "It fails for an empty list." and nothing else of a hidden test.
"""

from __future__ import annotations

import re

_COMMENT = re.compile(r"\s*# Input: (.+?)\.?\s*$")


def input_at(source: str, line: int | None) -> str:
    """Return the name of the input that ``line`` (from 1) of a test cell uses; "" if the author gave none.

    Example:
        >>> source = "assert f([1]) == 1\\n# Input: an empty list\\nassert f([]) == 0"
        >>> input_at(source, 1), input_at(source, 3)
        ('', 'an empty list')
    """
    named = (_COMMENT.match(text) for text in reversed(source.split("\n")[: line or 0]))
    return next((match[1] for match in named if match), "")
