"""A link between two devices: bytes of a message turned into seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from mlsys_labkit.errors import RanksError

Number = float | Fraction


@dataclass(frozen=True, slots=True)
class Link:
    """A link after Hockney: a message of n bytes takes ``latency_seconds`` + n / ``bytes_per_second``.

    Raises RanksError for a negative latency or a bandwidth that is not positive.

    Example:
        >>> Link(latency_seconds=5, bytes_per_second=100).seconds(1000)
        Fraction(15, 1)

    Reference: Hockney, "The Communication Challenge for MPP: Intel Paragon and Meiko CS-2", 1994.
    """

    latency_seconds: Number = 0
    bytes_per_second: Number = math.inf

    def __post_init__(self) -> None:
        if not (0 <= self.latency_seconds < math.inf and self.bytes_per_second > 0):
            raise RanksError(
                "a link has a latency of 0 s or more and a positive bandwidth, "
                f"got {self.latency_seconds} s and {self.bytes_per_second} B/s"
            )

    def seconds(self, message_bytes: Number) -> Number:
        """Return the time of one message; exact where the link was given in ints or fractions."""
        if self.bytes_per_second == math.inf:
            return self.latency_seconds
        if isinstance(self.bytes_per_second, float):
            return self.latency_seconds + message_bytes / self.bytes_per_second
        return self.latency_seconds + Fraction(message_bytes) / self.bytes_per_second
