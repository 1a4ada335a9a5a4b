"""Local variables that are declared without a value, and the places where their values matter.

They matter in a condition, in an index, and in what is stored to an array of the kernel's or added to one. The
simulator looks at the value there, and ``check`` reports one that nothing has set. A copy to another variable is left
alone: correct kernels copy what they do not use, as in ``current = next`` in the last turn of a loop.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from mlsys_labkit.cuda.source.functions import DeviceFunction, device_functions
from mlsys_labkit.cuda.source.local_arrays import arrays_of_local_memory
from mlsys_labkit.cuda.source.source import Edit, Source
from mlsys_labkit.cuda.source.unset import EscapedError, LocalVariable, VariableReader

_CONDITIONS = frozenset(("if", "while", "for", "switch"))
_ENDS = frozenset((";", "{", "}"))


@dataclass(frozen=True)
class LocalRead:
    """A read of a local variable: its tokens in ``Source.code``, from ``start`` to before ``end``."""

    name: str
    declared: int  # line
    start: int
    end: int
    in_array: bool


def local_read_edits(source: Source) -> Iterator[Edit]:
    """Yield edits that mark such variables for the simulator, and show it their values and what is stored.

    Example:
        >>> source = Source("__global__ void k(int* y, int n) { int x; if (n) x = 1; y[0] = x; }")
        >>> source.edited(local_read_edits(source)).partition("{ ")[2]
        'int x; LK_UNSET(x, 1) if (n) x = 1; y[0] = LK_STORED(LK_READ(0, "x", 1, x)); }'
    """
    code, reader = source.code, VariableReader(source)
    texts = [token.text for token in code]
    if any(texts.count(opening) != texts.count(closing) for opening, closing in ("()", "[]", "{}")):
        return  # g++ will say what is missing
    variables = unset_on_a_way(source, reader)
    if not variables:
        return
    in_local_memory = {index for index, _ in arrays_of_local_memory(source)}
    for one in (each for found in variables.values() for each in found if each.index not in in_local_memory):
        end = next(at for at in range(one.index, len(code)) if code[at].text == ";")
        if all(token.text != one.name for token in code[one.index + 1 : end]):  # float s, c = of(&s);
            yield code[end].end, code[end].end, f" LK_UNSET({one.name}, {code[one.index].line})"
    # One edit for each place: the value that is stored is around the variable that is read.
    before, behind = defaultdict[int, str](str), defaultdict[int, str](str)
    for read in local_reads(source):
        before[code[read.start].start] = f'LK_READ({int(read.in_array)}, "{read.name}", {read.declared}, '
        behind[code[read.end - 1].end] = ")"
    for function in device_functions(source):
        for start, last in () if function.has_conditions else _Context(source, reader, function).stored_values():
            before[code[start].start] = f"LK_STORED({before[code[start].start]}"
            behind[code[last].end] += ")"
    yield from ((at, at, text) for places in (before, behind) for at, text in places.items())


def unset_on_a_way(source: Source, reader: VariableReader) -> dict[DeviceFunction, list[LocalVariable]]:
    """Return for each function the variables without a first value that its next statement does not set."""
    found = {}
    for function in device_functions(source):
        if not function.has_conditions:
            known = (one for one in reader.variables_in(function) if one.name not in reader.in_macros)
            found[function] = [one for one in known if not _is_set_at_once(source, reader, one)]
    return {function: variables for function, variables in found.items() if variables}


def local_reads(source: Source) -> list[LocalRead]:
    """Return the reads of variables without a first value whose value decides what a kernel does or stores."""
    reader = VariableReader(source)
    found: dict[int, LocalRead] = {}
    for function, variables in unset_on_a_way(source, reader).items():
        context = _Context(source, reader, function)
        found |= {read.start: read for variable in variables for read in context.reads(variable)}
    return [found[start] for start in sorted(found)]


def _is_set_at_once(source: Source, reader: VariableReader, variable: LocalVariable) -> bool:
    """Return whether the first statement that names a variable gives it a value under no condition."""
    code = source.code
    names = range(variable.index + 1, variable.end)
    first = next((index for index in names if code[index].text == variable.name), None)
    if first is None:
        return True
    same_block = reader.around[first] == reader.around[variable.index] and code[first - 1].text in _ENDS
    try:
        plain = same_block and not variable.dimensions and code[first + 1].text == "="
        return plain and reader.use(variable, first) == "set"
    except EscapedError:
        return False


class _Context:
    def __init__(self, source: Source, reader: VariableReader, function: DeviceFunction) -> None:
        self._code, self._closing, self._around = source.code, source.closing, reader.around
        self._reader, self._function = reader, function
        self._pointers = set(_pointer_parameters(source, function))

    def stored_values(self) -> Iterator[tuple[int, int]]:
        """Yield the first and the last token of each value that is assigned or added to memory behind a pointer."""
        code = self._code
        for at in range(self._function.opening + 1, self._function.closing):
            opening = self._around[at]
            if code[at].text == "=" and code[at + 1].text != "=" and code[at - 1].text not in ("=", "!", "<", ">"):
                begin = self._statement(at, opening)
                value = self._value(at + 1, opening) if self._is_memory(begin, at) else None
            elif code[at].text == "atomicAdd" and code[at + 1].text == "(":
                comma = next((i for i in range(at, self._closing[at + 1]) if self._is_comma(i, at + 1)), at)
                value = self._value(comma + 1, at + 1) if comma > at else None
            else:
                continue
            if value:
                yield value

    def _is_comma(self, index: int, opening: int) -> bool:
        return self._code[index].text == "," and self._around[index] == opening

    def _value(self, first: int, opening: int) -> tuple[int, int] | None:
        """Return the tokens of the expression that begins at ``first``; None for a constant, a list or a lambda."""
        code, last = self._code, first
        if code[first].text in (")", "]", "}", ",", ";"):
            return None  # the value is missing: g++ will say so
        while True:
            last = self._closing[last] if code[last].text in ("(", "[", "{") else last
            behind = last + 1
            if behind == self._closing[opening] or (
                code[behind].text in (",", ";") and self._around[behind] == opening
            ):
                break
            last = behind
        brackets = [at for at in range(first, last + 1) if code[at].text in ("{", "[")]
        odd = any(code[at].text == "{" or self._is_capture(at) for at in brackets)
        names = {code[at].text for at in range(first, last + 1) if code[at].kind == "identifier"} - {"NULL", "nullptr"}
        return (first, last) if names and not odd else None

    def reads(self, variable: LocalVariable) -> Iterator[LocalRead]:
        code = self._code
        for index in range(variable.index + 1, variable.end):
            if code[index].text != variable.name or code[index - 1].text in (".", "->", "::"):
                continue
            try:
                is_read = self._reader.use(variable, index) == "read"
            except EscapedError:
                continue
            end = index + 1
            while code[end].text == "[":
                end = self._closing[end] + 1
            while code[end].text == "." and code[end + 2].text != "(":
                end += 2
            if is_read and self._matters(index):
                yield LocalRead(variable.name, code[variable.index].line, index, end, variable.dimensions > 0)

    def _matters(self, index: int) -> bool:
        """Return whether the value read at ``index`` decides what is executed, or what or where something is stored."""
        code, opening = self._code, self._around[index]
        while code[opening].text in ("(", "["):
            before = code[opening - 1]
            if code[opening].text == "[" or before.text in _CONDITIONS or before.text.startswith("atomic"):
                return not self._is_capture(opening)
            opening = self._around[opening]
        begin = self._statement(index, opening)
        signs = (at for at in range(begin + 1, index) if code[at].text == "=" and self._around[at] == opening)
        return any(code[at + 1].text != "=" and self._is_memory(begin, at) for at in signs)

    def _statement(self, index: int, opening: int) -> int:
        """Return the first token of the statement around ``index``, in the block that begins at ``opening``."""
        begin = index
        while begin > opening + 1 and not (self._code[begin - 1].text in _ENDS and self._around[begin - 1] == opening):
            begin -= 1
        while begin < index and self._code[begin].text in _CONDITIONS | {"else"}:  # before a statement without braces
            begin = self._closing[begin + 1] + 1 if self._code[begin].text in _CONDITIONS else begin + 1
        return begin

    def _is_memory(self, begin: int, end: int) -> bool:
        """Return whether tokens name memory behind a pointer of the kernel's: p[...] or *(p + ...)."""
        target = [token.text for token in self._code[begin:end]]
        if len(target) < 2:
            return False
        if target[0] == "*":
            return not self._pointers.isdisjoint(target)
        return target[0] in self._pointers and target[1] == "["

    def _is_capture(self, opening: int) -> bool:
        """Return whether a bracket begins a lambda."""
        before = self._code[opening - 1]
        return self._code[opening].text == "[" and before.kind != "identifier" and before.text not in ("]", ")")


def _pointer_parameters(source: Source, function: DeviceFunction) -> Iterator[str]:
    """Yield the names of a function's parameters that are pointers or arrays."""
    code = source.code
    closing = function.opening - 1
    while code[closing].text != ")":
        closing -= 1
    opening = source.opening[closing]
    text = " ".join(token.text for token in code[opening + 1 : closing])
    for parameter in text.split(","):
        if "*" in parameter or "[" in parameter:
            names = re.findall(r"[A-Za-z_]\w*", parameter.split("=")[0].split("[")[0])
            yield from names[-1:]
