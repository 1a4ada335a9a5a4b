"""Launches of a CUDA program, written as calls that g++ takes; no line moves.

``kernel<<<grid, block>>>(a, n)`` becomes ``lk_launch("kernel", kernel, lk_configure(grid, block))(a, n)``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from mlsys_labkit.cuda.source.kernels import kernel_headers, template_parameters
from mlsys_labkit.cuda.source.source import Edit, Source
from mlsys_labkit.cuda.source.tokens import Token, closing_brackets, split_commas

_LAUNCH = re.compile(r"<<[ \t]*<")  # some editors write << <
_END_OF_CONFIGURATION = re.compile(r">>[ \t]*>")
_CAST = re.compile(r"\( (?:const )?void (?:const )?\* \) |(?:reinterpret|static)_cast < (?:const )?void \* > ")
_LAUNCHERS = ("cudaLaunchKernel", "cudaLaunchCooperativeKernel")
_STATEMENTS = ("if", "for", "while", "else", "return", "switch", "do")


@dataclass(frozen=True)
class KernelNames:
    """Names of a program's kernels, which decide how a launch is written."""

    template_parameters: Mapping[str, int]  # of each kernel template: how many there are
    call_only: frozenset[str]  # overloaded, or with default arguments: only a call can choose
    parameters: Mapping[str, str]  # the text between each kernel's parentheses

    def needs_call(self, name: str, written: int) -> bool:
        """Return whether only a call can choose the function: ``name`` with ``written`` template arguments cannot."""
        return name in self.call_only or (
            name in self.template_parameters and self.template_parameters[name] != written
        )


def find_kernels(sources: Iterable[Source]) -> KernelNames:
    """Read the kernels' headers in all files of a program.

    Example:
        >>> source = Source("template <class T> __global__ void fill(T* p);  __global__ void go(int n = 1);")
        >>> names = find_kernels([source])
        >>> dict(names.template_parameters), sorted(names.call_only)
        ({'fill': 1}, ['go'])
    """
    templates: dict[str, int] = {}
    parameters_of: dict[str, str] = {}
    signatures: dict[str, set[str]] = {}
    call_only: set[str] = set()
    for source in sources:
        code = source.words
        closing = closing_brackets(code)
        for index, named, opening in kernel_headers(code, closing):
            name, parameters = code[named].text, source.masked[code[opening].end : code[closing[opening]].start]
            parameters_of[name] = parameters
            template = template_parameters(source.masked, code, index)
            if template is not None:
                templates[name] = max(templates.get(name, 0), len(split_commas(template)))
            signatures.setdefault(name, set()).add(_parameter_types(parameters))
            if "=" in parameters:
                call_only.add(name)
        for name, parameters in _host_functions(source, closing):
            signatures.setdefault(name, set()).add(f"host {_parameter_types(parameters)}")
    call_only |= {name for name, seen in signatures.items() if name in parameters_of and len(seen) > 1}
    return KernelNames(templates, frozenset(call_only), parameters_of)


def _host_functions(source: Source, closing: list[int]) -> Iterator[tuple[str, str]]:
    """Yield name and parameters of each function with a body: a launcher may have its kernel's name."""
    code = source.words
    for index in range(1, len(code) - 1):
        if code[index].text != "(" or code[index - 1].kind != "identifier":
            continue
        end = closing[index]
        before = code[index - 2].text if index > 1 else ""
        is_typed = before in ("*", "&", ">") or (index > 1 and code[index - 2].kind == "identifier")
        if end + 1 < len(code) and code[end + 1].text == "{" and is_typed and before not in (*_STATEMENTS, "new"):
            begin = index
            while begin > 0 and code[begin - 1].text not in (";", "{", "}"):
                begin -= 1
            if all(token.text != "__global__" for token in code[begin:index]):
                yield code[index - 1].text, source.masked[code[index].end : code[end].start]


def rewrite(source: Source, kernels: KernelNames) -> Source:
    """Return the program's text with launches written as calls; as many lines as before.

    Example:
        >>> source = Source("__global__ void go(int* p, int* q) {} void f() { go<<<1, n>>>(p, NULL); }")
        >>> rewrite(source, find_kernels([source])).text.partition("f() ")[2]
        '{ lk_launch("go", go, lk_configure(1, n))(p, NULL); }'
    """
    return Source(source.edited([*_launch_edits(source, kernels), *_cast_edits(source.words, kernels)]))


def _launches(source: Source) -> Iterator[int]:
    """Yield the index in ``source.words`` of each ``<<<``."""
    code = source.words
    starts = {found.start() for found in _LAUNCH.finditer(source.masked)}
    return (index for index, token in enumerate(code) if token.start in starts)


def _launch_edits(source: Source, kernels: KernelNames) -> Iterator[Edit]:
    code = source.words
    closing = closing_brackets(code)
    done = 0
    for index in _launches(source):
        end = _configuration_end(source, index + 3, closing)
        if end is None or end + 3 >= len(code) or code[end + 3].text != "(":
            continue
        first = _kernel_expression(code, index)
        if first == index or end < done:
            continue  # not a launch: the compiler will report it
        done = end + 3
        begin, behind = code[first].start, code[index - 1].end
        expression = source.masked[begin:behind]
        label = "" if source.is_in_directive(begin) else " ".join(re.sub(r'["\\\\]', " ", expression).split())
        if _chosen_by_call(expression, kernels):
            between = source.masked[behind : code[index].start]
            yield begin, begin, f'lk_launch("{label}", [=](auto... lk_a) LK_UNRECORDED {{ '
            yield behind, code[index + 2].end, between + "(lk_a...); }, lk_configure("
            for token in code[end + 3 : closing[end + 3]]:
                if token.text == "NULL":
                    yield token.start, token.end, "nullptr"
        else:
            yield begin, begin, f'lk_launch("{label}", '
            yield code[index].start, code[index + 2].end, ", lk_configure("
        yield code[end].start, code[end + 2].end, "))"


