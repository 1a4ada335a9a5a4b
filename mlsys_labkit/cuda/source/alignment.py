"""``alignas`` behind ``__shared__``: nvcc takes it anywhere among a declaration's first words, g++ only in front."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mlsys_labkit.cuda.source.tokens import Token, code_tokens, matching
from mlsys_labkit.cuda.source.unroll import Edit

__all__ = ["alignment_edits"]

_SPECIFIERS = frozenset(("__shared__", "__device__", "__constant__", "extern", "static", "const", "volatile"))


def alignment_edits(source: str, tokens: Sequence[Token]) -> Iterator[Edit]:
    """Each such ``alignas(...)`` moved in front of the words before it.

    Example:
        >>> from mlsys_labkit.cuda.source.rewrite import rewrite
        >>> rewrite("extern __shared__ alignas(16) float tile[];")
        'alignas(16) extern __shared__  float tile[];'
    """
    code = code_tokens(tokens)
    for index, token in enumerate(code[:-1]):
        begin = index
        while begin > 0 and code[begin - 1].text in _SPECIFIERS:
            begin -= 1
        if token.text != "alignas" or begin == index or code[index + 1].text != "(":
            continue
        end = code[matching(code, index + 1)].end
        text = source[token.start : end]
        yield code[begin].start, code[begin].start, " ".join(text.split()) + " "
        yield token.start, end, "\n" * text.count("\n")
