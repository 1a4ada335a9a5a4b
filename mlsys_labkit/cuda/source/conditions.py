"""The variants of a statement that has ``#if`` inside it."""

from __future__ import annotations

import re
from itertools import pairwise

from mlsys_labkit.cuda.source.tokens import tokenize

_NAME = re.compile(r"#[ \t]*(\w+)")


def conditional_variants(text: str) -> list[tuple[str, str]]:
    """Return each branch's directive and the statement that it leaves; none unless all is one ``#if`` to ``#endif``.

    Without ``#else`` in the text, the last variant has an ``#else`` and no branch.

    Example:
        >>> conditional_variants('f(a,\\n#ifdef B\\n  b\\n#else\\n  c\\n#endif\\n)')
        [('#ifdef B', 'f(a,\\n\\n  b\\n\\n)'), ('#else', 'f(a,\\n\\n  c\\n\\n)')]
    """
    marks = [token for token in tokenize(text) if token.kind == "directive"]
    names = [found[1] if (found := _NAME.match(mark.text)) else "" for mark in marks]
    middle = names[1:-1]
    if len(marks) < 2 or names[0] not in ("if", "ifdef", "ifndef") or names[-1] != "endif":
        return []
    if any(name != "elif" for name in middle[:-1]) or (middle and middle[-1] not in ("elif", "else")):
        return []
    before, after = text[: marks[0].start], text[marks[-1].end :]
    branches = [
        (mark.text.strip(), f"{before}{text[mark.end : following.start]}{after}") for mark, following in pairwise(marks)
    ]
    return branches if "else" in middle else [*branches, ("#else", before + after)]
