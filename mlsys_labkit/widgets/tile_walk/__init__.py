"""Tile walk: a block's tiles of A and B along k, and the global memory traffic that they save."""

from __future__ import annotations

from typing import Any

from mlsys_labkit._base.units import plain, si
from mlsys_labkit.errors import LabkitError
from mlsys_labkit.widgets.base import Kind, State, paragraph, table
from mlsys_labkit.widgets.tile_walk import model

TILES = (1, 2, 4, 8, 16, 32, 64, 128)
REGISTERS = (1, 2, 4, 8)
LARGEST = 16384


def tile_walk(n: int = 64, tile: int = 16, *, register: int = 1, item_bytes: int = 4) -> Any:
    """Walk a tiled matrix product C = A·B (``n`` x ``n``) step by step, and see the bytes that the tile saves.

    A block computes a ``tile`` x ``tile`` piece of C (1 is the naive kernel, without shared memory); each thread
    ``register`` x ``register`` elements of it. ``item_bytes`` is the size of an element (2, 4 or 8).
    Raises LabkitError when ``n`` is not 1 to 16384, ``tile`` or ``register`` not on offer, or ``register`` > ``tile``.
    Reference: Kirk and Hwu, "Programming Massively Parallel Processors", chapter on memory and data locality.

    Example:
        >>> tile_walk(n=1024, tile=64, register=4)
        <Tile walk>
    """
    if not 1 <= n <= LARGEST or tile not in TILES or item_bytes not in (2, 4, 8):
        raise LabkitError(
            f"expected n from 1 to {LARGEST}, tile in {TILES} and item_bytes 2, 4 or 8, "
            f"got {n}, {tile} and {item_bytes}"
        )
    if register not in REGISTERS or register > tile:
        raise LabkitError(f"register is one of {REGISTERS} and at most the tile of {tile}, got {register}")
    return KIND.show(
        n=int(n),
        tile=tile,
        register=register,
        item=item_bytes,
        tiles=list(TILES),
        registers=list(REGISTERS),
        block=0,
        step=0,
    )


def _static(state: State) -> str:
    n, register, item = state["n"], state["register"], state["item"]
    rows = []
    for tile in TILES:
        loaded, intensity = si(model.loaded_bytes(n, tile, item), "B"), plain(model.intensity(n, tile, item))
        shared, threads = si(model.shared_bytes(tile, item), "B"), model.threads(tile, min(register, tile))
        rows.append([f"{tile} x {tile}", loaded, f"{intensity} FLOP/B", shared, threads])
    head = ["tile", "loaded from global memory", "intensity", "shared memory a block", "threads a block"]
    words = f"Each element of A and B is loaded once for every tile along the other side: 2·n³/tile·{item} bytes."
    return paragraph(words) + table(f"C = A·B with n = {n}, {register} x {register} elements a thread", head, rows)


KIND = Kind("tile_walk", "Tile walk", _static)
