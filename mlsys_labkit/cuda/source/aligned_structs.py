"""``struct alignas(16) Body { float x, y, z, mass; }``: read and written as a whole, as nvcc does and g++ does not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mlsys_labkit.cuda.source.tokens import Token, code_tokens, matching
from mlsys_labkit.cuda.source.unroll import Edit

__all__ = ["aligned_struct_edits"]

_ALIGNMENTS = ("alignas", "__align__", "__attribute__")


def aligned_struct_edits(source: str, tokens: Sequence[Token]) -> Iterator[Edit]:
    """A member without a size at the end of each struct that asks for an alignment: it keeps g++ from splitting copies.

    Example:
        >>> from mlsys_labkit.cuda.source.rewrite import rewrite
        >>> rewrite("struct __align__(16) Body { float x, y, z, mass; };")
        'struct __align__(16) Body { float x, y, z, mass; LK_WHOLE};'
    """
    code = code_tokens(tokens)
    for index, token in enumerate(code[:-2]):
        if (
            token.text not in ("struct", "class")
            or code[index + 1].text not in _ALIGNMENTS
            or code[index + 2].text != "("
        ):
            continue
        opening = matching(code, index + 2) + 1
        while opening < len(code) and code[opening].text not in ("{", ";", "(", ")", "="):
            opening += 1
        if opening < len(code) and code[opening].text == "{":
            closing = code[matching(code, opening)]
            yield closing.start, closing.start, "LK_WHOLE"
