"""Parts of a drawing: boxes, arrows and labels, placed in pixels of a canvas that is 640 wide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

# The colour of a part says what it stands for, the same in all drawings.
Role = Literal["plain", "compute", "memory", "link", "control", "absent"]


@dataclass(frozen=True)
class Box:
    """A rectangle with lines of text in its middle, or at its top if it holds other boxes."""

    x: float
    y: float
    width: float
    height: float
    text: str = ""
    role: Role = "plain"
    holds: bool = False

    @property
    def top(self) -> tuple[float, float]:
        return self.x + self.width / 2, self.y

    @property
    def bottom(self) -> tuple[float, float]:
        return self.x + self.width / 2, self.y + self.height

    @property
    def left(self) -> tuple[float, float]:
        return self.x, self.y + self.height / 2

    @property
    def right(self) -> tuple[float, float]:
        return self.x + self.width, self.y + self.height / 2


@dataclass(frozen=True)
class Arrow:
    """A line through ``points`` with a head at its end, at both ends, or at none."""

    points: Sequence[tuple[float, float]]
    role: Role = "plain"
    heads: Literal["end", "both", "none"] = "end"
    dashed: bool = False


@dataclass(frozen=True)
class Label:
    """Lines of text at a point: the baseline of the first line."""

    x: float
    y: float
    text: str
    anchor: Literal["start", "middle", "end"] = "middle"
    role: Role = "plain"
    bold: bool = False


Part = Box | Arrow | Label


def row(
    x: float, y: float, width: float, height: float, texts: Sequence[str], role: Role = "plain", *, gap: float = 8
) -> list[Box]:
    """Return boxes of equal width beside each other, which fill ``width``.

    Example:
        >>> [box.x for box in row(0, 0, 100, 20, ["a", "b"], gap=10)]
        [0.0, 55.0]
    """
    each = (width - gap * (len(texts) - 1)) / len(texts)
    return [Box(x + at * (each + gap), y, each, height, text, role) for at, text in enumerate(texts)]


def column(
    x: float, y: float, width: float, height: float, texts: Sequence[str], role: Role = "plain", *, gap: float = 8
) -> list[Box]:
    """Return boxes of equal height below each other, which fill ``height``.

    Example:
        >>> [box.y for box in column(0, 0, 20, 100, ["a", "b"], gap=10)]
        [0.0, 55.0]
    """
    each = (height - gap * (len(texts) - 1)) / len(texts)
    return [Box(x, y + at * (each + gap), width, each, text, role) for at, text in enumerate(texts)]
