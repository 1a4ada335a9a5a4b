"""The arrays of a launch at simulated GPU addresses, which are never used as addresses of this process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

DISTANCE = 1 << 40  # between arrays: an access outside one array never lands in another
_PADDING = 16
_POISON = 0x5A


def region_number(addresses: Any) -> Any:
    """Return the number of the region, from 0, that an address (an int, or int64 of an array) is in or nearest to."""
    return (addresses + DISTANCE // 2) // DISTANCE - 1


@dataclass
class MemoryRegion:
    """Bytes [start, stop) in ``buffer``, which begins at ``start`` rounded down to 16.

    ``place`` is the caller's own address of the first byte.
    """

    start: int
    stop: int
    buffer: NDArray[np.uint8]
    writable: bool = True
    stored: bool = False
    place: int = 0

    @property
    def base(self) -> int:
        return self.start & -_PADDING

    @staticmethod
    def room(start: int, stop: int) -> int:
        """Return the bytes that ``buffer`` must have."""
        base = start & -_PADDING
        return -(-(stop - base) // _PADDING) * _PADDING


@dataclass(frozen=True)
class Reach:
    """The memory that an access reaches.

    Attributes:
        mask: None when nothing is masked off.
        region: the array that holds all of it, or None if it reaches several arrays or lies outside.
        outside: True for active elements outside every array; None when there are none.
    """

    addresses: NDArray[np.uint64]
    mask: NDArray[np.bool_] | None
    region: MemoryRegion | None
    outside: NDArray[np.bool_] | None


class LaunchMemory:
    """Memory of a launch: regions, the i-th within half a DISTANCE of (i + 1) * DISTANCE."""

    def __init__(self, regions: Sequence[MemoryRegion]) -> None:
        self.regions = tuple(regions)

    def region_of(self, address: int) -> MemoryRegion | None:
        """Return the array that ``address`` belongs to, or is nearest to."""
        index = region_number(address)
        return self.regions[index] if 0 <= index < len(self.regions) else None

    def reach(self, addresses: NDArray[np.uint64], mask: NDArray[np.bool_] | None, itemsize: int) -> Reach:
        """Return the memory that active elements of ``itemsize`` bytes at ``addresses`` reach."""
        if mask is not None and mask.all():
            mask = None
        active = addresses if mask is None else addresses[mask]
        if not active.size:
            return Reach(addresses, mask, None, None)
        low, high = int(active.min()), int(active.max())
        region = self.region_of(low)
        if region and region.start <= low and high + itemsize <= region.stop:
            return Reach(addresses, mask, region, None)
        wrong = np.ones(addresses.shape, np.bool_) if mask is None else np.array(mask)
        for region in self.regions:
            room = region.stop - region.start - itemsize
            if room >= 0:
                wrong &= addresses - np.uint64(region.start) > np.uint64(room)
        return Reach(addresses, mask, None, wrong if wrong.any() else None)

    def translated(self, addresses: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Translate addresses of the caller's arrays (``data_ptr()``) to addresses here; keep all others."""
        result = np.array(addresses)
        for region in self.regions:
            there = addresses - np.uint64(region.place) < np.uint64(region.stop - region.start)
            result[there] = addresses[there] - np.uint64(region.place) + np.uint64(region.start)
        return result

    def load(self, reach: Reach, other: NDArray[Any], nan: int | None = None) -> NDArray[Any]:
        """Return the elements, ``other`` where masked off, and poison (``nan`` if given) outside every array."""
        dtype = other.dtype
        if reach.region and reach.mask is None:
            return np.asarray(_typed(reach.region, dtype)[_places(reach.region, reach.addresses, dtype)])
        result = np.array(np.broadcast_to(other, reach.addresses.shape))
        for region, chosen in self._parts(reach):
            result[chosen] = _typed(region, dtype)[_places(region, reach.addresses[chosen], dtype)]
        if reach.outside is not None:
            result[reach.outside] = poison(dtype) if nan is None else nan
        return result

    def store(self, reach: Reach, values: NDArray[Any]) -> None:
        """Store ``values`` except where masked off or outside; of two values for one address the last one stays."""
        spread = np.broadcast_to(values, reach.addresses.shape)
        for region, chosen in self._parts(reach):
            region.stored = True
            places = _places(region, reach.addresses[chosen], values.dtype)
            _typed(region, values.dtype)[places] = spread[chosen]

    def _parts(self, reach: Reach) -> list[tuple[MemoryRegion, Any]]:
        """Return each region that is touched, with the elements that touch it."""
        if reach.region:
            return [(reach.region, ... if reach.mask is None else reach.mask)]
        chosen = np.ones(reach.addresses.shape, np.bool_) if reach.mask is None else reach.mask
        if reach.outside is not None:
            chosen = chosen & ~reach.outside
        index = region_number(reach.addresses.view(np.int64))
        return [(self.regions[i], chosen & (index == i)) for i in np.unique(index[chosen])]


def poison(dtype: np.dtype[Any]) -> Any:
    """Return the result of a load outside every array: NaN, True, or a conspicuous number."""
    if dtype.kind == "f":
        return np.nan
    return np.frombuffer(bytes([_POISON] * dtype.itemsize), dtype)[0] if dtype.kind in "iu" else True


def _typed(region: MemoryRegion, dtype: np.dtype[Any]) -> NDArray[Any]:
    return region.buffer.view(dtype)


def _places(region: MemoryRegion, addresses: NDArray[np.uint64], dtype: np.dtype[Any]) -> NDArray[np.int64]:
    return ((addresses - np.uint64(region.base)) // np.uint64(dtype.itemsize)).astype(np.int64)
