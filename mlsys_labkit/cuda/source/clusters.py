"""The thread block clusters that kernels are declared with: ``__cluster_dims__(2, 1, 1)``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from mlsys_labkit.cuda.source.kernels import kernel_headers, template_parameters
from mlsys_labkit.cuda.source.source import Source
from mlsys_labkit.cuda.source.tokens import closing_brackets, split_commas

_NAME = re.compile(r"[A-Za-z_]\w*")
DEPENDENT = "0"  # dimensions that depend on template arguments: no launch has them


def cluster_dimensions(sources: Iterable[Source]) -> dict[str, str]:
    """Return the dimensions of the kernels that are declared with some, as C++, by the kernels' own names.

    Example:
        >>> cluster_dimensions([Source("__global__ void __cluster_dims__(N, 2) go() {}  __global__ void f() {}")])
        {'go': 'N, 2'}

    Reference: CUDA C++ programming guide, "Thread Block Clusters".
    """
    declared = _declared(sources).items()
    return {name: DEPENDENT if _depends(template, text) else text for name, (template, text) in declared}


def _declared(sources: Iterable[Source]) -> dict[str, tuple[str, str]]:
    """Return the template parameters and the dimensions of the kernels that are declared with some."""
    found = {}
    for source in sources:
        code = source.words
        closing = closing_brackets(code)
        for index, name, _ in kernel_headers(code, closing):
            begin = index
            while begin and code[begin - 1].text not in (";", "{", "}"):
                begin -= 1
            for at in range(begin, name):
                if code[at].text == "__cluster_dims__" and code[at + 1].text == "(":
                    words = [one.text for one in code[at + 2 : closing[at + 1]]]
                    template = template_parameters(source.masked, code, index) or ""
                    found[code[name].text] = (template, " ".join(words).replace(" ,", ","))
    return found


def _depends(template: str, text: str) -> bool:
    return not _parameters(template).keys().isdisjoint(_NAME.findall(text))


def _parameters(template: str) -> dict[str, int | None]:
    """Return the template parameters that are numbers with their places, and those that are types with None."""
    found: dict[str, int | None] = {}
    for place, parameter in enumerate(split_commas(template)):
        kind, *names = _NAME.findall(parameter.split("=")[0])
        if names:
            found[names[-1]] = None if kind in ("typename", "class", "template") else place
    return found


def exported_clusters(kernels: Iterable[str], dimensions: Mapping[str, str]) -> list[str]:
    """Return the lines that tell the clusters of exported kernels."""
    own = [kernel.split("<")[0].split("::")[-1].strip() for kernel in kernels]
    return [f"LK_CLUSTER({number}, {dimensions[name]})" for number, name in enumerate(own) if name in dimensions]


def registered_clusters(sources: Iterable[Source]) -> list[str]:
    """Return the lines that make the clusters of a program's kernels known to its launches.

    Example:
        >>> source = Source("template <int A, int B> __global__ void __cluster_dims__(A * B, 1) go() {}")
        >>> print(registered_clusters([source])[0].partition("= ")[2])
        lk::declare_cluster("go", [](const long long* lk_a, unsigned* lk_e) { \
const long long A = lk_a[0], B = lk_a[1]; const long long lk_d[] = {A * B, 1}; \
for (unsigned lk_i = 0; lk_i < sizeof lk_d / sizeof *lk_d; lk_i++) lk_e[lk_i] = unsigned(lk_d[lk_i]); });
    """
    return [
        f'static const bool lk_clustered_{name} = lk::declare_cluster("{name}", {_rule(template, text)});'
        for name, (template, text) in _declared(sources).items()
    ]


def _rule(template: str, text: str) -> str:
    """Return dimensions, or a function that computes them from template arguments: numbers, and not types."""
    used = {name: place for name, place in _parameters(template).items() if name in _NAME.findall(text)}
    if not used:
        return text
    if None in used.values():
        return f"{DEPENDENT}u"  # a plain 0 may be a pointer, too
    known = [f"{name} = lk_a[{place}]" for name, place in used.items()]
    return (
        f"[](const long long* lk_a, unsigned* lk_e) {{ const long long {', '.join(known)}; "
        f"const long long lk_d[] = {{{text}}}; "
        "for (unsigned lk_i = 0; lk_i < sizeof lk_d / sizeof *lk_d; lk_i++) lk_e[lk_i] = unsigned(lk_d[lk_i]); }"
    )
