"""Unowned bytes around every ``__shared__`` array of the instrumented build: no index runs into a neighbour unseen.

They are put in between gcc and the assembler: there every array is one label with its bytes behind it.
"""

from __future__ import annotations

import re

_LEAST_BYTES = 256
_MOST_BYTES = 8192
_SECTION = re.compile(r"^\s*\.(?:section\s+(\.[\w.$]+)|(text|data|bss|previous|pushsection|popsection)\b)")
_LABEL = re.compile(r"^[\w.$]+:$")
_ZERO = re.compile(r"^\s*\.zero\s+(\d+)$")


def with_red_zones(assembly: str) -> str:
    """Return the assembly with space before the first thread-local array and, of an array's own size, behind each.

    Example:
        >>> with_red_zones('.section .tbss,"awT",@nobits\\ntile:\\n.zero 1024\\n.text').split()[-3:]
        ['.zero', '1024', '.text']
    """
    lines = ['\t.section\t.tbss,"awT",%nobits', "\t.balign\t128", f"\t.zero\t{_LEAST_BYTES}", "\t.text"]
    in_shared = labelled = False
    for line in assembly.split("\n"):
        lines.append(line)
        if section := _SECTION.match(line):
            in_shared, labelled = (section[1] or "").startswith(".tbss"), False
        elif in_shared and _LABEL.match(line):
            labelled = True
        elif in_shared and labelled and (zero := _ZERO.match(line)):
            lines.append(f"\t.zero\t{_zone_bytes(int(zero[1]))}")
            labelled = False
    return "\n".join(lines)


def _zone_bytes(size: int) -> int:
    return max(_LEAST_BYTES, min(_MOST_BYTES, size))
