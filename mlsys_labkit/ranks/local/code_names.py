"""The names in a program's code, by which its variables, attributes and modules are found without running it."""

from __future__ import annotations

import dis
import functools
from dataclasses import dataclass
from types import CodeType

from mlsys_labkit.ranks.local import patches

_READS_GLOBAL = {"LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"}
_READS_ATTRIBUTE = {"LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR", "IMPORT_FROM", "LOAD_SUPER_ATTR"}


@dataclass(frozen=True)
class Names:
    """The names in a function's code, and in the functions and classes that are defined inside it."""

    globals: frozenset[str]
    attributes: frozenset[str]
    imports: frozenset[str]
    texts: frozenset[str]  # strings that may be names: getattr(x, "rank")


@functools.lru_cache(4096)
def names_in(code: CodeType) -> Names:
    """Return the names that ``code`` uses.

    Example:
        >>> def f():
        ...     return model.rank
        >>> found = names_in(f.__code__)
        >>> sorted(found.globals), sorted(found.attributes)
        (['model'], ['rank'])

    Reference: Python documentation, ``dis``.
    """
    globals_, attributes, imports, texts = set(), set(), set(), set()
    for one in patches.all_code(code):
        texts |= {text for text in patches.texts_in(one) if text.isidentifier()}
        for instruction in dis.get_instructions(one):
            if instruction.opname in _READS_GLOBAL:
                globals_.add(instruction.argval)
            elif instruction.opname in _READS_ATTRIBUTE:
                attributes.add(instruction.argval)
            elif instruction.opname == "IMPORT_NAME":
                imports.add(instruction.argval)
    return Names(frozenset(globals_), frozenset(attributes), frozenset(imports), frozenset(texts))
