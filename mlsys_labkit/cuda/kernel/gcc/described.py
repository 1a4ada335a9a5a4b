"""gcc's own description of its instructions (``-dP``): comments in the assembly, before each of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

COMMENT = ("#(", "# ", "//(", "// ")


def instructions(lines: Sequence[str], number: int, calls: int = 0) -> Iterator[str]:
    """Yield the description of each instruction behind line ``number``, without its notes, up to a call or a jump.

    ``calls`` are passed. The call for a shared array's address is none.
    """
    text: list[str] = []
    for at in range(number + 1, len(lines)):  # a slice would copy the rest of the assembly for each hook in it
        line = lines[at]
        if line.startswith(COMMENT):
            text.append(line.lstrip("#/ "))
        elif text:
            said = "\n".join(text).split("(expr_list", 1)[0]
            text.clear()
            if said.startswith("(call_insn") and "tls" not in said.lower():
                calls -= 1
                if calls < 0:
                    return
            elif said.startswith("(jump_insn"):
                return
            else:
                yield said
