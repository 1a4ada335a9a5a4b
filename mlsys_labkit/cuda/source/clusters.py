"""The thread block clusters that kernels are declared with: ``__cluster_dims__(2, 1, 1)``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from mlsys_labkit.cuda.source.kernels import kernel_headers, template_parameters
from mlsys_labkit.cuda.source.source import Source
from mlsys_labkit.cuda.source.tokens import closing_brackets

DEPENDENT = "0"  # dimensions that depend on template arguments: no launch has them


def cluster_dimensions(sources: Iterable[Source]) -> dict[str, str]:
    """Return the dimensions of the kernels that are declared with some, as C++, by the kernels' own names.

    Example:
        >>> cluster_dimensions([Source("__global__ void __cluster_dims__(N, 2) go() {}  __global__ void f() {}")])
        {'go': 'N, 2'}

    Reference: CUDA C++ programming guide, "Thread Block Clusters".
    """
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
                    dependent = any(
                        re.search(rf"\b{re.escape(word)}\b", template) for word in words if word.isidentifier()
                    )
                    found[code[name].text] = DEPENDENT if dependent else " ".join(words).replace(" ,", ",")
    return found


def exported_clusters(kernels: Iterable[str], dimensions: Mapping[str, str]) -> list[str]:
    """Return the lines that tell the clusters of exported kernels."""
    own = [kernel.split("<")[0].split("::")[-1].strip() for kernel in kernels]
    return [f"LK_CLUSTER({number}, {dimensions[name]})" for number, name in enumerate(own) if name in dimensions]


def registered_clusters(dimensions: Mapping[str, str]) -> list[str]:
    """Return the lines that make the clusters of a program's kernels known to its launches."""
    return [
        f'static const bool lk_clustered_{name} = lk::declare_cluster("{name}", {text});'
        for name, text in dimensions.items()
    ]
