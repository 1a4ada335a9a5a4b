"""The kernels that a source defines, and the choice of those to compile."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mlsys_labkit.cuda.errors import CudaCompileError
from mlsys_labkit.cuda.source.tokens import Token

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


def read_kernels(
    text: str, code: Sequence[Token], closing: Sequence[int], around: Sequence[tuple[str, ...]]
) -> tuple[KernelDefinition, ...]:
    """Return every kernel with a body, once, in the order of the lines.

    ``code`` is the text's code, ``closing`` its brackets and ``around`` its namespaces, as ``Source`` has them.
    """
    found: dict[str, KernelDefinition] = {}
    for index, name, opening in kernel_headers(code, closing):
        end = closing[opening]
        if name == opening - 1 and end + 1 < len(code) and code[end + 1].text == "{":
            qualified = "::".join([*filter(None, around[index]), code[name].text])
            parameters = text[code[opening].end : code[end].start]
            template = template_parameters(text, code, index) or ""
            found.setdefault(qualified, KernelDefinition(qualified, code[name].line, parameters, template))
    return tuple(found.values())


def choose_kernels(kernels: Sequence[KernelDefinition], name: str | None) -> tuple[str, ...]:
    """Return the expressions of the kernels to export: the one asked for, or all that need no template arguments.

    Raises CudaCompileError when there is nothing to call.
    """
    if name is None:
        plain = tuple(kernel.name for kernel in kernels if not kernel.is_template)
        if kernels and not plain:
            raise _only_templates(kernels)
        if not plain:
            raise CudaCompileError(
                "the source defines no kernel: there is no function marked __global__ with a body in it"
            )
        return plain
    wanted = re.sub(r"\s+", "", name.split("<", 1)[0]).removeprefix("::")
    same = [kernel for kernel in kernels if kernel.name == wanted or kernel.name.endswith(f"::{wanted}")]
    if not kernels:
        return (name,)  # a macro may define the kernel; g++ will decide
    if not same:
        there = ", ".join(kernel.name for kernel in kernels)
        raise CudaCompileError(f"the source has no kernel called {wanted!r}; it defines: {there}")
    kernel = same[0]
    if "<" in name:
        return (kernel.name + name[name.index("<") :],)
    if kernel.is_template and "=" not in kernel.template:
        raise _template_without_arguments(kernel)
    return (kernel.name + "<>" * kernel.is_template,)


def _only_templates(kernels: Sequence[KernelDefinition]) -> CudaCompileError:
    there = ", ".join(f"{kernel.name}, template <{kernel.template}>, on line {kernel.line}" for kernel in kernels)
    return CudaCompileError(
        f"expected a kernel that needs no template arguments; this source has only {there}; "
        f'name an instance, such as {_an_instance(kernels[0])}: compile(source, "{_an_instance(kernels[0])}")'
    )


def _template_without_arguments(kernel: KernelDefinition) -> CudaCompileError:
    return CudaCompileError(
        f"{kernel.name} on line {kernel.line} is a template <{kernel.template}>; say which instance you mean, "
        f"such as {_an_instance(kernel)}"
    )


def _an_instance(template: KernelDefinition) -> str:
    types = ("typename", "class")
    values = ["float" if part.split()[0] in types else "16" for part in template.template.split(",") if part.strip()]
    return f"{template.name}<{', '.join(values)}>"


def kernel_headers(code: Sequence[Token], closing: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield the indices of ``__global__``, of the name and of the opening parenthesis of each kernel."""
    for index, token in enumerate(code):
        header = _read_header(code, closing, index) if token.text == "__global__" else None
        if header:
            yield index, *header


def _read_header(code: Sequence[Token], closing: Sequence[int], index: int) -> tuple[int, int] | None:
    while index < len(code):
        text = code[index].text
        following = code[index + 1].text if index + 1 < len(code) else ""
        if (text in _WITH_ARGUMENTS and following == "(") or (text == "[" and following == "["):
            index = closing[index + (text != "[")]
        elif text == "(":
            name = _before_arguments(code, index - 1)
            return (name, index) if code[name].kind == "identifier" else None
        elif text in (";", "{", "}"):
            return None
        index += 1
    return None


def _before_arguments(code: Sequence[Token], index: int) -> int:
    """Return the index of the name whose template arguments end at ``index``; ``index`` where none do."""
    depth = 0
    for at in range(index, -1, -1):
        depth += {">": 1, "<": -1}.get(code[at].text, 0)
        if depth == 0:
            return max(at - 1, 0) if at < index else index
    return index


def template_parameters(text: str, code: Sequence[Token], index: int) -> str | None:
    """Return the parameters of the template that the declaration at ``index`` belongs to; None for a plain function."""
    begin = index
    while begin > 0 and code[begin - 1].text not in (";", "{", "}"):
        begin -= 1
    for at in range(begin, index - 1):
        if code[at].text == "template" and code[at + 1].text == "<":
            depth = 0
            for end in range(at + 1, index):
                depth += {"<": 1, ">": -1}.get(code[end].text, 0)
                if depth == 0:
                    return " ".join(text[code[at + 1].end : code[end].start].split())
    return None
