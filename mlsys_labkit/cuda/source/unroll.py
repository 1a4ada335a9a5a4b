"""``#pragma unroll`` for g++, bounded: what nvcc unrolls in a second can keep g++ busy for minutes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from mlsys_labkit.cuda.source.source import Edit, Source
from mlsys_labkit.cuda.source.statements import statement_end
from mlsys_labkit.cuda.source.tokens import Token

BUDGET = 4096  # tokens that a loop may become with all loops inside it: an 8 x 8 tile of products is 1100
UNKNOWN_TRIPS = 16  # for a loop whose count depends on a template argument, or is known only at run time
IN_MACRO = 8  # for loops in a macro, whose place is not known
_HEAVY = {"mma_sync": 250, "load_matrix_sync": 150, "store_matrix_sync": 150, "fill_fragment": 50}

_PRAGMA = re.compile(r"\s*(?:\#|%:)\s*pragma\s+unroll\b(.*)", re.DOTALL)
_OPERATOR = re.compile(r'_Pragma\s*\(\s*"\s*unroll\b([^"]*)"\s*\)')
_CONSTANT = re.compile(
    r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+\(?(\d+)\)?[ \t]*(?://.*)?$"
    r"|\bconst(?:expr)?\s+(?:unsigned\s+|static\s+)*(?:int|unsigned|size_t|auto)\s+(\w+)\s*=\s*(\d+)\s*;",
    re.MULTILINE,
)
_COUNTED = re.compile(
    r"^ (?:const )?(?:unsigned |int |size_t |long |auto |short )*(\w+) = (\w+) ; \1 (<|< =|! =) (\w+) ; "
    r"(?:\1 \+ \+|\+ \+ \1|\1 \+ = (\w+)) $"
)


def unroll_edits(source: Source) -> Iterator[Edit]:
    """Yield an edit to ``#pragma GCC unroll`` for each pragma before a loop; g++ ignores the others."""
    constants = {name or other: int(value or number) for name, value, other, number in _CONSTANT.findall(source.text)}
    tokens, code = source.tokens, source.code
    place = {token.start: index for index, token in enumerate(code)}
    wanted: dict[int, int | None] = {}  # index of a loop's first token -> the factor asked for, None for all of it
    pragmas: list[tuple[int, int, str, int]] = []  # start, end, how to write it, the loop
    for number, token in enumerate(tokens):
        if token.kind == "directive":
            found = _PRAGMA.fullmatch(_joined(token.text))
            if found is None:
                yield from _in_macro(token)
                continue
            start, end, template = token.start, token.end, "#pragma GCC unroll {}" + _breaks(token.text)
            asked = found[1]
        elif token.text == "_Pragma":
            operator = _OPERATOR.match(source.text, token.start)
            if operator is None:
                continue
            start, end, template = token.start, operator.end(), '_Pragma("GCC unroll {}")' + _breaks(operator[0])
            asked = operator[1]
        else:
            continue
        loop = _loop_behind(tokens[number + 1 :], end, place, code)
        if loop is not None:
            wanted[loop] = _factor(asked, constants)
            pragmas.append((start, end, template, loop))
    factors: dict[int, int] = {}
    for loop in sorted(wanted, reverse=True):  # inner loops stand behind the loops around them
        trips = _trips(source, loop, constants)
        most = min(limit for limit in (wanted[loop], trips, None) if limit) if wanted[loop] or trips else UNKNOWN_TRIPS
        body = _weight(source, loop + 1, statement_end(source, loop), wanted, factors)
        factors[loop] = max(1, min(most, BUDGET // max(1, body), 65534))
    for start, end, template, loop in pragmas:
        yield start, end, template.format(factors[loop])


def _in_macro(token: Token) -> Iterator[Edit]:
    for found in _OPERATOR.finditer(token.text):
        asked = _factor(found[1], {}) or IN_MACRO
        text = f'_Pragma("GCC unroll {max(1, min(asked, IN_MACRO))}")' + _breaks(found[0])
        yield token.start + found.start(), token.start + found.end(), text


def _joined(text: str) -> str:
    """Return the text without the line breaks that a backslash takes away."""
    return re.sub(r"\\[ \t\r]*\n", " ", text)


def _breaks(text: str) -> str:
    return "\\\n" * text.count("\n")


def _loop_behind(rest: Sequence[Token], end: int, place: Mapping[int, int], code: Sequence[Token]) -> int | None:
    for token in rest:
        if token.start >= end and token.start in place:
            index = place[token.start]
            return index if code[index].text in ("for", "while", "do") else None
        if token.kind == "directive" and _PRAGMA.fullmatch(_joined(token.text)):
            return None  # the later one counts
    return None


def _factor(text: str, constants: Mapping[str, int]) -> int | None:
    """Return the factor that a pragma asks for; None when it asks for everything, or for an expression."""
    word = re.sub(r"//.*|/\*.*?\*/|[()\s\\]", "", text, flags=re.DOTALL)
    return int(word) if word.isdecimal() else constants.get(word)


def _trips(source: Source, loop: int, constants: Mapping[str, int]) -> int | None:
    """Return the number of iterations of a counted loop, if its header has all numbers."""
    code = source.code
    if code[loop].text != "for" or loop + 1 == len(code):
        return None
    header = code[loop + 2 : source.closing[loop + 1]]
    found = _COUNTED.match(" " + " ".join(token.text for token in header) + " ")
    if found is None:
        return None
    first, last, step = (_number(text, constants) for text in (found[2], found[4], found[5] or "1"))
    if first is None or last is None or not step:
        return None
    return max(1, -(-(last - first + (found[3] == "< =")) // step))


def _number(text: str, constants: Mapping[str, int]) -> int | None:
    return int(text) if text.isdecimal() else constants.get(text)


def _weight(source: Source, begin: int, end: int, wanted: Mapping[int, int | None], factors: Mapping[int, int]) -> int:
    """Return the number of tokens from ``begin`` to ``end`` after the loops among them are unrolled."""
    total, index = 0, begin
    while index < end:
        if index in wanted:
            after = statement_end(source, index)
            total += factors[index] * _weight(source, index + 1, after, wanted, factors)
            index = after
        else:
            total += _HEAVY.get(source.code[index].text, 1)
            index += 1
    return total
