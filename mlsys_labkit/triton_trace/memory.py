"""The arrays of a launch under a GPU's addresses. No address of a kernel is ever used as one of this process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["DISTANCE", "Memory", "Region"]

DISTANCE = 1 << 40  # between arrays: what strays from one is never taken for another
_HALF = np.uint64(DISTANCE // 2)
_BITS = np.uint64(40)
_PADDING = 16
_POISON = 0x5A


@dataclass
class Region:
    """Bytes [start, stop) in ``buffer``, which begins at ``start`` rounded down to 16."""

    start: int
    stop: int
    buffer: NDArray[np.uint8]
    writable: bool = True
    stored: bool = False

    @property
    def base(self) -> int:
        return self.start & -_PADDING

    @staticmethod
    def room(start: int, stop: int) -> int:
        """Bytes that ``buffer`` has to have."""
        base = start & -_PADDING
        return -(-(stop - base) // _PADDING) * _PADDING


class Memory:
    """Regions, the i-th within (i + 1) * DISTANCE and half a DISTANCE on either side."""

    def __init__(self, regions: Sequence[Region]) -> None:
        self.regions = tuple(regions)

    def region_of(self, address: int) -> Region | None:
        """The array that ``address`` belongs to, or has strayed from."""
        index = ((address + DISTANCE // 2) >> 40) - 1
        return self.regions[index] if 0 <= index < len(self.regions) else None

    def outside(
        self, addresses: NDArray[np.uint64], mask: NDArray[np.bool_] | None, itemsize: int
    ) -> NDArray[np.bool_] | None:
        """True where an access that is not masked off lies outside every array; None when none does."""
        active = addresses if mask is None else addresses[mask]
        if not active.size:
            return None
        region = self._common(active, itemsize)
        if region is not None:
            return None
        wrong = np.ones(addresses.shape, np.bool_)
        for region in self.regions:
            if region.stop - region.start >= itemsize:
                offsets = addresses - np.uint64(region.start)
                wrong &= offsets > np.uint64(region.stop - region.start - itemsize)
        if mask is not None:
            wrong &= mask
        return wrong if wrong.any() else None

    def load(
        self,
        addresses: NDArray[np.uint64],
        mask: NDArray[np.bool_] | None,
        other: NDArray[Any],
        outside: NDArray[np.bool_] | None,
        nan: int | None = None,
    ) -> NDArray[Any]:
        """What stands at ``addresses``; ``other`` where the mask is False, poison (``nan``) where it is outside."""
        dtype = other.dtype
        if mask is None and outside is None and addresses.size:
            region = self._common(addresses, dtype.itemsize)
            if region is not None:
                return np.asarray(_typed(region, dtype)[_places(region, addresses, dtype)])
        result = np.array(np.broadcast_to(other, addresses.shape))
        for region, chosen in self._split(addresses, mask, outside):
            result[chosen] = _typed(region, dtype)[_places(region, addresses[chosen], dtype)]
        if outside is not None:
            result[outside] = poison(dtype) if nan is None else nan
        return result

    def store(
        self,
        addresses: NDArray[np.uint64],
        mask: NDArray[np.bool_] | None,
        values: NDArray[Any],
        outside: NDArray[np.bool_] | None,
    ) -> None:
        """Put ``values`` there, the last one where two go to one address; nothing where masked off or outside."""
        for region, chosen in self._split(addresses, mask, outside):
            region.stored = True
            places = _places(region, addresses[chosen], values.dtype)
            _typed(region, values.dtype)[places] = np.broadcast_to(values, addresses.shape)[chosen]

    def _common(self, addresses: NDArray[np.uint64], itemsize: int) -> Region | None:
        """The one region that holds all of them, if one does."""
        low, high = int(addresses.min()), int(addresses.max())
        region = self.region_of(low)
        return region if region and region.start <= low and high + itemsize <= region.stop else None

    def _split(
        self, addresses: NDArray[np.uint64], mask: NDArray[np.bool_] | None, outside: NDArray[np.bool_] | None
    ) -> list[tuple[Region, NDArray[np.bool_]]]:
        """Each region that is touched, and where."""
        chosen = np.ones(addresses.shape, np.bool_) if mask is None else np.broadcast_to(mask, addresses.shape)
        if outside is not None:
            chosen = chosen & ~outside
        if not chosen.any():
            return []
        index = ((addresses + _HALF) >> _BITS).astype(np.int64) - 1
        return [(self.regions[i], chosen & (index == i)) for i in np.unique(index[chosen])]


def poison(dtype: np.dtype[Any]) -> Any:
    """What a load outside every array gives: NaN, True, or a number that nobody would write."""
    if dtype.kind == "f":
        return np.nan
    return np.frombuffer(bytes([_POISON] * dtype.itemsize), dtype)[0] if dtype.kind in "iu" else True


def _typed(region: Region, dtype: np.dtype[Any]) -> NDArray[Any]:
    return region.buffer.view(dtype)


def _places(region: Region, addresses: NDArray[np.uint64], dtype: np.dtype[Any]) -> NDArray[np.int64]:
    return ((addresses - np.uint64(region.base)) // np.uint64(dtype.itemsize)).astype(np.int64)
