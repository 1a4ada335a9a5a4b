"""``Work``: FLOPs, bytes, messages and seconds of one piece of code, each with how it was obtained."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from mlsys_labkit._base.units import si
from mlsys_labkit.errors import LabkitError
from mlsys_labkit.specs import DTYPES as PEAK_DTYPES

# From the most to the least direct evidence: a sum is only as good as its weakest part, so addition keeps the later.
PROVENANCE = ("measured", "counted", "simulated", "formula", "model")
QUANTITIES = ("flops", "bytes_read", "bytes_written", "messages", "message_bytes", "seconds")
# The others have no peak in any spec: integer code is counted, but not placed under a floating-point roof.
DTYPES = (*PEAK_DTYPES, "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")


class WorkError(LabkitError, ValueError):
    """A quantity of work that cannot be, or a question that this work cannot answer."""


@dataclass(frozen=True)
class Work:
    """The work of a piece of code: the record that every counter produces and every roofline, check and widget reads.

    Args:
        flops: floating-point operations; an FMA is two (integer arithmetic is counted by the same rule).
        bytes_read, bytes_written: bytes moved from and to memory.
        messages, message_bytes: messages sent to other ranks, and their payload in bytes.
        seconds: duration, or None when it was not measured.
        dtype: the type in which most of the FLOPs are done ("float32", "bfloat16", "tf32", "int8", ...).
        how: quantity -> "measured", "counted", "simulated", "formula" or "model".

    Raises:
        WorkError: a quantity is negative or not a number, or ``dtype`` or ``how`` has a name that is not known.

    Example:
        >>> n = 1024
        >>> dot = Work(flops=2 * n, bytes_read=2 * n * 4, bytes_written=4, name="dot")
        >>> round(dot.intensity, 3)
        0.25
        >>> (dot + dot).flops
        4096

    Reference: Williams, Waterman, Patterson, "Roofline: an insightful visual performance model", CACM 52(4), 2009.
    """

    flops: float = 0
    bytes_read: float = 0
    bytes_written: float = 0
    messages: int = 0
    message_bytes: float = 0
    seconds: float | None = None
    dtype: str = "float32"
    name: str = ""
    how: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for quantity in QUANTITIES:
            _check_quantity(quantity, getattr(self, quantity))
        if self.dtype not in DTYPES:
            raise WorkError(f"dtype is {self.dtype!r}, expected one of {', '.join(DTYPES)}")
        for quantity, way in self.how.items():
            if quantity not in QUANTITIES:
                raise WorkError(f"how names {quantity!r}, expected a quantity: {', '.join(QUANTITIES)}")
            if way not in PROVENANCE:
                raise WorkError(f"how[{quantity!r}] is {way!r}, expected one of {', '.join(PROVENANCE)}")
        object.__setattr__(self, "how", MappingProxyType(dict(self.how)))

    @property
    def bytes_moved(self) -> float:
        """Bytes read plus bytes written."""
        return self.bytes_read + self.bytes_written

    @property
    def intensity(self) -> float:
        """Arithmetic intensity, FLOP/B; infinite when no byte moves, an error when nothing is done at all."""
        if self.bytes_moved:
            return self.flops / self.bytes_moved
        if self.flops:
            return math.inf
        raise WorkError(f"{self._who()} has no FLOPs and no bytes, so no intensity; count it, or state what it moves")

    @property
    def flops_per_second(self) -> float | None:
        """FLOP/s, or None when the duration is not known."""
        return self._rate(self.flops)

    @property
    def bytes_per_second(self) -> float | None:
        """Bytes moved per second, or None when the duration is not known."""
        return self._rate(self.bytes_moved)

    def with_seconds(self, seconds: float, how: str = "measured") -> Work:
        """Return the same work with a duration."""
        return replace(self, seconds=seconds, how={**self.how, "seconds": how})

    def __add__(self, other: object) -> Work:
        """Add the work of two runs, one after the other.

        Seconds are known only if both are known; ``dtype`` is that of the larger FLOP count.
        """
        if not isinstance(other, Work):
            return NotImplemented
        total: dict[str, Any] = {q: getattr(self, q) + getattr(other, q) for q in QUANTITIES if q != "seconds"}
        total["seconds"] = None if self.seconds is None or other.seconds is None else self.seconds + other.seconds
        heavier = self if self.flops >= other.flops else other
        name = self.name if self.name == other.name else " + ".join(n for n in (self.name, other.name) if n)
        return Work(**total, dtype=heavier.dtype, name=name, how=_joint_provenance(self, other))

    def __radd__(self, other: object) -> Work:
        return self if other == 0 else NotImplemented  # so that sum(works) needs no start value

    def __reduce__(self) -> tuple[Any, ...]:
        values = (getattr(self, quantity) for quantity in QUANTITIES)
        return (Work, (*values, self.dtype, self.name, dict(self.how)))  # a mappingproxy does not pickle

    def __hash__(self) -> int:
        return hash((*(getattr(self, q) for q in QUANTITIES), self.dtype, self.name, frozenset(self.how.items())))

    def __str__(self) -> str:
        parts = [f"{si(self.flops, 'FLOP')} ({self.dtype})", f"{si(self.bytes_read, 'B')} read"]
        parts.append(f"{si(self.bytes_written, 'B')} written")
        if self.messages:
            parts.append(f"{self.messages} messages of {si(self.message_bytes, 'B')} in all")
        if self.bytes_moved:
            parts.append(f"{self.intensity:.3g} FLOP/B")
        if self.seconds is not None:
            parts.append(f"{si(self.seconds, 's')}")
        return f"{self._who()}: {', '.join(parts)}"

    def _who(self) -> str:
        return self.name or "work"

    def _rate(self, amount: float) -> float | None:
        if self.seconds is None:
            return None
        if self.seconds == 0:
            raise WorkError(f"{self._who()} is stated to take 0 s; time a longer run")
        return amount / self.seconds


def _check_quantity(quantity: str, value: object) -> None:
    if value is None and quantity == "seconds":
        return
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise WorkError(f"{quantity} is {value!r}, expected a number") from None
    if not math.isfinite(number) or number < 0:
        raise WorkError(f"{quantity} is {number:g}, expected a finite number that is not negative")


def _joint_provenance(a: Work, b: Work) -> dict[str, str]:
    joint: dict[str, str] = {}
    for quantity in QUANTITIES:
        ways = [work.how.get(quantity) for work in (a, b) if getattr(work, quantity)]
        stated = [way for way in ways if way is not None]
        if stated and len(stated) == len(ways):  # a part of unknown origin makes the sum's origin unknown
            joint[quantity] = max(stated, key=PROVENANCE.index)
    if a.seconds is None or b.seconds is None:
        joint.pop("seconds", None)
    return joint
