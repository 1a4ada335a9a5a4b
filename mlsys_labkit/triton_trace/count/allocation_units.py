"""``Board``: the units of one allocation, to mark which accesses touch them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlsys_labkit.triton_trace.count.log import AccessLog, Units

_SPARSE = 16  # above this ratio of all units to touched ones, only touched units get a place


class Board:
    """Places for every unit of one allocation that accesses touch. A unit is the smallest element among them.

    Attributes:
        rows: the accesses, as indices into the log. unit: bytes of a unit. size: how many places there are.
    """

    def __init__(self, log: AccessLog, rows: NDArray[np.int64]) -> None:
        self._log = log
        self.rows = rows
        self.unit = int(log.itemsize[rows].min())
        lows, highs = log.extents
        self._low = int(lows[rows].min()) // self.unit
        self.size = int(highs[rows].max()) // self.unit - self._low
        distinct, _ = unlike(log, rows)
        touched = sum(log.shapes[shape].offsets.size for shape in log.shape[distinct].tolist())
        self._touched: Units | None = None
        if self.size > _SPARSE * (touched + 4096):
            self._touched = np.unique(np.concatenate([units for _, units in self._units(distinct)]))
            self.size = self._touched.size

    def places(self, rows: NDArray[np.int64]) -> Iterator[tuple[int, Units]]:
        """Yield each of ``rows``, which are among the board's, and the places that it touches, ascending."""
        for row, units in self._units(rows):
            yield row, units if self._touched is None else np.searchsorted(self._touched, units)

    def marks(self, rows: NDArray[np.int64] | None = None) -> NDArray[np.bool_]:
        """Return a bool per place, True where ``rows`` (all by default) touch it."""
        marks = np.zeros(self.size, np.bool_)
        for _, places in self.places(unlike(self._log, self.rows if rows is None else rows)[0]):
            marks[places] = True
        return marks

    def find(self, addresses: Units) -> Units:
        """Return the places of addresses; -1 where the board has none."""
        units = addresses // self.unit - self._low
        if self._touched is None:
            return np.where((units >= 0) & (units < self.size), units, -1)
        at = np.minimum(np.searchsorted(self._touched, units), self.size - 1)
        return np.where(self._touched[at] == units, at, -1)

    @property
    def bytes_touched(self) -> int:
        return self.unit * int(np.count_nonzero(self.marks()))

    @cached_property
    def addresses(self) -> Units:
        """Return the address of each place, int64 [size]."""
        units = np.arange(self.size) if self._touched is None else self._touched
        return np.asarray((units + self._low) * self.unit)

    def _units(self, rows: NDArray[np.int64]) -> Iterator[tuple[int, Units]]:
        log, unit = self._log, self.unit
        firsts = (log.first[rows] // unit - self._low).tolist()
        columns: Any = rows.tolist(), log.shape[rows].tolist(), log.itemsize[rows].tolist(), firsts
        for row, shape, itemsize, first in zip(*columns, strict=True):
            yield row, log.shapes[shape].units(itemsize, unit) + first


def unlike(log: AccessLog, rows: NDArray[np.int64], *columns: NDArray[np.int64]) -> tuple[NDArray[np.int64], Units]:
    """Group ``rows`` that touch the same bytes and agree in ``columns``; return the first of each and the counts."""
    if rows.size < 2:
        return rows, np.ones(rows.size, np.int64)
    keys = [column[rows] for column in (*columns, log.itemsize, log.shape, log.first)]
    order = np.lexsort(keys)
    differs = np.zeros(rows.size - 1, np.bool_)
    for key in keys:
        differs |= np.diff(key[order]) != 0
    starts = np.flatnonzero(np.concatenate([[True], differs]))
    return rows[order[starts]], np.diff(np.append(starts, rows.size))
