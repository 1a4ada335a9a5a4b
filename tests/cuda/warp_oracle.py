"""The cost of a warp's request from sets of sectors and of words, as an oracle that shares no code with the kit."""

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
    """Return the addresses of the lanes of a load in groups served together.

    A group is a warp, half (8 bytes) or a quarter (16 bytes). If neighbours share their addresses, it is twice as large
    (NVIDIA developer forums, thread 77228).
    """
    width = 32 if size <= 4 else 128 // size
    if size > 4 and (_in_pairs(lanes, 1) or _in_pairs(lanes, 2)):
        width *= 2
    return [
        group
        for first in range(0, 32, width)
        if (group := [lanes[lane] for lane in range(first, first + width) if lane in lanes])
    ]


def _in_pairs(lanes: Lanes, distance: int) -> bool:
    return all(lanes.get(lane ^ distance, at) == at for lane, at in lanes.items())


def passes(addresses: Iterable[int], size: int) -> int:
    """Return how often the fullest of 32 banks of 4 bytes has to be read."""
    words = {byte // 4 for address in addresses for byte in range(address, address + size)}
    return max(Counter(word % 32 for word in words).values())


def wavefronts(lanes: Lanes, size: int) -> int:
    return sum(passes(group, size) for group in groups(lanes, size))
