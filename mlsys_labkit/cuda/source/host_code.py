"""A source for kernels alone: what only the host uses becomes spaces, so that a file with its launches compiles."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mlsys_labkit.cuda.source.tokens import Token, code_tokens, matching, tokenize

__all__ = ["without_host_code"]

_DEVICE = re.compile(r"__(?:global|device|constant|shared|managed|grid_constant)__")
_HOST_NAME = re.compile(
    r"main|cub|cuda[A-Z]\w*|cublas\w+|cufft\w+|cudnn\w+|curand(?!State|Directions|Discrete)[A-Z]\w*|nvtx\w+"
)
_HOST_HEADER = re.compile(
    r'#[ \t]*include[ \t]*[<"](?:helper_\w+|cublas\w*|curand|cufft\w*|cuda_profiler_api|nvToolsExt|nvtx3/\w+)\.h[>"]'
)
_CUB = re.compile(r"#[ \t]*include[ \t]*<cub/")
_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(if|endif|define|include)", re.MULTILINE)


@dataclass(frozen=True)
class _Declaration:
    """Tokens ``first`` to ``last`` at the scope of a namespace, and the name they declare, where that is plain."""

    first: int
    last: int
    name: str | None


def without_host_code(source: str) -> str:
    """The source without the declarations that launch kernels or call the runtime, or use such a declaration.

    No line moves. What is marked ``__global__`` or ``__device__`` stays, and so do plain types and functions: a kernel
    may use them. nvcc, too, leaves the host's functions out of the device's half.

    Example:
        >>> without_host_code("__global__ void f() {}\\nvoid solve() { f<<<1, 1>>>(); }").rstrip(" ")
        '__global__ void f() {}\\n'
    """
    tokens = tokenize(source)
    code = code_tokens(tokens)
    waiting = [one for one in _declarations(code) if not _has_directives(source, code, one)]
    waiting = [one for one in waiting if not any(_DEVICE.fullmatch(token.text) for token in _of(code, one))]
    edges: list[tuple[int, int]] = []
    names: set[str] = set()
    while found := [one for one in waiting if _is_host(_of(code, one), names)]:
        waiting = [one for one in waiting if one not in found]
        names.update(one.name for one in found if one.name)
        edges += [(code[one.first].start, code[one.last].end) for one in found]
    edges += [(one.start, one.end) for one in tokens if one.kind == "directive" and _HOST_HEADER.match(one.text)]
    if not any(token.text == "cub" for token in code if not any(a <= token.start < b for a, b in edges)):
        edges += [(one.start, one.end) for one in tokens if one.kind == "directive" and _CUB.match(one.text)]
    for start, end in edges:
        source = source[:start] + re.sub(r"[^\n]", " ", source[start:end]) + source[end:]
    return source


def _of(code: Sequence[Token], one: _Declaration) -> Sequence[Token]:
    return code[one.first : one.last + 1]


def _is_host(tokens: Sequence[Token], names: set[str]) -> bool:
    for index, token in enumerate(tokens):
        if token.kind == "identifier" and (token.text in names or _HOST_NAME.fullmatch(token.text)):
            return True
        if [one.text for one in tokens[index : index + 3]] == ["<", "<", "<"]:
            return True
    return False


def _has_directives(source: str, code: Sequence[Token], one: _Declaration) -> bool:
    """Whether the text between holds a macro or half a condition, which what stays may need."""
    words = _DIRECTIVE.findall(source, code[one.first].start, code[one.last].end)
    return "define" in words or "include" in words or words.count("if") != words.count("endif")


def _declarations(code: Sequence[Token]) -> Iterator[_Declaration]:
    first = index = 0
    while index < len(code):
        text = code[index].text
        if text == "}" or (text == "{" and _is_scope(code, first, index)):
            first = index + 1
        elif text in ("(", "[", "{"):
            closing = matching(code, index)
            if text == "{" and _ends(code, first, index, closing):
                yield _Declaration(first, closing, _name(code, first, index))
                first = closing + 1
            index = closing
        elif text == ";":
            yield _Declaration(first, index, _name(code, first, index))
            first = index + 1
        index += 1


def _is_scope(code: Sequence[Token], first: int, opening: int) -> bool:
    """Whether the brace opens a namespace or ``extern "C"``: what stands in it is looked at one by one."""
    head = [token.text for token in code[first:opening]]
    return "namespace" in head or (len(head) == 2 and head[0] == "extern")


def _ends(code: Sequence[Token], first: int, opening: int, closing: int) -> bool:
    """Whether the brace that closes ends the declaration, as it does a function's body."""
    head = []
    at = first
    while at < opening:
        head.append(code[at].text)
        at = matching(code, at) + 1 if code[at].text in ("(", "[") else at + 1
    after = code[closing + 1].text if closing + 1 < len(code) else ""
    return "(" in head and "=" not in head and after not in (";", ",", "{")


def _name(code: Sequence[Token], first: int, last: int) -> str | None:
    """Of the function, the type or the alias that begins at ``first``."""
    texts = [token.text for token in code[first : last + 1]]
    for word in ("struct", "class", "enum", "union", "using"):
        if word in texts[:1] and len(texts) > 1 and code[first + 1].kind == "identifier":
            return texts[1]
    if "(" in texts and texts.index("(") > 0:
        before = code[first + texts.index("(") - 1]
        return before.text if before.kind == "identifier" else None
    return None
