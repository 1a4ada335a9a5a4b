"""A kernel's parameters, as the compiler described them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast

from mlsys_labkit.cuda.source.tokens import split_commas

Kind = Literal["pointer", "integer", "unsigned", "float", "half", "bfloat16", "bool", "record", "void"]


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel.

    Attributes:
        name: from the source; empty where the source has none.
        type: as the compiler writes it, such as ``"const float*"``.
        kind, nbytes, alignment: of the value that is passed.
        element_kind, element_bytes, is_const: of what a pointer points to.
    """

    name: str
    type: str
    kind: Kind
    nbytes: int
    alignment: int
    element_kind: Kind = "void"
    element_bytes: int = 1
    is_const: bool = False

    @property
    def element_type(self) -> str:
        """``"float"`` of ``"const float*"``."""
        return self.type.removesuffix("*").strip().removeprefix("const ")

    def __str__(self) -> str:
        return f"{self.type} {self.name}".strip()


def read_parameters(description: str, source_text: str = "") -> tuple[Parameter, ...]:
    """Return the parameters that ``lk_describe`` lists, with names from the text between the kernel's parentheses.

    Example:
        >>> read_parameters("pointer\\t8\\t8\\tfloat\\t4\\tconst\\tconst float*\\n", "const float* a")[0].name
        'a'
    """
    rows = [line.split("\t") for line in description.splitlines()]
    names = parameter_names(source_text)
    if len(names) != len(rows):
        names = [""] * len(rows)
    return tuple(_parameter(name, row) for name, row in zip(names, rows, strict=True))


def signature(name: str, parameters: Sequence[Parameter]) -> str:
    """Return the kernel as a C++ declaration would show it."""
    return f"{name}({', '.join(map(str, parameters))})"


def _parameter(name: str, row: Sequence[str]) -> Parameter:
    kind, nbytes, alignment, element_kind, element_bytes, constness, written = row
    plain = Parameter(name, written, cast(Kind, kind), int(nbytes), int(alignment))
    if kind != "pointer":
        return plain
    element = cast(Kind, element_kind)
    return replace(plain, element_kind=element, element_bytes=int(element_bytes), is_const=constness == "const")


def parameter_names(text: str) -> list[str]:
    """Return the last word of each parameter, its default left out; "" for one that is not a plain declaration."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)
    parts = (part.split("=")[0].strip() for part in split_commas(text))
    words = [re.search(r"(\w+)\s*(?:\[[^\]]*\]\s*)*$", part) for part in parts]
    return [word[1] if word else "" for word in words]
