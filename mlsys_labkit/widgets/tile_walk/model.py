"""Traffic and shared memory of a tiled matrix product; the twin of ``model.js``.

C = A·B, all ``n`` x ``n``. A block owns a ``tile`` x ``tile`` piece of C and walks along k, ``tile`` columns of A and
``tile`` rows of B at a time; a thread owns ``register`` x ``register`` elements of the block's piece.
Reference: Kirk and Hwu, "Programming Massively Parallel Processors", chapter on memory and data locality.
"""

from __future__ import annotations

from typing import NamedTuple


class Piece(NamedTuple):
    """Rows ``top`` to ``bottom`` and columns ``left`` to ``right`` of a matrix; ends are exclusive."""

    top: int
    bottom: int
    left: int
    right: int


def steps(n: int, tile: int) -> int:
    """Return the tiles along one side, the last one clipped where ``tile`` does not divide ``n``."""
    return -(-n // tile)


def loaded_bytes(n: int, tile: int, item_bytes: int) -> int:
    """Return the bytes of A and B that all blocks load: each element once for every tile along the other matrix's side.

    Example:
        >>> loaded_bytes(1024, tile=16, item_bytes=4) == 2 * 1024**3 // 16 * 4  # the tiling formula
        True
    """
    return 2 * n * n * steps(n, tile) * item_bytes


def global_bytes(n: int, tile: int, item_bytes: int) -> int:
    """Return the loads of A and B, and C written once."""
    return loaded_bytes(n, tile, item_bytes) + n * n * item_bytes


def intensity(n: int, tile: int, item_bytes: int) -> float:
    """Return FLOPs a byte asked of global memory, at 2 FLOPs a multiply-add."""
    return 2 * n**3 / global_bytes(n, tile, item_bytes)


def shared_bytes(tile: int, item_bytes: int) -> int:
    """Return the shared memory of one block: a tile of A and one of B. A tile of 1 shares nothing."""
    return 2 * tile * tile * item_bytes if tile > 1 else 0


def threads(tile: int, register: int) -> int:
    """Return the threads of one block."""
    return (tile // register) ** 2


def shared_loads_per_fma(tile: int, register: int) -> float:
    """Return the words that a thread reads from shared memory for each multiply-add: 2r words serve r x r of them."""
    return 2 / register if tile > 1 else 0.0


def walk(n: int, tile: int, block: int, step: int) -> list[Piece]:
    """Return the pieces of A, B and C that ``block`` (counted along the rows of C) works on in ``step`` of its walk."""
    down, right = divmod(block, steps(n, tile))
    rows, columns, depth = (_span(at, n, tile) for at in (down, right, step))
    return [Piece(*rows, *depth), Piece(*depth, *columns), Piece(*rows, *columns)]


def _span(at: int, n: int, tile: int) -> tuple[int, int]:
    return at * tile, min(n, (at + 1) * tile)
