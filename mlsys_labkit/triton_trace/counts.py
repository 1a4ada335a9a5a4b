"""What a launch moved, line by line and array by array, out of its log. Every program counts; nothing is scaled up."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlsys_labkit.triton_trace.board import Board, unlike
from mlsys_labkit.triton_trace.log import Log, region_of
from mlsys_labkit.triton_trace.recorder import Argument, Kind, Line

__all__ = ["Access", "ArrayTraffic", "accesses", "alike", "arrays"]

_READS = ("load", "atomic")
_WRITES = ("store", "atomic")


@dataclass(frozen=True)
class Access:
    """One kind of access to one array on one source line, summed over the programs.

    Attributes:
        line: where; array: the argument ("x, out" where several lie in the same memory); kind: load, store or atomic.
        count: how often the line was passed with this access. elements: lanes that took part, masked-off ones not.
        bytes_requested: of those lanes: the traffic when nothing is kept anywhere.
        program_bytes: distinct bytes of each program, summed over programs: the traffic when each program keeps what it
            has and programs share nothing. An upper bound of what DRAM sees.
        distinct_bytes: of all programs together: the lower bound, with a cache that never forgets.
    """

    line: Line
    array: str
    kind: Kind
    count: int
    elements: int
    masked_off: int
    bytes_requested: int
    program_bytes: int
    distinct_bytes: int


@dataclass(frozen=True)
class ArrayTraffic:
    """What the programs asked of one array; an atomic both loads and stores. Masked-off lanes ask for nothing.

    Arrays that share memory each count what falls into them.

    Attributes:
        loaded_elements, stored_elements: lanes, each time they ask. loaded_bytes, stored_bytes: the same in bytes.
        distinct_loaded_bytes, distinct_stored_bytes: bytes of the array that were touched at all.
    """

    name: str
    loaded_elements: int
    stored_elements: int
    loaded_bytes: int
    stored_bytes: int
    distinct_loaded_bytes: int
    distinct_stored_bytes: int


def accesses(log: Log) -> tuple[Access, ...]:
    """By line, in the order of the source."""
    own = _program_bytes(log)
    idle = np.bincount(log.site[log.region < 0], log.masked[log.region < 0], len(log.sites)).astype(int)
    found = []
    for site, region in _pairs(log):
        rows = np.flatnonzero((log.site == site) & (log.region == region))
        kind, line, size = log.sites[site]
        elements = int(log.elements[rows].sum())
        masked = int(log.masked[rows].sum()) + int(idle[site])
        idle[site] = 0  # a block that was masked off whole belongs to no array: it is counted with the first
        name = _name(log, region, rows)
        distinct = _distinct(log, rows)
        found.append(
            Access(line, name, kind, rows.size, elements, masked, elements * size, own[site, region], distinct)
        )
    for site in np.flatnonzero(idle).tolist():
        at = log.sites[site]
        found.append(Access(at.line, "", at.kind, 0, 0, int(idle[site]), 0, 0, 0))
    return tuple(sorted(found, key=lambda one: (one.line, one.array, one.kind)))


def arrays(log: Log) -> dict[str, ArrayTraffic]:
    """By argument."""
    found = {}
    for one in log.arguments:
        rows = np.flatnonzero(log.region == region_of(one.start))
        loaded = rows[np.isin(log.kind[rows], _READS)]
        stored = rows[np.isin(log.kind[rows], _WRITES)]
        loads, load_bytes = _within(log, loaded, one)
        stores, store_bytes = _within(log, stored, one)
        found[one.name] = ArrayTraffic(
            one.name,
            loads,
            stores,
            load_bytes,
            store_bytes,
            _touched(log, loaded, one),
            _touched(log, stored, one),
        )
    return found


def _program_bytes(log: Log) -> dict[tuple[int, int], int]:
    """(site, region) -> distinct bytes of each program, summed over the programs.

    Programs whose accesses lie to each other as another program's do have the same count: few are looked at.
    """
    total: Counter[tuple[int, int]] = Counter()
    for rows, times in alike(log):
        groups: dict[tuple[int, int], list[int]] = defaultdict(list)
        for row, site, region in zip(rows.tolist(), log.site[rows].tolist(), log.region[rows].tolist(), strict=True):
            groups[site, region].append(row)
        for (site, region), members in groups.items():
            total[site, region] += times * _distinct(log, np.array(members))
    return total


def alike(log: Log) -> list[tuple[NDArray[np.int64], int]]:
    """Rows of one program of each sort, and how many programs of that sort there are.

    Two programs are of a sort when they make the same accesses in the same order and each allocation's lie to each
    other in the same way.
    """
    active = np.flatnonzero(log.region >= 0)
    order = active[np.lexsort((active, log.region[active], log.program[active]))]
    if not order.size:
        return []
    program, region, first = log.program[order], log.region[order], log.first[order]
    begins = np.concatenate([[True], (program[1:] != program[:-1]) | (region[1:] != region[:-1])])
    anchor = first[begins][np.cumsum(begins) - 1]
    signature = np.stack([log.site[order], log.shape[order], region, first - anchor], axis=1)
    starts = np.flatnonzero(np.concatenate([[True], program[1:] != program[:-1]]))
    stops = np.append(starts[1:], order.size)
    sorts: dict[bytes, list[int]] = {}
    for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
        known = sorts.setdefault(signature[start:stop].tobytes(), [start, stop, 0])
        known[2] += 1
    return [(np.sort(order[start:stop]), times) for start, stop, times in sorts.values()]


def _pairs(log: Log) -> list[tuple[int, int]]:
    active = log.region >= 0
    return sorted(set(zip(log.site[active].tolist(), log.region[active].tolist(), strict=True)))


def _distinct(log: Log, rows: NDArray[np.int64]) -> int:
    """Distinct bytes of accesses to one allocation."""
    if rows.size == 1:
        return int(log.shapes[log.shape[rows[0]]].offsets.size * log.itemsize[rows[0]])
    return Board(log, rows).bytes_touched


def _within(log: Log, rows: NDArray[np.int64], argument: Argument) -> tuple[int, int]:
    """Lanes that ask for something of the argument, and their bytes."""
    lows, highs = log.extents
    if not rows.size or (argument.start <= lows[rows].min() and highs[rows].max() <= argument.stop):
        return int(log.elements[rows].sum()), int((log.elements[rows] * log.itemsize[rows]).sum())
    elements = total = 0
    for row, count in zip(*unlike(log, rows), strict=True):
        shape = log.shapes[log.shape[row]]
        at = shape.offsets + log.first[row]
        inside = int(shape.times[(at >= argument.start) & (at < argument.stop)].sum() * count)
        elements += inside
        total += inside * int(log.itemsize[row])
    return elements, total


def _touched(log: Log, rows: NDArray[np.int64], argument: Argument) -> int:
    if not rows.size:
        return 0
    board = Board(log, rows)
    at = board.addresses[board.marks()]
    return board.unit * int(np.count_nonzero((at >= argument.start) & (at < argument.stop)))


def _name(log: Log, region: int, rows: NDArray[np.int64]) -> str:
    owners = log.owners(region)
    if len(owners) > 1:
        low, high = log.extents[0][rows].min(), log.extents[1][rows].max()
        owners = tuple(one for one in owners if one.start < high and low < one.stop)
    return ", ".join(one.name for one in owners)
