"""Reads of local variables that were declared without a value, where the value matters: in a condition or an index, and
in what is stored to an array of the kernel's.

The simulator looks at the value there, and ``check`` reports one that nothing has set. A copy to another variable is
left alone: correct kernels copy what they do not use, as in ``current = next`` in the last turn of a loop.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
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
    declared: int  # the index of its name in the declaration
    start: int
    end: int
    is_local_memory: bool  # an array of local memory, whose stores are counted


def local_read_edits(source: Source) -> Iterator[Edit]:
    """Yield edits that show each such read to the simulator.

    Example:
        >>> source = Source("__global__ void k(int* y, int n) { int x; if (n) x = 1; y[0] = x; }")
        >>> source.edited(local_read_edits(source))
        '__global__ void k(int* y, int n) { int x; LK_UNSET(x) if (n) x = 1; y[0] = LK_READ(x, "x", 1); }'
    """
    reads = local_reads(source)
    for read in reads:
        start, end = source.code[read.start].start, source.code[read.end - 1].end
        yield start, start, "LK_READ("
        yield end, end, f', "{read.name}", {source.code[read.declared].line})'
    for declared in sorted({read.declared for read in reads if not read.is_local_memory}):
        end = next(source.code[at].end for at in range(declared, len(source.code)) if source.code[at].text == ";")
        yield end, end, f" LK_UNSET({source.code[declared].text})"


def local_reads(source: Source) -> list[LocalRead]:
    """Return the reads of variables without a first value whose value decides what a kernel does or stores."""
    reader = VariableReader(source)
    in_local_memory = {index for index, _ in arrays_of_local_memory(source)}
    found: dict[int, LocalRead] = {}
    for function in device_functions(source):
        if function.has_conditions:
            continue
        context = _Context(source, reader, function, in_local_memory)
        for variable in reader.variables_in(function):
            if variable.name not in reader.in_macros and not _is_set_at_once(source, reader, variable):
                found |= {read.start: read for read in context.reads(variable)}
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
    def __init__(
        self, source: Source, reader: VariableReader, function: DeviceFunction, in_local_memory: Container[int]
    ) -> None:
        self._code, self._closing, self._around = source.code, source.closing, reader.around
        self._reader = reader
        self._pointers = set(_pointer_parameters(source, function))
        self._in_local_memory = in_local_memory

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
                yield LocalRead(variable.name, variable.index, index, end, variable.index in self._in_local_memory)

    def _matters(self, index: int) -> bool:
        """Return whether the value read at ``index`` decides what is executed, or what or where something is stored."""
        code, opening = self._code, self._around[index]
        while code[opening].text in ("(", "["):
            before = code[opening - 1]
            if code[opening].text == "[" or before.text in _CONDITIONS or before.text.startswith("atomic"):
                return not self._is_capture(opening)
            opening = self._around[opening]
        begin = index
        while code[begin - 1].text not in _ENDS or self._around[begin - 1] != opening:
            begin -= 1
            if begin <= opening + 1:
                break
        return self._is_store(begin, index, opening)

    def _is_capture(self, opening: int) -> bool:
        """Return whether a bracket begins a lambda."""
        before = self._code[opening - 1]
        return self._code[opening].text == "[" and before.kind != "identifier" and before.text not in ("]", ")")

    def _is_store(self, begin: int, index: int, opening: int) -> bool:
        """Return whether the statement from ``begin`` on assigns to memory behind a pointer of the kernel's."""
        code = self._code
        for at in range(begin + 1, index):
            if code[at].text == "=" and self._around[at] == opening and code[at + 1].text != "=":
                target = [token.text for token in code[begin:at]]
                break
        else:
            return False
        while target and target[0] in _CONDITIONS | {"else"}:  # before a statement without braces
            begin = self._closing[begin + 1] + 1 if target[0] in _CONDITIONS else begin + 1
            target = [token.text for token in code[begin:at]]
        if len(target) < 2:
            return False
        if target[0] == "*":
            return not self._pointers.isdisjoint(target)
        return target[0] in self._pointers and target[1] == "["


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
