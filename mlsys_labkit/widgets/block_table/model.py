"""Owners of the blocks of a paged cache after each step; the twin of ``model.js``.

A step is ``(changes, turned)``. A change is ``(owner, held, kept, *blocks)``: the owner's table keeps its first
``kept`` blocks, the others follow, and ``held`` of its slots are filled; a table without blocks is gone. ``turned``
lists the blocks that became cached, or ceased to be, in this step.
Reference: Kwon et al., "PagedAttention", SOSP 2023, sec. 4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

Step = Sequence[Sequence[Any]]


class RequestBlockTable(NamedTuple):
    """The blocks of one request in the order of its tokens, and the number of slots that hold one."""

    owner: int
    held: int
    blocks: list[int]


def tables(steps: Sequence[Step], at: int) -> list[RequestBlockTable]:
    """Return every table after step ``at``, by owner.

    Example:
        >>> tables([([(0, 5, 0, 7, 8)], []), ([(0, 9, 2, 3), (1, 2, 0, 4)], []), ([(1, 0, 0)], [])], at=2)
        [RequestBlockTable(owner=0, held=9, blocks=[7, 8, 3])]
    """
    now: dict[int, tuple[int, list[int]]] = {}
    for changes, _ in steps[: at + 1]:
        for owner, held, kept, *blocks in changes:
            now[owner] = (held, [*(now[owner][1][:kept] if owner in now else []), *blocks])
    return [RequestBlockTable(owner, held, blocks) for owner, (held, blocks) in sorted(now.items()) if blocks]


def cached(steps: Sequence[Step], at: int) -> list[int]:
    """Return the blocks without a table whose contents can still be found, after step ``at``.

    Example:
        >>> cached([([], [4, 2]), ([], [4])], at=1)
        [2]
    """
    found: set[int] = set()
    for _, turned in steps[: at + 1]:
        found ^= set(turned)
    return sorted(found)


def pool(now: Sequence[RequestBlockTable], block_size: int) -> Mapping[str, list[int]]:
    """Return, for each block in use, [tables that hold it, slots filled, its first owner].

    Example:
        >>> pool([RequestBlockTable(0, 5, [7, 8]), RequestBlockTable(1, 6, [7, 9])], block_size=4)
        {'7': [2, 4, 0], '8': [1, 1, 0], '9': [1, 2, 1]}
    """
    found: dict[str, list[int]] = {}
    for owner, held, blocks in now:
        for at, block in enumerate(blocks):
            entry = found.setdefault(str(block), [0, 0, owner])
            entry[0] += 1
            entry[1] = max(entry[1], min(block_size, max(0, held - at * block_size)))
    return found


def counts(used: Mapping[str, list[int]], block_size: int) -> list[int]:
    """Return [blocks in use, those of them that are shared, slots in them, slots without a token].

    Example:
        >>> counts({"7": [2, 4, 0], "8": [1, 1, 0], "9": [1, 2, 1]}, block_size=4)
        [3, 1, 12, 5]
    """
    slots = len(used) * block_size
    shared = sum(references > 1 for references, _, _ in used.values())
    return [len(used), shared, slots, slots - sum(filled for _, filled, _ in used.values())]
