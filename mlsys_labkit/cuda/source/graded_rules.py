"""Rules for graded kernels: they contain nothing that keeps accesses from being counted or writes the counts.

Everything is refused that CUDA C++ for a course does not need: what is left cannot switch the hooks off, cannot reach
the simulator's own functions, and cannot tell a counted run from a plain one. Names inside macros are read like all
others, and tokens cannot be pasted, so that no macro can make up what is refused here. Where strings and comments end
must be beyond doubt, or a name could hide in what is taken for one: there are no raw strings and no continued lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from mlsys_labkit.cuda.source.reserved import is_cudas, is_reserved
from mlsys_labkit.cuda.source.source import Source
from mlsys_labkit.cuda.source.tokens import Token, closing_brackets, tokenize


@dataclass(frozen=True, order=True)
class Violation:
    """One thing that a graded kernel may not contain, and why."""

    line: int
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


_CUDA_HEADERS = """
cuda.h cuda_runtime.h cuda_runtime_api.h device_launch_parameters.h vector_types.h vector_functions.h cuda_fp16.h
cuda_bf16.h mma.h cooperative_groups.h math_constants.h cooperative_groups/reduce.h cooperative_groups/scan.h
cooperative_groups/memcpy_async.h cuda_pipeline.h cuda_pipeline_primitives.h
cuda/barrier cuda/pipeline cuda/ptx cuda/atomic cuda/std/utility
"""
_STANDARD_HEADERS = """
assert.h float.h limits.h math.h stddef.h stdint.h stdio.h cassert cfloat climits cmath cstddef cstdint cstdio limits
type_traits utility algorithm numeric array tuple
"""
_HEADERS = frozenset((_CUDA_HEADERS + _STANDARD_HEADERS).split())
_STANDARD_ATTRIBUTES = frozenset(("maybe_unused", "nodiscard", "fallthrough", "likely", "unlikely"))
_DIRECTIVES = frozenset(
    ("define", "undef", "include", "pragma", "if", "ifdef", "ifndef", "elif", "else", "endif", "error")
)

_WHY = {
    "asm": "assembly is not counted",
    "__asm__": "assembly is not counted",
    "__asm": "assembly is not counted",
    "__attribute__": "attributes can keep accesses from being counted",
    "__attribute": "attributes can keep accesses from being counted",
    "_Pragma": "write #pragma unroll as a line of its own; other pragmas can keep accesses from being counted",
    "thread_local": "shared memory is declared __shared__",
    "__thread": "shared memory is declared __shared__",
    "clock": "a graded kernel may not look at a clock",
    "clock64": "a graded kernel may not look at a clock",
    "globaltimer": "a graded kernel may not look at a clock",
    **dict.fromkeys(
        ("char_traits", "string_view", "basic_string_view", "string", "basic_string"),
        "what it copies and compares is not counted",
    ),
    "lk": "the simulator's own names are not a kernel's to use",
}
_OWN = re.compile(r"(?:lk|LK)_\w*")
_VECTOR_INTRINSIC = re.compile(r"_mm\d*_\w+|__m\d+\w*")
_NAMESPACES = ("std", "nvcuda", "cooperative_groups", "cuda")
_SPLICE = re.compile(r"\\[ \t\r]*\n")
_PLAIN_LITERAL = re.compile(r"""(?:u8|[uUL])?(?:"(?:[^"\\\n]|\\[^\n])*"|'(?:[^'\\\n]|\\[^\n])*')""")
_STORES = re.compile(r"%[-+ #'I\d.*$hlLjztqZwf]*n")
_OTHER_SPELLINGS = ("%:", "%:%:", "<:", ":>", "<%", "%>")


def violations(source: Source) -> tuple[Violation, ...]:
    """Return all violations by line; empty for a kernel whose counts can be marks. Repeat with macros expanded.

    Example:
        >>> for one in violations(Source('__global__ void k(int* p) {\\n  asm("nop;");\\n}')):
        ...     print(one)
        line 2: asm: assembly is not counted
    """
    tokens = source.tokens
    code = [token for token in tokens if token.kind not in ("comment", "space")]
    found = [*_characters(source.text, tokens), *_attributes(code), *_external(code), *_jumps(code)]
    for token in code:
        if token.kind == "directive":
            found += _directive(token)
        elif token.kind == "identifier":
            found += _name(token.text, token.line)
    return tuple(sorted(set(found)))


def _name(name: str, line: int) -> Iterator[Violation]:
    if name in _WHY:
        yield Violation(line, f"{name}: {_WHY[name]}")
    elif _OWN.fullmatch(name):
        yield Violation(line, f"{name}: the simulator's own names are not a kernel's to use")
    elif name.startswith("__builtin_"):
        yield Violation(line, f"{name}: the compiler's own functions can go around the count")
    elif _VECTOR_INTRINSIC.fullmatch(name):
        yield Violation(line, f"{name}: a GPU has no such instruction")
    elif is_reserved(name) and not is_cudas(name):
        yield Violation(
            line, f"{name}: names with two underscores belong to the compiler, and CUDA knows none like this"
        )
    elif not name.isascii():
        yield Violation(line, f"{name}: write names in plain letters")


