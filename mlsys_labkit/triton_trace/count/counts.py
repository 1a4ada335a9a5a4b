"""Traffic of a launch by source line and by array, from its log. Every program is counted; nothing is extrapolated."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlsys_labkit.triton_trace.count.allocation_units import Board, unlike
from mlsys_labkit.triton_trace.count.log import AccessLog
from mlsys_labkit.triton_trace.interpret.memory import region_number
from mlsys_labkit.triton_trace.recorder import Argument, Kind, Line

_READS = ("load", "atomic")
_WRITES = ("store", "atomic")


@dataclass(frozen=True)
class Access:
    """One kind of access to one array on one source line, summed over the programs.

    Attributes:
        line: the source line. array: the argument ("x, out" where several share memory). kind: load, store or atomic.
        count: how often the access was executed. elements: active lanes, without masked-off ones.
        bytes_requested: bytes of those lanes: the traffic without any cache.
        program_bytes: distinct bytes of each program, summed over programs: the traffic when each program keeps its
            data and programs share nothing. An upper bound of the DRAM traffic.
        distinct_bytes: distinct bytes of all programs: the lower bound, with an infinite cache.
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
    """Traffic of one array, without masked-off lanes; an atomic both loads and stores.

    Arrays that share memory each count the accesses to their own bytes.

    Attributes:
        loaded_elements, stored_elements: lanes, counted at every access. loaded_bytes, stored_bytes: their bytes.
        distinct_loaded_bytes, distinct_stored_bytes: bytes of the array that were touched at all.
    """

    name: str
    loaded_elements: int
    stored_elements: int
    loaded_bytes: int
    stored_bytes: int
    distinct_loaded_bytes: int
    distinct_stored_bytes: int


def accesses(log: AccessLog) -> tuple[Access, ...]:
    """Return the traffic by line, in the order of the source."""
    own = _program_bytes(log)
    active = log.region >= 0
    idle = np.bincount(log.site[~active], log.masked[~active], len(log.sites)).astype(int)
    found = []
    for site, region in sorted(set(zip(log.site[active].tolist(), log.region[active].tolist(), strict=True))):
        rows = np.flatnonzero((log.site == site) & (log.region == region))
        kind, line, size, _ = log.sites[site]
        elements = int(log.elements[rows].sum())
        masked = int(log.masked[rows].sum()) + int(idle[site])
        idle[site] = 0  # a block that is masked off completely belongs to no array: count it with the first
        name = _name(log, region, rows)
        distinct = _distinct(log, rows)
        found.append(
            Access(line, name, kind, rows.size, elements, masked, elements * size, own[site, region], distinct)
        )
    for site in np.flatnonzero(idle).tolist():
        at = log.sites[site]
        found.append(Access(at.line, "", at.kind, 0, 0, int(idle[site]), 0, 0, 0))
    return tuple(sorted(found, key=lambda one: (one.line, one.array, one.kind)))


def arrays(log: AccessLog) -> dict[str, ArrayTraffic]:
    """Return the traffic by argument."""
    found = {}
    for one in log.arguments:
        rows = np.flatnonzero(log.region == region_number(one.start))
        loaded = rows[np.isin(log.kind[rows], _READS)]
        stored = rows[np.isin(log.kind[rows], _WRITES)]
        loads, load_bytes = _within(log, loaded, one)
        stores, store_bytes = _within(log, stored, one)
        found[one.name] = ArrayTraffic(
            one.name, loads, stores, load_bytes, store_bytes, _touched(log, loaded, one), _touched(log, stored, one)
        )
    return found


def _program_bytes(log: AccessLog) -> dict[tuple[int, int], int]:
    """Return (site, region) -> distinct bytes of each program, summed over the programs.

    Programs with the same pattern of accesses have the same count, so only one of each sort is examined.
    """
    total: Counter[tuple[int, int]] = Counter()
    for rows, times in alike(log):
        groups: dict[tuple[int, int], list[int]] = defaultdict(list)
        for row, site, region in zip(rows.tolist(), log.site[rows].tolist(), log.region[rows].tolist(), strict=True):
            groups[site, region].append(row)
        for (site, region), members in groups.items():
            total[site, region] += times * _distinct(log, np.array(members))
    return total


def alike(log: AccessLog) -> list[tuple[NDArray[np.int64], int]]:
    """Return the rows of one program of each sort, and the number of programs of that sort.

    Two programs are of one sort when they make the same accesses in the same order, at the same distances within each
    allocation.
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


def _distinct(log: AccessLog, rows: NDArray[np.int64]) -> int:
    """Count the distinct bytes of accesses to one allocation."""
    if rows.size == 1:
        return int(log.shapes[log.shape[rows[0]]].offsets.size * log.itemsize[rows[0]])
    return Board(log, rows).bytes_touched


def _within(log: AccessLog, rows: NDArray[np.int64], argument: Argument) -> tuple[int, int]:
    """Count the lanes that access the argument, and their bytes."""
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


def _touched(log: AccessLog, rows: NDArray[np.int64], argument: Argument) -> int:
    if not rows.size:
        return 0
    board = Board(log, rows)
    at = board.addresses[board.marks()]
    return board.unit * int(np.count_nonzero((at >= argument.start) & (at < argument.stop)))


def _name(log: AccessLog, region: int, rows: NDArray[np.int64]) -> str:
    owners = log.owners(region)
    if len(owners) > 1:
        low, high = log.extents[0][rows].min(), log.extents[1][rows].max()
        owners = tuple(one for one in owners if one.start < high and low < one.stop)
    return ", ".join(one.name for one in owners)
