"""What g++ gets to see of a student's source: the same lines, with CUDA's own pragmas and shared arrays made C++."""

from __future__ import annotations

from mlsys_labkit.cuda.source.shared import SYMBOL, shared_edits
from mlsys_labkit.cuda.source.tokens import tokenize
from mlsys_labkit.cuda.source.unroll import unroll_edits

__all__ = ["rewrite"]


def rewrite(source: str) -> tuple[str, bool]:
    """The source for g++, and whether it uses dynamic shared memory. No line moves.

    Example:
        >>> rewrite("#pragma unroll 4\\nfor (int i = 0; i < n; ++i) f(i);")
        ('#pragma GCC unroll 4\\nfor (int i = 0; i < n; ++i) f(i);', False)
    """
    tokens = tokenize(source)
    edits = [*shared_edits(tokens), *unroll_edits(source, tokens)]
    for start, end, text in sorted(edits, reverse=True):
        source = source[:start] + text + source[end:]
    return source, any(SYMBOL in text for _, _, text in edits)