def _cast_edits(code: list[Token], kernels: KernelNames) -> Iterator[Edit]:
    """Yield edits around kernels that are cast to void*, so that cudaLaunchKernel knows their parameters.

    In cudaLaunchKernel((void*)pointer, ...) the cast is left out: the type of a pointer to a function says as much.
    """
    for index, token in enumerate(code[:-2]):
        cast = _CAST.match(" ".join(one.text for one in code[index : index + 7]))
        if not cast:
            continue
        begin = index + len(cast[0].split())
        named = _named_kernel(code, begin, kernels)
        if named:
            yield code[named[0]].start, code[named[0]].start, "lk_known("
            yield code[named[1]].end, code[named[1]].end, ")"
        elif code[index - 1].text == "(" and code[index - 2].text in _LAUNCHERS:
            yield token.start, code[begin - 1].end, ""


def _named_kernel(code: list[Token], begin: int, kernels: KernelNames) -> tuple[int, int] | None:
    """Return the indices of the first and last token of the kernel's name at ``begin``, if nothing follows it there."""
    first = begin
    while code[first].text == "(":
        first += 1
    at = first + (code[first].text == "&")
    while at + 2 < len(code) and code[at].kind == "identifier" and code[at + 1].text == "::":
        at += 2
    if code[at].text not in kernels.parameters or (kernels.needs_call(code[at].text, 0) and code[at + 1].text != "<"):
        return None
    if code[at + 1].text == "<":
        depth = 0
        while at + 1 < len(code) and code[at].text not in (";", "{", "}"):
            at += 1
            depth += {"<": 1, ">": -1}.get(code[at].text, 0)
            if depth == 0:
                break
    return (first, at) if code[at + 1].text in (",", ")", ";", "}") else None


def _chosen_by_call(expression: str, kernels: KernelNames) -> bool:
    parts = re.match(r"(?s)(.*?)(<.*>)?\s*$", expression.strip())
    assert parts  # the pattern takes any text
    plain = re.search(r"(\w+)\s*$", parts[1])
    if not plain:
        return False  # an expression in brackets or parentheses: a pointer, or a name that must stand for one function
    return kernels.needs_call(plain[1], len(split_commas(parts[2][1:-1])) if parts[2] else 0)


def _kernel_expression(code: list[Token], launch: int) -> int:
    """Return the index where the kernel's name before ``launch`` begins; ``launch`` where there is none."""
    begin = launch
    while begin > 0:
        last = code[begin - 1]
        if last.text in (")", "]", ">"):
            opening = _opening(code, begin - 1)
            if opening is None:
                break
            begin = opening
            before = code[begin - 1] if begin else last
            called = before.kind in ("identifier", "number") and (last.text != ")" or before.text not in _STATEMENTS)
            if not called or begin == 0:
                break
        elif last.kind in ("identifier", "number"):
            begin -= 1
            if begin == 0 or code[begin - 1].text not in ("::", "->", "."):
                break
            begin -= 1
        else:
            break
    return begin


def _configuration_end(source: Source, begin: int, closing: list[int]) -> int | None:
    """Return the index of the first token of ``>>>``."""
    code, index = source.words, begin
    while index < len(code):
        text = code[index].text
        if text in (")", "]", "}"):
            return None
        if text in ("(", "[", "{"):
            index = closing[index]
        elif text == ">" and _END_OF_CONFIGURATION.match(source.masked, code[index].start):
            return index
        index += 1
    return None


def _opening(code: list[Token], at: int) -> int | None:
    """Return the index of the bracket that the one at ``at`` closes; angle brackets hold whole parentheses."""
    pairs = {")": "(", "]": "[", ">": "<"}
    closing, opening = code[at].text, pairs[code[at].text]
    depth = inside = 0
    for index in range(at, -1, -1):
        text = code[index].text
        if closing == ">" and text in (")", "]"):
            inside += 1
        elif closing == ">" and text in ("(", "[", "{"):
            inside -= 1
            if inside < 0:
                return None
        elif inside == 0 and text == closing:
            depth += 1
        elif inside == 0 and text == opening:
            depth -= 1
            if depth == 0:
                return index
        elif closing == ">" and text in (";", "{", "}"):
            return None
    return None


def _parameter_types(parameters: str) -> str:
    """Return the parameter list without names, so that a prototype and its definition look the same."""
    types = []
    for parameter in split_commas(parameters):
        plain = re.sub(r"\b(?:const|__restrict__|restrict|__restrict|struct)\b", " ", parameter)
        plain = re.sub(r"\[[^\]]*\]", "*", plain)
        words = re.findall(r"[\w:<>]+|\*", plain)
        named = len([word for word in words if word != "*"]) > 1 and words[-1] != "*"
        types.append(" ".join(words[:-1] if named else words))
    return ",".join(types)
