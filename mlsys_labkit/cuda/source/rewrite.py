"""The text that g++ gets for a student's source: the same lines, with what only CUDA takes written for g++."""

from __future__ import annotations

from mlsys_labkit.cuda.source.alignment import aligned_struct_edits, alignment_edits
from mlsys_labkit.cuda.source.assembly import assembly_edits
from mlsys_labkit.cuda.source.braces import brace_edits
from mlsys_labkit.cuda.source.local_arrays import local_array_edits
from mlsys_labkit.cuda.source.local_reads import local_read_edits
from mlsys_labkit.cuda.source.source import Source
from mlsys_labkit.cuda.source.unroll import unroll_edits

_PASSES = (
    unroll_edits,
    alignment_edits,
    assembly_edits,
    brace_edits,
    aligned_struct_edits,
    local_array_edits,
    local_read_edits,
)


def rewrite(source: Source) -> str:
    """Return the source for g++. No line moves.

    Example:
        >>> rewrite(Source("#pragma unroll 4\\nfor (int i = 0; i < n; ++i) f(i);"))
        '#pragma GCC unroll 4\\nfor (int i = 0; i < n; ++i) f(i);'
    """
    return source.edited(edit for edits in _PASSES for edit in edits(source))
