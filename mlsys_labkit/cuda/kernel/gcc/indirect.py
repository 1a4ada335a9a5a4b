"""Calls and jumps to a computed place, and addresses of functions, in the assembly of a graded kernel.

A call of a pointer reaches whatever the pointer holds: with the address of one function of the simulator's process, and
the distance to another, that is any function of it, such as a copy that no hook records. Neither the text nor the names
that a module imports show this; its instructions do. Of a graded kernel, therefore, every call names its target, and no
address of a function or a label is a value. C++ that needs neither is all that g++ makes of a course's kernels:
pointers to functions, and virtual functions, that are known where they are called are calls by name by then.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

_COMPUTED = re.compile(r"^\s+(?:(?:notrack\s+)?(?:call|jmp)q?\s+\*|blra?[ab]?z?\s|bra?[ab]?z?\s+x\d)")
_THREAD_LOCAL = re.compile(r"^\s+\.tlsdesccall\s")  # on aarch64, g++ marks the call that finds a __shared__ variable
_FUNCTION = re.compile(r"^\s+\.type\s+([\w.$]+),\s*[@%](?:function|gnu_indirect_function)")
_OBJECT = re.compile(r"^\s+\.type\s+([\w.$]+),\s*[@%](?:object|tls_object)")
_SECTION = re.compile(r"^\s+\.(?:section\s+([\w.$]+)|(text|data|bss)\b)")
_BY_NAME = re.compile(r"^\s+(?:j\w+|callq?|bl?|b\.?\w\w|cbn?z|tbn?z)\s")
_WORD = re.compile(r"^\s+\.(?:quad|xword|dword|8byte)\s+(.*)")
_NAME = re.compile(r"(?<![\w.$%])([A-Za-z_$][\w.$]*)(@\w+)?")
_LABEL = re.compile(r"^(\.L[\w.$]+):")
_PLACE = re.compile(r"(\.L[\w.$]+)(?!\S*-\s*\.)")  # one label; the difference of two is no address
_GLOBAL = ("@GOTPCREL", "@GOT", ":got:")  # the address of something that may stand elsewhere
_UNCHECKED = (".debug", ".init_array", ".eh_frame", ".gcc_except_table", ".note")


def computed_calls(assembly: str) -> Iterator[str]:
    """Yield, for each kind of indirect call or address of a function, what a graded kernel may not do.

    Example:
        >>> list(computed_calls("\\tcall\\t*%rax\\n"))
        ['a call through a pointer, or a virtual one: a graded kernel calls functions by their names']
        >>> list(computed_calls("\\tcall\\tsinf@PLT\\n"))
        []
        >>> list(computed_calls("\\t.tlsdesccall tile\\n\\tblr\\tx3\\n"))
        []
    """
    lines = assembly.splitlines()
    functions, objects = (
        {found[1] for line in lines if (found := pattern.match(line))} for pattern in (_FUNCTION, _OBJECT)
    )
    labels = _labels_in_code(lines)
    taken: set[str] = set()
    is_computed, is_labelled, section = False, False, ".text"
    for before, line in pairwise(["", *lines]):
        if found := _SECTION.match(line):
            section = found[1] or f".{found[2]}"
        if line[:1] not in "\t " or section.startswith(_UNCHECKED):
            continue
        code = line.partition("#")[0]
        is_computed = is_computed or bool(_COMPUTED.match(code) and not _THREAD_LOCAL.match(before))
        is_word = _WORD.match(code)
        if not is_word and (code.lstrip().startswith((".", "//")) or _BY_NAME.match(code)):
            continue
        operands = is_word[1] if is_word else code.lstrip().partition("\t")[2]
        is_labelled = is_labelled or not labels.isdisjoint(_PLACE.findall(operands))
        for name, way in _NAME.findall(operands):
            elsewhere = way in _GLOBAL or f":got:{name}" in code
            if name in functions or (elsewhere and name not in objects):
                taken.add(name)
    if is_computed:
        yield "a call through a pointer, or a virtual one: a graded kernel calls functions by their names"
    if is_labelled:
        yield "a label: a graded kernel takes no address of a label"
    yield from (f"{name}: a graded kernel takes no address of a function" for name in sorted(taken))


def _labels_in_code(lines: Iterable[str]) -> set[str]:
    found: set[str] = set()
    section = ".text"
    for line in lines:
        if entered := _SECTION.match(line):
            section = entered[1] or f".{entered[2]}"
        elif section.startswith(".text") and (label := _LABEL.match(line)):
            found.add(label[1])
    return found
