"""Local arrays that a GPU keeps in local memory: those with an index that is known only at run time.

nvcc puts an array in registers if every index is a constant once loops are unrolled. Registers have no addresses, so
that any other array lies in local memory, and its accesses are loads and stores. Only arrays whose index surely depends
on the thread, on an argument of the kernel or on data are found here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mlsys_labkit.cuda.source.functions import DeviceFunction, device_functions
from mlsys_labkit.cuda.source.source import Edit, Source
from mlsys_labkit.cuda.source.statements import statement_end

_NOT_LOCAL = frozenset(["__shared__", "extern", "static", "const", "constexpr", "volatile", "typedef", "using"])
_STATEMENTS = frozenset(["else", "do", "case", "return", "goto", "delete", "new"])
_ALIGNED = frozenset(("alignas", "__align__"))
_OF_THREAD = frozenset(("threadIdx", "blockIdx"))


@dataclass(frozen=True)
class LocalArray:
    """A local array, by the indices of its tokens in the code."""

    name: str
    index: int  # of its name in the code
    end: int  # of its declaration: the semicolon
    scope: int
    is_set: bool


def local_array_edits(source: Source) -> Iterator[Edit]:
    """Yield edits that name each array of local memory to the simulator, behind its declaration.

    Example:
        >>> source = Source("__global__ void k(int* x, int n) { int bins[4]; bins[n] = 1; x[0] = bins[0]; }")
        >>> source.edited(local_array_edits(source))
        '__global__ void k(int* x, int n) { int bins[4]; LK_LOCAL(bins, 0) bins[n] = 1; x[0] = bins[0]; }'

    Reference: NVIDIA, "CUDA C++ Programming Guide", "Device Memory Accesses", local memory.
    """
    for _, array in arrays_of_local_memory(source):
        end = source.code[array.end].end
        yield end, end, f" LK_LOCAL({array.name}, {int(array.is_set)})"


def arrays_of_local_memory(source: Source) -> Iterator[tuple[int, LocalArray]]:
    """Yield each such array with the index of its name in the code."""
    for function in device_functions(source):
        arrays = list(_arrays(source, function))
        if not arrays:
            continue
        names = _Names(source, function)
        yield from ((array.index, array) for array in arrays if names.index_at_run_time(array))


def _arrays(source: Source, function: DeviceFunction) -> Iterator[LocalArray]:
    code, closing = source.code, source.closing
    braces = [function.opening]
    begin = index = function.opening + 1
    while index < function.closing:
        text = code[index].text
        if text == "(":
            index = closing[index]
        elif text in (";", "{", "}"):
            if text == ";" and code[begin - 1].text in (";", "{", "}"):
                yield from _declared(source, begin, index, closing[braces[-1]])
            elif text == "{":
                braces.append(index)
            elif text == "}" and len(braces) > 1:
                braces.pop()
            if text == ";" or not _is_list(source, index):
                begin = index + 1
        index += 1


def _is_list(source: Source, brace: int) -> bool:
    """Return whether a brace belongs to a list of values, and so to a declaration."""
    opening = brace if source.code[brace].text == "{" else source.opening.get(brace, brace)
    before = source.code[opening - 1].text
    return _is_list(source, opening - 1) if before == "{" else before in ("=", "]", ",", "(")


def _declared(source: Source, begin: int, end: int, scope: int) -> Iterator[LocalArray]:
    """Yield the arrays of one declaration, ``float a[4], b[2][2] = {}``."""
    code, closing = source.code, source.closing
    words = [token.text for token in code[begin:end]]
    if (_NOT_LOCAL | _STATEMENTS) & set(words) or not words or code[begin].kind != "identifier":
        return
    index = begin
    while index < end and (code[index].kind == "identifier" or code[index].text in ("::", ":", "<", ">", "*")):
        if code[index].text in _ALIGNED:
            index = closing[index + 1]
        index += 1
    if index >= end or code[index].text != "[" or index - begin < 2 or code[index - 2].text in (".", "->", "*", "="):
        return
    at = index - 1
    while at < end:
        name, behind = at, at + 1
        while behind < end and code[behind].text == "[":
            behind = closing[behind] + 1
        is_array = behind > name + 1 and code[name].kind == "identifier"
        is_set = behind < end and code[behind].text in ("=", "{")
        while behind < end and code[behind].text != ",":
            behind = closing[behind] + 1 if code[behind].text in ("(", "[", "{") else behind + 1
        if is_array:
            yield LocalArray(code[name].text, name, end, scope, is_set)
        at = behind + 1


class _Names:
    """The variables of one function whose values are known only at run time."""

    def __init__(self, source: Source, function: DeviceFunction) -> None:
        self.source, self.code, self.function = source, source.code, function
        self.loops = {
            index: statement_end(source, index)
            for index in range(function.opening, function.closing)
            if self.code[index].text == "for" and self.code[index + 1].text == "("
        }
        self.at_run_time = set(_OF_THREAD)
        if function.kind == "__global__":
            self.at_run_time |= self._parameters()
        assigned = list(self._assigned())
        before = 0
        while before != len(self.at_run_time):
            before = len(self.at_run_time)
            for name, begin, end in assigned:
                if any(self._is_at_run_time(index) for index in range(begin, end)):
                    self.at_run_time.add(name)

    def index_at_run_time(self, array: LocalArray) -> bool:
        """Return whether one of the array's subscripts is known only at run time."""
        code, closing = self.code, self.source.closing
        for index in range(array.end, array.scope):
            if code[index].text != array.name or code[index - 1].text in (".", "->"):
                continue
            at = index + 1
            while at < array.scope and code[at].text == "[":
                if any(self._is_at_run_time(inner) for inner in range(at + 1, closing[at])):
                    return True
                at = closing[at] + 1
        return False

    def _parameters(self) -> set[str]:
        code, end = self.code, self.function.opening - 1
        begin = self.source.opening.get(end, end)
        names = (at for at in range(begin, end) if code[at].kind == "identifier")
        return {code[at].text for at in names if code[at + 1].text in (",", ")", "[")}

    def _assigned(self) -> Iterator[tuple[str, int, int]]:
        """Yield each variable that a statement sets, with the place of its value; the heads of loops aside."""
        code, closing = self.code, self.source.closing
        for index in range(self.function.opening + 1, self.function.closing):
            if code[index].text != "=" or code[index + 1].text == "=" or code[index - 1].text in ("=", "!", "<", ">"):
                continue
            name = index - 1 if code[index - 1].kind == "identifier" else index - 2
            if code[name].kind != "identifier" or self._head(index) is not None:
                continue
            end = index + 1
            while end < self.function.closing and code[end].text not in (";", ",", ")", "}"):
                end = closing[end] + 1 if code[end].text in ("(", "[", "{") else end + 1
            yield code[name].text, index + 1, end

    def _head(self, index: int) -> int | None:
        """Return the loop whose head contains ``index``."""
        return next((loop for loop in self.loops if loop < index < self.source.closing[loop + 1]), None)

    def _is_at_run_time(self, index: int) -> bool:
        token = self.code[index]
        if token.kind != "identifier" or self.code[index - 1].text in (".", "->", "::"):
            return False
        loop = self._loop_of(token.text, index)
        if loop is None:
            return token.text in self.at_run_time
        head = range(loop + 2, self.source.closing[loop + 1])
        return any(self.code[at].text != token.text and self._is_at_run_time(at) for at in head)

    def _loop_of(self, name: str, use: int) -> int | None:
        """Return the innermost loop around ``use`` that counts with ``name``."""
        for loop in sorted(self.loops, reverse=True):
            if loop < use < self.loops[loop]:
                at = loop + 2
                while self.code[at].text != ";" and at < self.source.closing[loop + 1]:
                    if self.code[at].text == name and self.code[at + 1].text in ("=", "{"):
                        return loop
                    at += 1
        return None
