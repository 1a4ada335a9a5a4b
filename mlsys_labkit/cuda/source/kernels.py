"""Which kernels a source defines, and where."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mlsys_labkit.cuda.errors import CompileError
from mlsys_labkit.cuda.source.scopes import namespaces
from mlsys_labkit.cuda.source.tokens import Token, code_tokens, matching, tokenize

__all__ = ["KernelDefinition", "choose_kernels", "find_kernels"]

_WITH_ARGUMENTS = (
    "__launch_bounds__",
    "__maxnreg__",
    "__cluster_dims__",
    "__attribute__",
    "__align__",
    "alignas",
    "decltype",
)


@dataclass(frozen=True)
class KernelDefinition:
    """A kernel with a body.

    Attributes:
        name: as the student would call it from the top of the file, such as ``"ns::scale"``.
        line: where its name stands, from 1.
        parameters: the text between its parentheses.
        template: what stands between the angle brackets after ``template``; empty for a plain kernel.
    """

    name: str
    line: int
    parameters: str
    template: str = ""

    @property
    def is_template(self) -> bool:
        return bool(self.template)


def find_kernels(source: str) -> tuple[KernelDefinition, ...]:
    """Every kernel that the source defines, once, in the order of the lines.

    Example:
        >>> [kernel.name for kernel in find_kernels("__global__ static void f(int* p) {}  // __global__ void g()")]
        ['f']
    """
    code = code_tokens(tokenize(source))
    found: dict[str, KernelDefinition] = {}
    for kernel in _definitions(source, code):
        found.setdefault(kernel.name, kernel)
    return tuple(found.values())


def choose_kernels(kernels: Sequence[KernelDefinition], name: str | None) -> tuple[str, ...]:
    """The expressions of the kernels to make callable: the one asked for, or all that need no template arguments.

    Raises CompileError when there is nothing to call.
    """
    if name is None:
        plain = tuple(kernel.name for kernel in kernels if not kernel.is_template)
        if kernels and not plain:
            raise _only_templates(kernels)
        if not plain:
            raise CompileError("the source defines no kernel: there is no function marked __global__ with a body in it")
        return plain
    wanted = re.sub(r"\s+", "", name.split("<", 1)[0]).removeprefix("::")
    same = [kernel for kernel in kernels if kernel.name == wanted or kernel.name.endswith(f"::{wanted}")]
    if not kernels:
        return (name,)  # a macro may write the kernel; g++ has the last word
    if not same:
        there = ", ".join(kernel.name for kernel in kernels)
        raise CompileError(f"the source has no kernel called {wanted!r}; it defines: {there}")
    kernel = same[0]
    if "<" in name:
        return (kernel.name + name[name.index("<") :],)
    if kernel.is_template and "=" not in kernel.template:
        raise _template_without_arguments(kernel)
    return (kernel.name + "<>" * kernel.is_template,)


def _only_templates(kernels: Sequence[KernelDefinition]) -> CompileError:
    there = ", ".join(f"{kernel.name}, template <{kernel.template}>, on line {kernel.line}" for kernel in kernels)
    return CompileError(
        f"expected a kernel that needs no template arguments; this source has only {there}; "
        f'name an instance, such as {_an_instance(kernels[0])}: compile(source, "{_an_instance(kernels[0])}")'
    )


def _template_without_arguments(kernel: KernelDefinition) -> CompileError:
    return CompileError(
        f"{kernel.name} on line {kernel.line} is a template <{kernel.template}>; say which instance you mean, "
        f"such as {_an_instance(kernel)}"
    )


def _an_instance(template: KernelDefinition) -> str:
    types = ("typename", "class")
    values = ["float" if part.split()[0] in types else "16" for part in template.template.split(",") if part.strip()]
    return f"{template.name}<{', '.join(values)}>"


def _definitions(source: str, code: Sequence[Token]) -> Iterator[KernelDefinition]:
    around = namespaces(code)
    index = 0
    while index < len(code):
        header = _header(code, index) if code[index].text == "__global__" else None
        if header:
            name, opening, closing = header
            qualified = "::".join([*filter(None, around[index]), code[name].text])
            parameters = source[code[opening].end : code[closing].start]
            yield KernelDefinition(qualified, code[name].line, parameters, _template(source, code, index))
            index = closing
        index += 1


def _header(code: Sequence[Token], index: int) -> tuple[int, int, int] | None:
    """Indices of the name and the parentheses in the header that ``__global__`` is part of; None without a body."""
    while index < len(code):
        text = code[index].text
        if text in _WITH_ARGUMENTS and index + 1 < len(code) and code[index + 1].text == "(":
            index = matching(code, index + 1)
        elif text == "[" and index + 1 < len(code) and code[index + 1].text == "[":
            index = matching(code, index)
        elif text == "(":
            closing = matching(code, index)
            after = code[closing + 1].text if closing + 1 < len(code) else ""
            named = code[index - 1].kind == "identifier"
            return (index - 1, index, closing) if named and after == "{" else None
        elif text in (";", "{", "}"):
            return None
        index += 1
    return None


def _template(source: str, code: Sequence[Token], index: int) -> str:
    """The parameters of the template that the declaration at ``index`` belongs to; empty for a plain function."""
    begin = index
    while begin > 0 and code[begin - 1].text not in (";", "{", "}"):
        begin -= 1
    for at in range(begin, index - 1):
        if code[at].text == "template" and code[at + 1].text == "<":
            depth = 0
            for end in range(at + 1, index):
                depth += {"<": 1, ">": -1}.get(code[end].text, 0)
                if depth == 0:
                    return " ".join(source[code[at + 1].end : code[end].start].split())
    return ""
