"""One request of a warp: addresses of 32 lanes, sectors fetched, bank conflicts; the twin of ``model.js``.

Global memory moves in sectors of 32 bytes. Shared memory has 32 banks of 4-byte words and serves one word per bank in a
wavefront; lanes of 8 bytes go by half-warps, lanes of 16 bytes by quarter-warps, and loads by twice as many lanes if
neighbours (n and n ^ 1, or n and n ^ 2) have one address.
Reference: NVIDIA, "CUDA C++ Programming Guide", sections on device memory accesses and shared memory.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

WARP, BANKS = 32, 32
SECTOR_BYTES, WORD_BYTES = 32, 4
MOST = 2**31 - 1  # an index is a C int
LONGEST_FORMULA = 80

Lanes = Sequence[int | None]  # the byte offset of each lane, None where the lane is inactive


def _units(lanes: Lanes, size: int, unit_bytes: int) -> set[int]:
    """Return the distinct units of ``unit_bytes`` that active lanes of ``size`` bytes touch."""
    spans = (range(at // unit_bytes, (at + size - 1) // unit_bytes + 1) for at in lanes if at is not None)
    return {unit for span in spans for unit in span}


def sectors(lanes: Lanes, size: int) -> list[int]:
    """Return the 32-byte sectors of one request, ascending.

    Example:
        >>> sectors([4 * lane for lane in range(32)], size=4)
        [0, 1, 2, 3]
    """
    return sorted(_units(lanes, size, SECTOR_BYTES))


def distinct_bytes(lanes: Lanes, size: int) -> int:
    """Return the bytes that some lane asked for, each counted once."""
    return len(_units(lanes, size, 1))


def ideal_sectors(lanes: Lanes, size: int) -> int:
    """Return the fewest sectors that could hold the bytes asked for: the same bytes packed side by side."""
    return -(-distinct_bytes(lanes, size) // SECTOR_BYTES)


def efficiency(lanes: Lanes, size: int) -> float:
    """Return the bytes asked for over bytes fetched, 0 to 1; 0 when no lane is active."""
    fetched = SECTOR_BYTES * len(sectors(lanes, size))
    return distinct_bytes(lanes, size) / fetched if fetched else 0.0


def phase_lanes(lanes: Lanes, size: int, loads: bool = False) -> int:
    """Return how many lanes shared memory serves together: 32 up to 4 bytes per lane, 16 up to 8, 8 beyond.

    Of a load, twice as many if neighbours have one address.
    """
    width = WARP if size <= WORD_BYTES else WARP // 2 if size <= 2 * WORD_BYTES else WARP // 4
    return 2 * width if width < WARP and loads and (_in_pairs(lanes, 1) or _in_pairs(lanes, 2)) else width


def _in_pairs(lanes: Lanes, distance: int) -> bool:
    return all(
        at == lanes[lane ^ distance] for lane, at in enumerate(lanes) if None not in (at, lanes[lane ^ distance])
    )


def phase(lanes: Lanes, size: int, which: int, loads: bool = False) -> Lanes:
    """Return the lanes of one phase."""
    width = phase_lanes(lanes, size, loads)
    return lanes[which * width : (which + 1) * width]


def bank_depths(lanes: Lanes, size: int, which: int = 0, loads: bool = False) -> list[int]:
    """Return the distinct words that a phase asks of each bank; the largest is the phase's wavefronts.

    Example:
        >>> bank_depths([128 * lane for lane in range(32)], size=4)[:3]  # a column of a row-major 32 x 32 tile
        [32, 0, 0]
    """
    words = Counter(word % BANKS for word in _units(phase(lanes, size, which, loads), size, WORD_BYTES))
    return [words[bank] for bank in range(BANKS)]


def same_address(lanes: Lanes) -> int:
    """Return the most lanes on one address, whose atomics run one after the other."""
    return max(Counter(at for at in lanes if at is not None).values(), default=0)


def wavefronts(lanes: Lanes, size: int, atomic: bool = False, loads: bool = False) -> list[int]:
    """Return the wavefronts of each phase: 1 without a conflict, n for an n-way conflict, 0 without active lanes."""
    phases = range(WARP // phase_lanes(lanes, size, loads))
    turns = [same_address(phase(lanes, size, which, loads)) if atomic else 0 for which in phases]
    return [max(*bank_depths(lanes, size, which, loads), turns[which]) for which in phases]


# --- formulas --------------------------------------------------------------------------------------------------------

_LEVEL = {"|": 1, "^": 2, "&": 3, "<<": 4, ">>": 4, "+": 5, "-": 5, "*": 6, "/": 6, "%": 6}
_TOKEN = re.compile(r"\d+|[A-Za-z_]\w*|<<|>>|[-+*/%&|^()]", re.ASCII)


def evaluate(formula: str, names: Mapping[str, int]) -> int:
    """Evaluate a C expression over ``int``: ``+ - * / % << >> & ^ |``, brackets, numbers and ``names``.

    Raises ValueError, in words for the person who typed it.

    Example:
        >>> evaluate("(lane ^ i) * 4 + lane / 8", {"lane": 9, "i": 1})
        33
    """
    if len(formula) > LONGEST_FORMULA:
        raise ValueError(f"a formula has at most {LONGEST_FORMULA} characters")
    strange = re.sub(r"\s", "", _TOKEN.sub("", formula))
    if strange:
        raise ValueError(f"unexpected {strange[0]}")
    left = _TOKEN.findall(formula)
    value = _expression(left, names, 1)
    if left:
        raise ValueError(f"unexpected {left[0]}")
    return value


def places(formula: str, names: Mapping[str, int]) -> list[int]:
    """Evaluate ``formula`` for each ``lane`` of a warp, in elements."""
    return [evaluate(formula, {**names, "lane": lane}) for lane in range(WARP)]


def _expression(left: list[str], names: Mapping[str, int], level: int) -> int:
    value = _atom(left, names)
    while left and _LEVEL.get(left[0], 0) >= level:
        operator = left.pop(0)
        value = _apply(operator, value, _expression(left, names, _LEVEL[operator] + 1))
    return value


def _atom(left: list[str], names: Mapping[str, int]) -> int:
    if not left:
        raise ValueError("the formula ends too soon")
    token = left.pop(0)
    if token == "-":
        return _apply("-", 0, _atom(left, names))
    if token == "(":
        value = _expression(left, names, 1)
        if not left or left.pop(0) != ")":
            raise ValueError("a bracket is not closed")
        return value
    if token.isdigit():
        return _apply("+", int(token), 0)
    if token not in names:
        raise ValueError(f"unexpected {token}; the names here are {_listed(names)}")
    return names[token]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _apply(operator: str, a: int, b: int) -> int:
    if operator in "/%" and b == 0:
        raise ValueError("division by zero")
    if operator in ("<<", ">>") and not 0 <= b < 32:
        raise ValueError("a shift is by 0 to 31")
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) if operator in "/%" else 0
    value = {
        "+": lambda: a + b,
        "-": lambda: a - b,
        "*": lambda: a * b,
        "/": lambda: quotient,  # C rounds towards zero
        "%": lambda: a - quotient * b,
        "<<": lambda: a << b,
        ">>": lambda: a >> b,
        "&": lambda: a & b,
        "^": lambda: a ^ b,
        "|": lambda: a | b,
    }[operator]()
    if abs(value) > MOST:
        raise ValueError("the value leaves the range of int")
    return value
