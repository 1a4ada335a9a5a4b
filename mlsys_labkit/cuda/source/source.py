"""CUDA C++ text and what reading it gives: tokens, brackets, namespaces and kernels, each computed once."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from mlsys_labkit.cuda.source.kernels import KernelDefinition, read_kernels
from mlsys_labkit.cuda.source.mask import mask
from mlsys_labkit.cuda.source.scopes import namespaces
from mlsys_labkit.cuda.source.tokens import Token, closing_brackets, code_tokens, enabled_tokens, tokenize

Edit = tuple[int, int, str]  # replace the characters from start to end by a text with as many line breaks


@dataclass(frozen=True)
class Source:
    """CUDA C++ text; each analysis of it is computed once.

    Example:
        >>> source = Source("__global__ static void f(int* p) {}  // __global__ void g()")
        >>> [kernel.name for kernel in source.kernels]
        ['f']
    """

    text: str

    @cached_property
    def tokens(self) -> list[Token]:
        """All of the text, in order."""
        return tokenize(self.text)

    @cached_property
    def code(self) -> list[Token]:
        """The tokens that a parser sees: no comments, space or directives, and nothing under ``#if 0``."""
        return code_tokens(self.tokens)

    @cached_property
    def closing(self) -> list[int]:
        """For each bracket in ``code`` that opens, the index of the one that closes it; the last index if none does."""
        return closing_brackets(self.code)

    @cached_property
    def opening(self) -> dict[int, int]:
        """The index of the bracket that each closing one in ``code`` closes."""
        brackets = (index for index, token in enumerate(self.code) if token.text in ("(", "[", "{"))
        return {self.closing[index]: index for index in brackets}

    @cached_property
    def words(self) -> list[Token]:
        """As ``code``, with the tokens inside directives: a macro's body may launch a kernel."""
        found = []
        for token in enabled_tokens(self.tokens):
            if token.kind == "directive":
                inside = [one for one in tokenize(token.text[1:]) if one.kind not in ("comment", "space")]
                found.append(replace(token, text=token.text[0]))
                at, line = token.start + 1, token.line - 1
                found += [replace(one, start=at + one.start, line=line + one.line) for one in inside]
            elif token.kind not in ("comment", "space"):
                found.append(token)
        return found

    @cached_property
    def around(self) -> list[tuple[str, ...]]:
        """For each token of ``code`` the names of the namespaces around it, the outermost first."""
        return namespaces(self.code)

    @cached_property
    def kernels(self) -> tuple[KernelDefinition, ...]:
        """Every kernel that the source defines, once, in the order of the lines."""
        return read_kernels(self.text, self.code, self.closing, self.around)

    @cached_property
    def macros(self) -> frozenset[str]:
        """The names that ``#define`` gives a meaning."""
        found = (re.match(r"#[ \t]*define[ \t]+(\w+)", one.text) for one in self.tokens if one.kind == "directive")
        return frozenset(one[1] for one in found if one)

    @cached_property
    def masked(self) -> str:
        """The text with spaces in place of comments, strings and ``#if 0`` blocks; every position stays."""
        return mask(self.text, self.tokens)

    @cached_property
    def lines(self) -> list[str]:
        """The text of each line, without its end."""
        return self.text.split("\n")

    def is_in_directive(self, position: int) -> bool:
        """Return whether the character at ``position`` belongs to a directive."""
        return any(one.kind == "directive" and one.start <= position < one.end for one in self.tokens)

    def edited(self, edits: Iterable[Edit]) -> str:
        """Return the text with the edits made, which do not overlap."""
        text = self.text
        for start, end, replacement in sorted(edits, reverse=True):
            text = text[:start] + replacement + text[end:]
        return text
