"""Ways through a graph of translators; the twin of ``model.js``.

Reference: Chen et al., "TVM", OSDI 2018, sec. 1, on the many front ends and many back ends of deep learning.
"""

from __future__ import annotations

from collections.abc import Sequence

Edge = Sequence[str]


def ways(edges: Sequence[Edge], start: str, end: str) -> list[list[str]]:
    """Return all ways along ``edges`` from ``start`` to ``end``, shortest first, each a list of nodes.

    Example:
        >>> ways([("a", "b"), ("b", "d"), ("a", "c"), ("c", "d"), ("a", "d")], "a", "d")
        [['a', 'd'], ['a', 'b', 'd'], ['a', 'c', 'd']]
    """
    found: list[list[str]] = []
    waiting = [[start]]
    while waiting:
        way = waiting.pop(0)
        if way[-1] == end:
            found.append(way)
            continue
        waiting += [[*way, target] for source, target in edges if source == way[-1] and target not in way]
    return found
