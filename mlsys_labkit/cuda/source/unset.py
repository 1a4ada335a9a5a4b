"""Local variables that are read and that no statement sets, such as ``float sum;`` before ``sum += x[i]``.

g++ misses such arrays, and reports correct code whose conditions it cannot follow. Here a variable is reported only if
each of its writes also reads it, so that its first value is certain to be left over from earlier work.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

from mlsys_labkit.cuda.source.functions import DeviceFunction, device_functions
from mlsys_labkit.cuda.source.source import Source

_NUMBERS = frozenset(["unsigned", "signed", "char", "short", "int", "long", "float", "double", "bool"])
_TYPE = re.compile(
    r"(?:u?int(?:8|16|32|64)|size|ptrdiff)_t|(?:float|double|u?int|u?short|u?char|u?long)[1-4]|(?:__)?half2?"
    r"|__(?:nv_)?(?:half|bfloat16)2?|(?:__)?nv_bfloat162?|uint|ushort|uchar|ulong"
)
_WORDS = frozenset(
    [
        "return",
        "else",
        "do",
        "case",
        "throw",
        "and",
        "or",
        "not",
        "if",
        "while",
        "for",
        "switch",
        "sizeof",
        "decltype",
        "co_return",
    ]
)
_BLOCKS = frozenset((")", "{", "}", ";", ":", "else", "do"))  # before a brace that opens a block, not a list of values
# Functions of CUDA that take plain values: an argument stays what it was.
_MATH = """
abs acos asin atan atan2 cbrt ceil copysign cos cosh erf exp exp2 exp10 expm1 fabs fdim floor fma fmax fmin fmod hypot
ldexp log log10 log1p log2 max min pow rcbrt rint round rsqrt sin sinh sqrt tan tanh trunc isnan isinf isfinite
"""
_BY_VALUE = re.compile(rf"__\w+|(?:{'|'.join(_MATH.split())})f?|u?(?:max|min)|h2?\w+|make_\w+|atomic\w+|printf|assert")


@dataclass(frozen=True)
class UnsetVariable:
    """A variable without a first value.

    Attributes:
        name: of the variable or array.
        function: the name of the kernel or device function around it.
        line: where it is first used, from 1.
        declared: the line of its declaration.
    """

    name: str
    function: str
    line: int
    declared: int


def unset_variables(source: Source, kernel: str | None = None) -> list[UnsetVariable]:
    """Return the local variables that are used and never set; only those that ``kernel`` or what it calls has.

    Left out are functions with an ``#if``, pointers, class types other than CUDA's vectors and half floats, variables
    whose address or reference is taken, and those that a macro names.

    Example:
        >>> unset_variables(Source("__global__ void k(float* x) { float sum; sum += *x; *x = sum; }"))
        [UnsetVariable(name='sum', function='k', line=1, declared=1)]
        >>> unset_variables(Source("__global__ void k(float* x) { float s; if (*x > 1) s = 1; *x = s; }"))
        []

    Reference: NVIDIA's compiler, warning 549: "variable is used before its value is set".
    """
    functions = list(device_functions(source))
    called = _called(source, functions, kernel) if kernel else {one.name for one in functions}
    reader = VariableReader(source)
    return [
        unset
        for function in functions
        if function.name in called and not function.has_conditions
        for unset in reader.unset_in(function)
    ]


def _called(source: Source, functions: list[DeviceFunction], kernel: str) -> set[str]:
    """Return the names of the kernel and of the functions that it calls, directly or through others."""
    words = {
        one.name: {token.text for token in source.code[one.opening : one.closing] if token.kind == "identifier"}
        for one in functions
    }
    waiting, found = [kernel.split("<")[0].split("::")[-1]], set[str]()
    while waiting:
        name = waiting.pop()
        if name in words and name not in found:
            found.add(name)
            waiting += words[name]
    return found


@dataclass(frozen=True)
class LocalVariable:
    """A local variable that is declared without a value."""

    name: str
    index: int  # in the code, of its name in the declaration
    dimensions: int
    end: int  # of its scope


class EscapedError(Exception):
    """A use that may set the variable in a way that its text does not show."""


class VariableReader:
    """A reader of the declarations and of the uses of local variables.

    Attributes:
        around: for each token of the code the index of the bracket that is open there.
        in_macros: the words in the texts of macros.
    """

    def __init__(self, source: Source) -> None:
        self.source, self.code = source, source.code
        self.around = _around(source)
        macros = (token.text for token in source.tokens if token.kind == "directive" and "define" in token.text)
        self.in_macros = {word for text in macros for word in re.findall(r"\w+", text)}

    def unset_in(self, function: DeviceFunction) -> Iterator[UnsetVariable]:
        """Yield the variables of a function that are read and that no statement sets."""
        for variable in self.variables_in(function):
            used = self._first_use(variable)
            if used is not None:
                line = self.code[variable.index].line
                yield UnsetVariable(variable.name, function.name, self.code[used].line, line)

    def variables_in(self, function: DeviceFunction) -> Iterator[LocalVariable]:
        """Yield the variables that a function declares without a value."""
        for begin in range(function.opening + 1, function.closing):
            if self.code[begin - 1].text in (";", "{", "}", ":") and self._is_block(self.around[begin]):
                yield from self._declared(begin)

    def _declared(self, index: int) -> Iterator[LocalVariable]:
        """Yield the variables without a value in the declaration that begins at ``index``, if one does."""
        code, closing = self.code, self.source.closing
        begin = index
        while code[index].text in _NUMBERS:
            index += 1
        if index == begin:
            if not _TYPE.fullmatch(code[index].text):
                return
            index += 1
        scope = closing[self.around[begin]]
        while True:
            name, dimensions = index, 0
            index += 1
            while code[index].text == "[":
                index, dimensions = closing[index] + 1, dimensions + 1
            if code[name].kind == "identifier" and code[index].text in (",", ";"):
                yield LocalVariable(code[name].text, name, dimensions, scope)
            while code[index].text not in (",", ";", "}") and index < scope:
                index = closing[index] + 1 if code[index].text in ("(", "[", "{") else index + 1
            if code[index].text != ",":
                return
            index += 1

    def _first_use(self, variable: LocalVariable) -> int | None:
        """Return the index of the first use of a variable that is read and never set."""
        if variable.name in self.in_macros:
            return None
        first, is_read = None, False
        for index in range(variable.index + 1, variable.end):
            if self.code[index].text != variable.name or self.code[index - 1].text in (".", "->", "::"):
                continue
            try:
                use = self.use(variable, index)
            except EscapedError:
                return None
            if use == "set":
                return None
            if use:
                first, is_read = (index if first is None else first), is_read or use == "read"
        return first if is_read else None

    def _is_block(self, opening: int) -> bool:
        return self.code[opening].text == "{" and self.code[opening - 1].text in _BLOCKS

    def use(self, variable: LocalVariable, index: int) -> str:
        """Return "read", "update" (reads and writes), "set" or "" for one mention. Raises EscapedError."""
        code, closing = self.code, self.source.closing
        before = code[index - 1]
        if before.kind == "identifier" and before.text not in _WORDS:
            raise EscapedError  # another variable of this name
        end, subscripts = index + 1, 0
        while code[end].text == "[":
            end, subscripts = closing[end] + 1, subscripts + 1
        if subscripts < variable.dimensions:
            raise EscapedError  # an array as a whole is its address
        while code[end].text == "." and code[end + 2].text != "(":
            end += 2
        if code[end].text in (".", "->"):
            raise EscapedError
        start = index
        while code[start - 1].text == "(" and code[end].text == ")" and not self._callee(start - 1):
            start, end = start - 1, end + 1
        if self._is_address(start) or self._is_reference(index):
            raise EscapedError
        after = self._operator(end)
        if after == "=":
            return "read" if self._reads_itself(variable, end + 1) else "set"
        if after in ("++", "--") or (after.endswith("=") and after not in ("==", "!=", "<=", ">=")):
            return "update"
        return self._passed(start, end)

    def _operator(self, index: int) -> str:
        """Return the operator at ``index``; the tokens are single characters."""
        code = self.code
        touching = takewhile(
            lambda at: at == index or (code[at].kind == "punctuation" and code[at - 1].end == code[at].start),
            range(index, len(code)),
        )
        text = "".join(code[at].text for _, at in zip(range(3), touching, strict=False))
        known = re.match(r"<<=|>>=|[-+*/%&|^=!<>]=|\+\+|--|=", text)
        return known[0] if known else ""

    def _is_address(self, index: int) -> bool:
        """Return whether a unary & stands before ``index``."""
        code = self.code
        if code[index - 1].text != "&":
            return False
        operand = index - 2 - (code[index - 2].text == "&")
        is_value = code[operand].kind in ("identifier", "number") and code[operand].text not in _WORDS
        return not is_value and code[operand].text not in (")", "]")

    def _is_reference(self, index: int) -> bool:
        """Return whether the statement around ``index`` declares a reference."""
        code, begin = self.code, index
        while code[begin - 1].text not in (";", "{", "}"):
            begin -= 1
        names = range(begin + 1, index - 1)
        return any(
            code[at].kind == "identifier" and code[at - 1].text == "&" and code[at + 1].text in ("=", "{", "(", ":")
            and self._is_type(at - 2) for at in names
        )  # fmt: skip

    def _is_type(self, index: int) -> bool:
        text = self.code[index].text
        return text in (">", "auto", "const", "&") or text in _NUMBERS or bool(_TYPE.fullmatch(text))

    def _reads_itself(self, variable: LocalVariable, begin: int) -> bool:
        """Return whether the value assigned from ``begin`` on contains the variable under no condition."""
        code, index, reads = self.code, begin, False
        opened = self.around[begin]
        while not (self.around[index] == opened and code[index].text in (";", ",")) and index < variable.end:
            if code[index].text in ("?", "|", "&", "=", "{"):
                return False
            reads |= code[index].text == variable.name and code[index - 1].text not in (".", "->", "::")
            index += 1
        return reads

    def _callee(self, opening: int) -> str:
        """Return the name before a parenthesis, "" where it only groups."""
        before = self.code[opening - 1]
        if before.text in (">", ")", "]") or before.kind in ("string", "character"):
            return before.text
        return before.text if before.kind == "identifier" and before.text != "return" else ""

    def _passed(self, start: int, end: int) -> str:
        """Return "read" for a value; raises EscapedError where a function may take a reference to it."""
        code, closing = self.code, self.source.closing
        opening = self.around[start]
        while code[opening].text == "(" and not self._callee(opening):
            start, end, opening = opening, closing[opening] + 1, self.around[opening]
        if code[opening].text == "{" and not self._is_block(opening):
            raise EscapedError
        callee = self._callee(opening) if code[opening].text == "(" else ""
        if callee in ("sizeof", "decltype"):
            return ""
        is_whole = code[start - 1].text in ("(", ",") and code[end].text in (")", ",")
        if callee and callee not in _WORDS and is_whole and not self._takes_values(callee, opening):
            raise EscapedError
        return "read"

    def _takes_values(self, callee: str, opening: int) -> bool:
        if callee == ">":
            return self._is_cast(opening)
        own = [
            at + 1
            for at, token in enumerate(self.code[:-1])
            if token.text == callee and self.code[at + 1].text == "(" and self._has_body(at + 1)
        ]
        if own:
            closing = self.source.closing
            return all(token.text != "&" for at in own for token in self.code[at : closing[at]])
        if callee in self.in_macros:
            return False
        return callee in _NUMBERS or bool(_TYPE.fullmatch(callee) or _BY_VALUE.fullmatch(callee))

    def _has_body(self, opening: int) -> bool:
        behind = self.source.closing[opening] + 1
        return behind < len(self.code) and self.code[behind].text in ("{", "const", "noexcept")

    def _is_cast(self, opening: int) -> bool:
        """Return whether ``static_cast<number>`` stands before the parenthesis."""
        at = opening - 2
        while self.code[at].text in _NUMBERS or _TYPE.fullmatch(self.code[at].text):
            at -= 1
        return self.code[at].text == "<" and self.code[at - 1].text == "static_cast"


def _around(source: Source) -> list[int]:
    """Return for each token of the code the index of the bracket that is open there."""
    found, opened = [], [0]
    for index, token in enumerate(source.code):
        if token.text in (")", "]", "}") and len(opened) > 1:
            opened.pop()
        found.append(opened[-1])
        if token.text in ("(", "[", "{"):
            opened.append(index)
    return found
