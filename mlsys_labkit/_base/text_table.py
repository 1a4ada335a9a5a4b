"""Tables in plain text, for reports that are printed."""

from __future__ import annotations

from collections.abc import Container, Sequence


def text_table(rows: Sequence[Sequence[str]], right: Container[int] = ()) -> list[str]:
    """Return a line per row. Columns are two spaces apart; those numbered in ``right`` are aligned to the right.

    Example:
        >>> print(*text_table([("rank", "bytes"), ("0", "4096")], right=[1]), sep="\\n")
        rank  bytes
        0      4096
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
