"""``extern __shared__``: every such array of a source begins where the launch's dynamic shared memory begins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mlsys_labkit.cuda.source.tokens import Token, code_tokens, matching

__all__ = ["SYMBOL", "shared_edits"]

SYMBOL = "lk_dynamic_shared"  # defined behind the source


def shared_edits(tokens: Sequence[Token]) -> Iterator[tuple[int, int, str]]:
    """Insertions that bind each of them to one symbol by an asm label, whatever its name, type and scope.

    Example:
        >>> from mlsys_labkit.cuda.source.tokens import tokenize
        >>> [start for start, _, _ in shared_edits(tokenize("extern __shared__ float4 a[], b[][4];"))]
        [27, 34]
    """
    code = code_tokens(tokens)
    for index, token in enumerate(code):
        if token.text == "__shared__" and "extern" in _statement_words(code, index):
            for end in _declarators(code, index):
                yield end, end, f' __asm__("{SYMBOL}") __attribute__((__visibility__("hidden")))'


def _statement_words(code: Sequence[Token], index: int) -> set[str]:
    """The declaration's specifiers, on both sides of ``__shared__``."""
    begin = index
    while begin > 0 and code[begin - 1].text not in (";", "{", "}", ")"):
        begin -= 1
    end = index
    while end < len(code) and code[end].text not in (";", "[", "{", "}"):
        end += 1
    return {token.text for token in code[begin:end]}


def _declarators(code: Sequence[Token], index: int) -> Iterator[int]:
    """Where each declarator ends: behind its last bracket."""
    angles = 0
    while index < len(code) and code[index].text not in (";", "{", "}"):
        text = code[index].text
        if text == "(":
            index = matching(code, index)
        elif text in ("<", ">"):
            angles += 1 if text == "<" else -1
        elif text == "[" and not angles:
            if code[index - 1].text == "[" or (index + 1 < len(code) and code[index + 1].text == "["):
                index = matching(code, index)  # an attribute
            else:
                while index + 1 < len(code) and code[index].text == "[":
                    index = matching(code, index) + 1
                index -= 1
                yield code[index].end
        index += 1
