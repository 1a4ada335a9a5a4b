"""What g++ gets to see of a student's source: the same lines, with what is CUDA's alone made g++'s."""

from __future__ import annotations

from mlsys_labkit.cuda.source.aligned_structs import aligned_struct_edits
from mlsys_labkit.cuda.source.alignment import alignment_edits
from mlsys_labkit.cuda.source.braces import brace_edits
from mlsys_labkit.cuda.source.special_registers import register_edits
from mlsys_labkit.cuda.source.tokens import tokenize
from mlsys_labkit.cuda.source.unroll import unroll_edits

__all__ = ["rewrite"]


def rewrite(source: str) -> str:
    """The source for g++. No line moves.

    Example:
        >>> rewrite("#pragma unroll 4\\nfor (int i = 0; i < n; ++i) f(i);")
        '#pragma GCC unroll 4\\nfor (int i = 0; i < n; ++i) f(i);'
    """
    tokens = tokenize(source)
    passes = (unroll_edits, alignment_edits, register_edits, brace_edits, aligned_struct_edits)
    edits = [edit for one in passes for edit in one(source, tokens)]
    for start, end, text in sorted(edits, reverse=True):
        source = source[:start] + text + source[end:]
    return source
