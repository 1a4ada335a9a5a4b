"""``alignas``: moved to where g++ takes it, and a struct that asks for it kept whole when it is copied."""

from __future__ import annotations

from collections.abc import Iterator

from mlsys_labkit.cuda.source.source import Edit, Source

_ALIGNMENTS = ("alignas", "__align__", "__attribute__")
_SPECIFIERS = frozenset(("__shared__", "__device__", "__constant__", "extern", "static", "const", "volatile"))


def alignment_edits(source: Source) -> Iterator[Edit]:
    """Yield edits that move ``alignas`` in front of the words before it; nvcc takes it behind ``__shared__``, too.

    Example:
        >>> source = Source("extern __shared__ alignas(16) float tile[];")
        >>> source.edited(alignment_edits(source))
        'alignas(16) extern __shared__  float tile[];'
    """
    code = source.code
    for index, token in enumerate(code[:-1]):
        begin = index
        while begin > 0 and code[begin - 1].text in _SPECIFIERS:
            begin -= 1
        if token.text != "alignas" or begin == index or code[index + 1].text != "(":
            continue
        end = code[source.closing[index + 1]].end
        text = source.text[token.start : end]
        yield code[begin].start, code[begin].start, " ".join(text.split()) + " "
        yield token.start, end, "\n" * text.count("\n")


def aligned_struct_edits(source: Source) -> Iterator[Edit]:
    """Yield edits that add a member without a size to each aligned struct, which keeps g++ from splitting its copies.

    Example:
        >>> source = Source("struct __align__(16) Body { float x, y, z, mass; };")
        >>> source.edited(aligned_struct_edits(source))
        'struct __align__(16) Body { float x, y, z, mass; LK_WHOLE};'
    """
    code = source.code
    for index, token in enumerate(code[:-2]):
        asks = code[index + 1].text in _ALIGNMENTS and code[index + 2].text == "("
        if token.text not in ("struct", "class") or not asks:
            continue
        opening = source.closing[index + 2] + 1
        while opening < len(code) and code[opening].text not in ("{", ";", "(", ")", "="):
            opening += 1
        if opening < len(code) and code[opening].text == "{":
            end = code[source.closing[opening]].start
            yield end, end, "LK_WHOLE"
