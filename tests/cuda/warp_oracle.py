"""What a warp's request costs, worked out the slow way: sets of sectors and of words. Shares nothing with the kit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

Lanes = Mapping[int, int]  # active lane -> byte address


def sectors(addresses: Iterable[int], size: int) -> int:
    return len({byte // 32 for address in addresses for byte in range(address, address + size)})


def distinct_bytes(addresses: Iterable[int], size: int) -> int:
    return len({byte for address in addresses for byte in range(address, address + size)})


def most_on_one_address(addresses: Iterable[int]) -> int:
    return max(Counter(addresses).values())


def groups(lanes: Lanes, size: int) -> list[list[int]]:
    """Addresses of lanes that shared memory serves together: a warp, half a warp (8 bytes), a quarter (16 bytes)."""
    width = 32 if size <= 4 else 128 // size
    return [
        group
        for first in range(0, 32, width)
        if (group := [lanes[lane] for lane in range(first, first + width) if lane in lanes])
    ]


def passes(addresses: Iterable[int], size: int) -> int:
    """How often the fullest of 32 banks of 4 bytes has to be read."""
    words = {byte // 4 for address in addresses for byte in range(address, address + size)}
    return max(Counter(word % 32 for word in words).values())


def wavefronts(lanes: Lanes, size: int) -> int:
    return sum(passes(group, size) for group in groups(lanes, size))
