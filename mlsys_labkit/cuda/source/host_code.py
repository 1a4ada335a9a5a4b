"""Sources for kernels alone: code that only the host uses becomes spaces, so that a file with launches compiles."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from mlsys_labkit.cuda.source.source import Source
from mlsys_labkit.cuda.source.tokens import Token, blanked

_DEVICE = re.compile(r"__(?:global|device|constant|shared|managed|grid_constant)__")
_HOST_NAME = re.compile(
    r"main|cub|cuda[A-Z]\w*|cublas\w+|cufft\w+|cudnn\w+|pybind11|curand(?!State|Directions|Discrete)[A-Z]\w*|nvtx\w+"
    r"|(?:TORCH|PYBIND11|C10|AT_DISPATCH|AT_ASSERT)_?[A-Z_0-9]+"
)
_HOST_HEADER = re.compile(
    r'#[ \t]*include[ \t]*[<"](?:helper_\w+|cublas\w*|curand|cufft\w*|cuda_profiler_api|nvToolsExt|nvtx3/\w+)\.h[>"]'
)
_LIBRARIES = {  # namespaces that only the host uses, most often, and the headers that go when nothing else does
    re.compile(r"#[ \t]*include[ \t]*<cub/"): ("cub",),
    re.compile(r"#[ \t]*include[ \t]*[<\"](?:torch|ATen|c10|pybind11)/"): ("torch", "at", "c10", "pybind11"),
}
_NAMESPACES = {name for names in _LIBRARIES.values() for name in names}
_LIBRARY_NAME = re.compile(
    r"CU[a-z_]\w*|PFN_cu\w+|cu(?:da)?[A-Z]\w*|(?:cublas|cufft|cusparse|cusolver|curand|cudnn|nccl|npp|nvml|nvrtc|nvJitLink)[A-Z_]\w*"
    r"|MPI_\w+"
)
_ABSENT_HEADER = re.compile(
    r"#[ \t]*include[ \t]*[<\"]"
    r"(?:cudaTypedefs|cudaProfiler|cusolver\w*|cudnn\w*|nccl|npp\w*|nvml|nvrtc|nvJitLink|mpi)\.h[>\"]"
)
_Test = Callable[[Sequence[Token], set[str]], bool]
_DEFINE = re.compile(r"#[ \t]*define[ \t]+(\w+)")
_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(if|endif|define|include)", re.MULTILINE)


@dataclass(frozen=True)
class _Declaration:
    """Tokens ``first`` to ``last`` at the scope of a namespace, and the name they declare, where that is plain."""

    first: int
    last: int
    name: str | None


def without_host_code(source: Source) -> Source:
    """Return the source without declarations that launch kernels, call the runtime or PyTorch, or use such a one.

    No line moves. What is marked ``__global__`` or ``__device__`` stays, and so do plain types and functions: a kernel
    may use them. nvcc, too, leaves the host's functions out of the device's half.

    Example:
        >>> without_host_code(Source("__global__ void f() {}\\nvoid solve() { f<<<1, 1>>>(); }")).text.rstrip(" ")
        '__global__ void f() {}\\n'
    """
    return without_host_code_in([source])[0]


def without_host_code_in(sources: Sequence[Source]) -> list[Source]:
    """Return the files of one program without the host's code: what one file declares another one uses.

    Example:
        >>> header, source = Source("struct T { cudaEvent_t e; };"), Source("void stop(T& timer) {}")
        >>> [one.text.strip() for one in without_host_code_in([source, header])]
        ['', '']
    """
    names = _closure(sources, set(), _is_host)
    return [_blanked(source, _declarations_with(source, names, _is_host), _HOST_HEADER) for source in sources]


def without_absent_in(sources: Sequence[Source], known: Collection[str]) -> list[Source]:
    """Return the files of one program without host code that calls what no header declares, and without its headers.

    That are names which look like those of NVIDIA's libraries, and are neither ``known`` nor declared in the files.

    Example:
        >>> texts = ["void f(CUdevice d) { cuDeviceGet(&d, 0); cuFooBar(d); }", "void g() { cuDeviceGet(0, 0); }"]
        >>> [one.text.strip()[:6] for one in without_absent_in(list(map(Source, texts)), {"CUdevice", "cuDeviceGet"})]
        ['', 'void g']
    """
    own = {one.name for source in sources for one in _declarations(source, set()) if one.name}
    there = own.union(known, *(source.macros for source in sources))
    absent = {
        token.text
        for source in sources
        for token in source.words
        if _LIBRARY_NAME.fullmatch(token.text) and token.text not in there
    }
    names = _closure(sources, absent, _names_one)
    return [_blanked(source, _declarations_with(source, names, _names_one), _ABSENT_HEADER) for source in sources]


def _closure(sources: Sequence[Source], names: set[str], is_left_out: _Test) -> set[str]:
    """Return the names, those of the declarations that are left out because of them, and so on."""
    known = -1
    while len(names) > known:
        known = len(names)
        for source in sources:
            names.update(_macros_with(source.tokens, names, is_left_out))
            _declarations_with(source, names, is_left_out)
    return names


def _names_one(tokens: Sequence[Token], names: set[str]) -> bool:
    return any(token.kind == "identifier" and token.text in names for token in tokens)


def _declarations_with(source: Source, names: set[str], is_left_out: _Test) -> list[tuple[int, int]]:
    """Return where the declarations to leave out begin and end in the text; add what they declare to ``names``."""
    code = source.code
    waiting = [one for one in _declarations(source, names) if not _has_directives(source, one)]
    waiting = [one for one in waiting if not any(_DEVICE.fullmatch(token.text) for token in _of(code, one))]
    edges: list[tuple[int, int]] = []
    while found := [one for one in waiting if is_left_out(_of(code, one), names)]:
        waiting = [one for one in waiting if one not in found]
        names.update(one.name for one in found if one.name)
        edges += [(code[one.first].start, code[one.last].end) for one in found]
    return edges


def _blanked(source: Source, edges: list[tuple[int, int]], header: re.Pattern[str]) -> Source:
    """Return the source with spaces in place of ``edges`` and of the includes that only the host needs."""
    tokens = source.tokens
    edges = edges + [(one.start, one.end) for one in tokens if one.kind == "directive" and header.match(one.text)]
    left = [token for token in source.code if not any(a <= token.start < b for a, b in edges)]
    for library, namespaces in _LIBRARIES.items():
        if not any(_names_library(left, index, namespaces) for index in range(len(left))):
            edges += [(one.start, one.end) for one in tokens if one.kind == "directive" and library.match(one.text)]
    blanks = [(start, end, blanked(source.text[start:end])) for start, end in edges]
    return Source(source.edited(blanks)) if blanks else source


def _of(code: Sequence[Token], one: _Declaration) -> Sequence[Token]:
    return code[one.first : one.last + 1]


def _names_library(code: Sequence[Token], index: int, namespaces: Collection[str]) -> bool:
    """Return whether ``at::`` or ``using namespace at`` stands here, and no variable called ``at``."""
    if code[index].text not in namespaces:
        return False
    before, after = code[index - 1 : index], code[index + 1 : index + 2]
    return [one.text for one in after] == ["::"] or [one.text for one in before] == ["namespace"]


def _macros_with(tokens: Sequence[Token], known: Collection[str], is_left_out: _Test) -> set[str]:
    """Return the macros whose bodies only the host can use, such as the usual one that checks a call."""
    names = set(known)
    for token in tokens:
        if token.kind == "directive" and (defined := _DEFINE.match(token.text)):
            body = Source(re.sub(r"\\[ \t\r]*\n|##", " ", token.text[defined.end() :])).code
            if is_left_out(body, names) and not any(_DEVICE.fullmatch(one.text) for one in body):
                names.add(defined[1])
    return names


def _is_host(tokens: Sequence[Token], names: set[str]) -> bool:
    for index, token in enumerate(tokens):
        if token.kind == "identifier" and (token.text in names or _HOST_NAME.fullmatch(token.text)):
            return True
        if _names_library(tokens, index, _NAMESPACES):
            return True
        if [one.text for one in tokens[index : index + 3]] == ["<", "<", "<"]:
            return True
    return False


def _has_directives(source: Source, one: _Declaration) -> bool:
    """Return whether the text between holds a macro or half a condition, which what stays may need."""
    words = _DIRECTIVE.findall(source.text, source.code[one.first].start, source.code[one.last].end)
    return "define" in words or "include" in words or words.count("if") != words.count("endif")


def _declarations(source: Source, macros: set[str]) -> Iterator[_Declaration]:
    code = source.code
    first = index = 0
    while index < len(code):
        text = code[index].text
        if index == first and text in macros and (closing := _end_of_call(source, index)):
            yield _Declaration(first, closing, None)
            index, first = closing, closing + 1
        elif text == "}" or (text == "{" and _is_scope(code, first, index)):
            first = index + 1
        elif text in ("(", "[", "{"):
            closing = source.closing[index]
            if text == "{" and _ends(source, first, index, closing):
                yield _Declaration(first, closing, _name(code, first, index))
                first = closing + 1
            index = closing
        elif text == ";":
            yield _Declaration(first, index, _name(code, first, index))
            first = index + 1
        index += 1


def _end_of_call(source: Source, index: int) -> int | None:
    """Return the end of a macro call that stands for whole functions: no semicolon or body follows it."""
    code = source.code
    if index + 1 == len(code) or code[index + 1].text != "(":
        return None
    closing = source.closing[index + 1]
    return closing if closing + 1 == len(code) or code[closing + 1].text not in (";", "{") else None


def _is_scope(code: Sequence[Token], first: int, opening: int) -> bool:
    """Return whether the brace opens a namespace or ``extern "C"``, whose declarations are examined one by one."""
    head = [token.text for token in code[first:opening]]
    return "namespace" in head or (len(head) == 2 and head[0] == "extern")


def _ends(source: Source, first: int, opening: int, closing: int) -> bool:
    """Return whether the closing brace ends the declaration, as it does after the body of a function."""
    code = source.code
    head = []
    at = first
    while at < opening:
        head.append(code[at].text)
        at = source.closing[at] + 1 if code[at].text in ("(", "[") else at + 1
    after = code[closing + 1].text if closing + 1 < len(code) else ""
    return "(" in head and "=" not in head and after not in (";", ",", "{")


def _name(code: Sequence[Token], first: int, last: int) -> str | None:
    """Return the name of the function, the type or the alias that begins at ``first``."""
    texts = [token.text for token in code[first : last + 1]]
    for word in ("struct", "class", "enum", "union", "using"):
        if word in texts[:1] and len(texts) > 1 and code[first + 1].kind == "identifier":
            return texts[1]
    if "(" in texts and texts.index("(") > 0:
        before = code[first + texts.index("(") - 1]
        return before.text if before.kind == "identifier" else None
    return None
