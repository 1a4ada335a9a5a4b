"""Variables of the host that a kernel reads or writes, which g++ would let pass and nvcc refuses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from mlsys_labkit.cuda.errors import Diagnostic
from mlsys_labkit.cuda.source.functions import device_functions
from mlsys_labkit.cuda.source.source import Source
from mlsys_labkit.cuda.source.tokens import Token

_TYPE = re.compile(
    r"(?:signed|unsigned|char|short|int|long|float|double|bool|size_t|u?int(?:8|16|32|64)_t|(?:int|float|double)[234])"
)
_BEFORE_A_TYPE = frozenset(["static", "volatile", "extern", "register"])
_OPERATORS = frozenset(["return", "else", "do", "case", "goto", "throw", "new", "delete", "and", "or", "not"])


def host_variables(source: Source, file: str = "", others: Sequence[Source] = ()) -> list[Diagnostic]:
    """Return the first use of each variable of the host in a kernel or a ``__device__`` function.

    These are variables of a plain type outside functions and classes that are neither constant nor marked, such as
    ``__device__``. Nothing is reported for a body with an ``#if``, for a ``__host__ __device__`` function, for a member
    of a class, or where the function declares the name itself. ``others`` are the headers of the program.

    Example:
        >>> [str(one) for one in host_variables(Source("int n;  __global__ void k(int* p) { *p = n; }"))][0][:52]
        'line 1: identifier "n" is undefined in device code: '

    Reference: CUDA C++ programming guide, "Variable memory space specifiers".
    """
    host = _host_variables([source, *others])
    if not host:
        return []
    code, top = source.code, set(_top_level(source))
    found = []
    for function in device_functions(source):
        head = function.opening
        while head and code[head - 1].text not in (";", "{", "}"):
            head -= 1
        is_member = head not in top or any(code[at].text == "::" for at in range(head, _end_of_name(code, head)))
        if function.has_conditions or function.is_hosts_too or is_member:
            continue
        own = {token.text for token in code[head : function.opening]}
        own |= _declared(code, function.opening + 1, function.closing)
        told: set[str] = set()
        for index in range(function.opening + 1, function.closing):
            name = code[index].text
            if name in host and name not in own and name not in told and _is_use(code, index):
                told.add(name)
                line = code[index].line
                what = (
                    f'identifier "{name}" is undefined in device code: it is a variable of the host; '
                    "pass it to the kernel, or declare it __device__ or __constant__"
                )
                found.append(Diagnostic(line, 0, what, source.lines[line - 1].strip(), file))
    return found


def _host_variables(sources: Sequence[Source]) -> frozenset[str]:
    host: set[str] = set()
    other: set[str] = set()
    for source in sources:
        other |= source.macros
        code, statement = source.code, list[Token]()
        for index in _top_level(source):
            if code[index].text in (";", "{", "}"):
                (host if _is_plain(statement) else other).update(_declarators(statement))
                statement = []
            else:
                statement.append(code[index])
    return frozenset(host - other)


def _top_level(source: Source) -> Iterator[int]:
    """Yield the indices of tokens outside functions, classes and initialisers; a namespace is no class."""
    code, index, first = source.code, 0, 0
    while index < len(code):
        yield index
        text = code[index].text
        if text == "{":
            words = {token.text for token in code[first:index]}
            if not (words & {"namespace", "extern"} and "(" not in words and "=" not in words):
                index = source.closing[index]
                if "=" in words:
                    index += 1
                    continue
        if text in (";", "{", "}"):
            first = index + 1
        index += 1


def _is_plain(statement: Sequence[Token]) -> bool:
    """Return whether the declaration begins with a plain type, behind static and the like, and is no function."""
    words = [token.text for token in statement]
    if any(word.startswith("__") for word in words):
        return False  # __device__ and the like may stand anywhere
    while words and words[0] in _BEFORE_A_TYPE:
        words.pop(0)
    before_value = words[: words.index("=")] if "=" in words else words
    return bool(words) and bool(_TYPE.fullmatch(words[0])) and not {"(", "const", "operator", "::"} & set(before_value)


def _declarators(statement: Sequence[Token]) -> Iterator[str]:
    """Yield the names that a declaration introduces; values in braces and parentheses are passed over."""
    depth, has_value = 0, False
    for index, token in enumerate(statement):
        depth += token.text in ("(", "[", "{")
        depth -= token.text in (")", "]", "}")
        if token.text == "=" and depth == 0:
            has_value = True
        elif token.text == "," and depth == 0:
            has_value = False
        elif token.kind == "identifier" and not has_value and depth == 0 and index:
            behind = statement[index + 1].text if index + 1 < len(statement) else ";"
            if behind in (";", "=", ",", "[", ":"):
                yield token.text


def _declared(code: Sequence[Token], begin: int, end: int) -> set[str]:
    """Return the names that statements of a body declare, or may declare."""
    names: set[str] = set()
    for index in range(begin, end):
        if code[index].text == "auto" and "[" in (code[index + 1].text, code[index + 2].text):
            names.update(token.text for token in code[index : index + 20])  # a structured binding
    first = begin
    for index in range(begin, end + 1):
        if code[index].text not in (";", "{", "}", "(", ")", "["):
            continue
        statement = [*code[first:index]]
        words = [token for token in statement if token.text not in ("const", "static", "*", "&")]
        declares = len(words) > 1 and words[0].kind == "identifier" and words[0].text not in _OPERATORS
        if declares and (words[1].kind == "identifier" or words[1].text in ("<", "::")):
            names.update(_declarators(statement))
            names.update(token.text for token in statement[1:] if code[index].text in ("[", "("))
        first = index + 1
    return names


def _end_of_name(code: Sequence[Token], head: int) -> int:
    index = head
    while code[index].text not in ("(", "{", ";"):
        index += 1
    return index


def _is_use(code: Sequence[Token], index: int) -> bool:
    before, behind = code[index - 1].text, code[index + 1].text
    if before == "(" and code[index - 2].text in ("sizeof", "decltype", "alignof"):
        return False
    return before not in (".", "->", "::", "goto") and behind not in ("(", "::", ":")