def _characters(source: str, tokens: Sequence[Token]) -> Iterator[Violation]:
    """Yield what could hide other text: raw strings, continued lines, other spellings of # and brackets."""
    for found in re.finditer(r"[\x00-\x08\x0b\x0e-\x1f\x7f]|\r(?!\n)", source):
        yield Violation(source.count("\n", 0, found.start()) + 1, "a control character; write plain text")
    for token in tokens:
        if token.kind in ("string", "character"):
            if not _PLAIN_LITERAL.fullmatch(token.text):
                yield Violation(token.line, "a string that is raw, continued or not closed; write a plain one")
            elif _STORES.search(token.text.replace("%%", "")):
                yield Violation(token.line, "%n: a GPU's printf stores nothing; a percent sign is written %%")
        elif token.kind == "number":
            if "'" in token.text:
                yield Violation(token.line, f"{token.text}: write the number without '")
        elif token.kind == "comment":
            if (token.text.startswith("//") and "\\\n" in token.text.replace("\r", "")) or not _is_closed(token):
                yield Violation(token.line, "a comment that goes on below its line, or is not closed")
        elif token.kind == "directive":
            continue
        elif "\\" in token.text:
            yield Violation(token.line, "a backslash outside of strings; write the text plainly")
        elif token.text in _OTHER_SPELLINGS:
            yield Violation(token.line, f"{token.text}: write the character itself, one of # [ ] {{ }}")
        elif token.text in ("#", "##"):
            yield Violation(token.line, f"{token.text} outside of a directive")
    if "??" in source:
        yield Violation(source.count("\n", 0, source.index("??")) + 1, "??: it can spell other characters")


def _is_closed(token: Token) -> bool:
    return token.text.startswith("//") or (len(token.text) > 3 and token.text.endswith("*/"))


def _directive(token: Token) -> Iterator[Violation]:
    if not token.text.startswith("#"):
        yield Violation(token.line, "write # itself")
    body = token.text.lstrip("#%:")
    if re.search(r"\w\\[ \t\r]*\n\w", body):
        yield Violation(token.line, "a word that a backslash breaks over two lines can hide a name; keep it on one")
    flat = _SPLICE.sub(" \n", body)
    yield from (Violation(token.line + one.line - 1, one.reason) for one in _characters(flat, _inside(flat)))
    inside = _inside(flat)
    words = [one for one in inside if one.kind not in ("comment", "space")]
    name = words[0].text if words else ""
    if name and name not in _DIRECTIVES:
        yield Violation(token.line, f"#{name} is not for kernels")
    elif name == "pragma":
        if [one.text for one in words[1:2]] not in (["unroll"], ["once"], ["nounroll"]):
            yield Violation(token.line, f"#pragma {words[1].text if words[1:] else ''}: only #pragma unroll is allowed")
    elif name == "include":
        yield from _include(token, body)
    else:
        for one in words[1:]:
            if one.kind == "identifier":
                yield from _name(one.text, token.line + one.line - 1)
            elif one.text in ("##", "%:%:"):
                yield Violation(token.line + one.line - 1, "##: pasted tokens can spell any name; write it out")
    if name in ("define", "undef") and words[1:] and is_reserved(words[1].text):
        yield Violation(token.line, f"#{name} {words[1].text}: CUDA's own words keep their meaning")


def _inside(body: str) -> list[Token]:
    """Return a directive's tokens. The text put before them prevents that they are read as another directive."""
    return [token for token in tokenize("; " + body) if token.start > 1]


def _include(token: Token, body: str) -> Iterator[Violation]:
    found = re.fullmatch(r"\s*include\s*<([^<>\n]+)>\s*(?://.*|/\*.*\*/\s*)?", body)
    if not found:
        yield Violation(
            token.line, "#include takes one of CUDA's or C++'s headers in <>: no file of your own, no macro"
        )
    elif found[1].strip() not in _HEADERS:
        yield Violation(token.line, f"#include <{found[1].strip()}> is none of the headers that a kernel needs")


def _attributes(code: Sequence[Token]) -> Iterator[Violation]:
    closing = closing_brackets(code)
    for index in range(len(code) - 1):
        if code[index].text == code[index + 1].text == "[":
            end = closing[index]
            words = [token.text for token in code[index + 2 : end - 1] if token.kind == "identifier"]
            if any(word not in _STANDARD_ATTRIBUTES for word in words):
                yield Violation(
                    code[index].line, f"[[{', '.join(words)}]]: attributes can keep accesses from being counted"
                )


def _jumps(code: Sequence[Token]) -> Iterator[Violation]:
    """Yield jumps to a computed place. What a pointer is made of, the machine code tells (``gcc.indirect``)."""
    for token, after in pairwise(code):
        if token.text == "goto" and after.text == "*":
            yield Violation(token.line, "goto *: a graded kernel jumps only to labels that it names")


def _external(code: Sequence[Token]) -> Iterator[Violation]:
    for index, token in enumerate(code):
        following = [one.text for one in code[index + 1 : index + 8]]
        if token.text == "extern" and token.kind == "identifier":
            before = code[index - 1].text if index else ""
            is_kernel = following[:1] == ['"C"'] and "__global__" in following[1:5] and "{" not in following[1:5]
            if not is_kernel and "__shared__" not in (before, *following):
                yield Violation(token.line, "extern: a graded kernel declares nothing that stands elsewhere")
        extends = token.text == "namespace" and following[:1] and following[0] in _NAMESPACES
        if extends and (index == 0 or code[index - 1].text != "using"):
            yield Violation(token.line, f"namespace {following[0]} is not a kernel's to extend")
