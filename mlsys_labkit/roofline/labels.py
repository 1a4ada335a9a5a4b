"""Placement of text so that no label covers another, a point or a line: the first free candidate is taken."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

CHARACTER = 6.2  # px, of a 12 px sans serif, on the generous side
STEP = 9.0  # px between the dots that stand for a label or a line


@dataclass(frozen=True)
class Spot:
    """A place for a text: anchor point in px, rotation in degrees, and SVG's text-anchor."""

    x: float
    y: float
    angle: float = 0.0
    anchor: str = "start"

    def dots(self, text: str) -> Iterator[tuple[float, float]]:
        """Yield points along the middle of the text's line."""
        length = len(text) * CHARACTER
        start = {"start": 0.0, "middle": -length / 2, "end": -length}[self.anchor]
        turn = math.radians(self.angle)
        count = max(2, math.ceil(length / STEP) + 1)
        for i in range(count):
            along = start + length * i / (count - 1)
            yield (
                self.x + along * math.cos(turn) + 4 * math.sin(turn),
                self.y + along * math.sin(turn) - 4 * math.cos(turn),
            )


@dataclass
class LabelBoard:
    """A rectangle of the drawing and the places already taken."""

    left: float
    top: float
    right: float
    bottom: float
    taken: list[tuple[float, float, float]] = field(default_factory=list)  # x, y, clearance

    def block(self, x: float, y: float, clearance: float = 9.0) -> None:
        """Keep labels ``clearance`` px away from a point."""
        self.taken.append((x, y, clearance))

    def block_line(self, x1: float, y1: float, x2: float, y2: float, clearance: float = 6.0) -> None:
        """Keep labels away from a line."""
        count = max(1, math.ceil(math.hypot(x2 - x1, y2 - y1) / STEP))
        for i in range(count + 1):
            self.block(x1 + (x2 - x1) * i / count, y1 + (y2 - y1) * i / count, clearance)

    def put(self, text: str, candidates: Iterable[Spot]) -> Spot:
        """Return the first free candidate, or else the one with most room around it, and block its place."""
        best, best_room = None, -math.inf
        for spot in candidates:
            room = self.room(text, spot)
            if room > best_room:
                best, best_room = spot, room
            if room >= 0:
                break
        assert best is not None, "no candidates"
        self.take(text, best)
        return best

    def take(self, text: str, spot: Spot) -> None:
        """Keep later labels away from this one."""
        for x, y in spot.dots(text):
            self.block(x, y, 13.0)

    def room(self, text: str, spot: Spot) -> float:
        """Return the px between a label and what is nearest to it; negative if it is covered or outside."""
        dots = list(spot.dots(text))
        outside = max(max(self.left - x, x - self.right, self.top - y, y - self.bottom) for x, y in dots)
        nearest = min(
            (math.hypot(x - a, y - b) - clearance for x, y in dots for a, b, clearance in self.taken), default=math.inf
        )
        return min(nearest, -1e3 if outside > 0 else math.inf)


def spread(wanted: list[float], gap: float, low: float, high: float) -> list[float]:
    """Move sorted positions apart until neighbours are ``gap`` px away, staying in [low, high] where they fit.

    Example:
        >>> spread([10, 12, 50], 15, 0, 100)
        [10, 25, 50]
    """
    placed: list[float] = []
    for position in wanted:
        placed.append(max(position, placed[-1] + gap if placed else low))
    for i in range(len(placed) - 1, -1, -1):
        limit = high if i == len(placed) - 1 else placed[i + 1] - gap
        placed[i] = min(placed[i], limit)
    return placed
