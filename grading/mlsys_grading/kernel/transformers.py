"""IPython's transformation of a cell's source, without tokenizing cells that have no syntax of IPython's."""

from __future__ import annotations

import re

from IPython.core.inputtransformer2 import TransformerManager

# A line that begins with an escape, has a question mark, or assigns a command. Some lines of plain Python match, too.
_MAY_BE_SPECIAL = re.compile(r"\s*[%!?,;/]|.*\?|.*=\s*[%!]", re.DOTALL)
_AWAITS = re.compile("await|async")
_PLAIN = TransformerManager().token_transformers


class QuickTransformers(TransformerManager):
    """IPython's transformers. They tokenize a cell in Python, which takes longer than most cells run."""

    def do_token_transforms(self, lines: list[str]) -> list[str]:
        """Transform what only tokens tell from strings and comments, in cells that may have it."""
        if self.token_transformers == _PLAIN and not any(map(_MAY_BE_SPECIAL.match, lines)):
            return lines
        transformed: list[str] = super().do_token_transforms(lines)  # type: ignore[no-untyped-call]
        return transformed


def may_await(source: str) -> bool:
    """Return False if Python code contains no keyword by which it could await at its top level.

    Example:
        >>> may_await("await asyncio.sleep(0)"), may_await("x = 1")
        (True, False)
    """
    return bool(_AWAITS.search(source))
