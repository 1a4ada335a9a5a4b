"""Races between programs: two access the same bytes, one of them stores, and their order is undefined.

The interpreter runs one program after the other, so a race changes no result here; on a GPU it may. Two atomics never
race. Two accesses are ordered when, in this run, the first program passed an atomic on one element after its access and
the second an atomic on the same element before its own: locks and counters that pick the last program. The first has
to release and the second to acquire, as atomics do unless ``sem`` or ``scope`` says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlsys_labkit.triton_trace.count.allocation_units import Board, unlike
from mlsys_labkit.triton_trace.count.log import AccessLog

Rows = NDArray[np.int64]
_Orders = frozenset[str]
_RELEASES, _ACQUIRES = frozenset(("release", "acq_rel")), frozenset(("acquire", "acq_rel"))
_ALL = _RELEASES | _ACQUIRES | {"relaxed"}
_UNORDERED_WITH = {"store": ("store", "load", "atomic"), "atomic": ("load",)}


@dataclass(frozen=True)
class Race:
    """Accesses of two lines that race.

    Attributes:
        earlier, later: one pair of them, as rows of the log; ``address`` is a byte that both touch.
        bytes: number of bytes in the race.
        relaxed: a row of an atomic that would order them, if it were not relaxed; -1 for none.
    """

    region: int
    earlier: int
    later: int
    address: int
    bytes: int
    relaxed: int = -1


def races(log: AccessLog) -> list[Race]:
    """Return one race for each pair of lines, in the order in which they happened.

    Reference: S. Savage et al., "Eraser", ACM TOCS 15(4), 1997; C. Flanagan and S. Freund, "FastTrack", PLDI 2009.
    """
    order = _Order(log)
    found: list[Race] = []
    for region in np.unique(log.region[(log.region >= 0) & (log.kind != "load")]).tolist():
        rows = log.rows(region, "load", "store", "atomic")
        if np.ptp(log.program[rows]) and (log.kind[rows] != "atomic").any():
            found += _races(log, region, rows, order)
    return sorted(found, key=lambda race: (race.later, race.earlier))


def _races(log: AccessLog, region: int, rows: Rows, order: _Order) -> list[Race]:
    board = Board(log, rows)
    contested = _contested(log, board)
    if not contested.any():
        return []
    row, place = _touches(log, board, contested)
    found = []
    for pairs in _pairs(log, row, place).values():
        for earlier, later, at in zip(*pairs, strict=True):
            if not order.holds(int(earlier), int(later)):
                amount = board.unit * np.unique(pairs[2]).size
                relaxed = order.relaxed(int(earlier), int(later))
                found.append(Race(region, int(earlier), int(later), int(board.addresses[at]), amount, relaxed))
                break
    return found


def _contested(log: AccessLog, board: Board) -> NDArray[np.bool_]:
    """Mark the places that two programs touch by accesses that may race."""
    first, last = {}, {}
    for kind in ("load", "store", "atomic"):
        rows = board.rows[log.kind[board.rows] == kind]
        rows, _ = unlike(log, rows, log.program)
        rows = rows[np.argsort(log.program[rows], kind="stable")]
        first[kind], last[kind] = (np.full(board.size, -1, np.int64) for _ in range(2))
        for marks, ordered in ((last[kind], rows), (first[kind], rows[::-1])):
            for (_, places), program in zip(board.places(ordered), log.program[ordered].tolist(), strict=True):
                marks[places] = program
    contested: NDArray[np.bool_] = first["store"] != last["store"]
    for kind, other in (("store", "load"), ("store", "atomic"), ("atomic", "load")):
        both = (first[kind] >= 0) & (first[other] >= 0)
        alone = (first[kind] == last[kind]) & (first[other] == last[other]) & (first[kind] == first[other])
        contested |= both & ~alone
    return contested


def _touches(log: AccessLog, board: Board, contested: NDArray[np.bool_]) -> tuple[Rows, Rows]:
    """Return (row, place) of every access to a contested place, by place and then by time."""
    hits = [(row, touched[contested[touched]]) for row, touched in board.places(board.rows)]
    row = np.repeat([row for row, _ in hits], [places.size for _, places in hits])
    place = np.concatenate([places for _, places in hits])
    order = np.lexsort((row, place))
    return row[order], place[order]


def _pairs(log: AccessLog, row: Rows, place: Rows) -> dict[tuple[int, int], tuple[Rows, Rows, Rows]]:
    """Return sites -> (earlier rows, later rows, places): each access with its nearest possible rivals in time."""
    kind, program, site = log.kind[row], log.program[row], log.site[row]
    index = np.arange(row.size)
    starts = np.maximum.accumulate(np.where(np.concatenate([[True], place[1:] != place[:-1]]), index, 0))
    lists = []
    for strong, weak in _UNORDERED_WITH.items():
        marked = kind == strong
        before = np.maximum.accumulate(np.where(marked, index, -1))
        before = np.concatenate([[-1], before[:-1]])  # strictly before
        after = np.minimum.accumulate(np.where(marked, index, row.size)[::-1])[::-1]
        after = np.concatenate([after[1:], [row.size]])
        chosen = np.isin(kind, weak)
        earlier = chosen & (before >= starts)
        lists.append((before[earlier], index[earlier]))
        later = chosen & (after < row.size)
        later[later] = place[after[later]] == place[later]
        lists.append((index[later], after[later]))
    one, two = (np.concatenate(parts) for parts in zip(*lists, strict=True))
    apart = program[one] != program[two]
    one, two = one[apart], two[apart]
    found = {}
    for key in sorted(set(zip(site[one].tolist(), site[two].tolist(), strict=True))):
        chosen = (site[one] == key[0]) & (site[two] == key[1])
        rows = np.stack([row[one[chosen]], row[two[chosen]], place[one[chosen]]])
        found[key] = (rows[0], rows[1], rows[2])
    return found


class _Order:
    """The order of programs by atomics on single elements; only a scalar can decide a branch."""

    def __init__(self, log: AccessLog) -> None:
        self._program = log.program
        self._passed: dict[int, list[tuple[int, int]]] = {}
        scalar = np.flatnonzero((log.kind == "atomic") & (log.elements == 1))
        for row, program, address in zip(
            scalar.tolist(), log.program[scalar].tolist(), log.first[scalar].tolist(), strict=True
        ):
            self._passed.setdefault(program, []).append((row, address))
        self._order = [site.order for site in log.sites]
        self._site = log.site
        self._known: dict[tuple[int, int], bool] = {}

    def holds(self, earlier: int, later: int) -> bool:
        """Return True if ``earlier`` is ordered before ``later``; both are rows, which are in order of time."""
        key = earlier, later
        if key not in self._known:
            self._known[key] = self._look(earlier, later, _RELEASES, _ACQUIRES) is not None
        return self._known[key]

    def relaxed(self, earlier: int, later: int) -> int:
        """Return the row of an atomic that would order two accesses if it were not relaxed, or -1."""
        pair = self._look(earlier, later, _ALL, _ALL)
        if pair is None:
            return -1
        released, acquired = pair
        return acquired if self._order[self._site[acquired]] not in _ACQUIRES else released

    def _look(self, earlier: int, later: int, releases: _Orders, acquires: _Orders) -> tuple[int, int] | None:
        """Return an atomic after ``earlier`` and one before ``later`` that order the two, or None."""
        released: dict[int, int] = {}
        for row, address in self._passed.get(int(self._program[earlier]), ()):
            if row > earlier and self._order[self._site[row]] in releases:
                released.setdefault(address, row)
        for row, address in self._passed.get(int(self._program[later]), ()):
            if row < later and released.get(address, later) < row and self._order[self._site[row]] in acquires:
                return released[address], row
        return None
