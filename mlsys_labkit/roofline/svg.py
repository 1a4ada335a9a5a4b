"""The roofline as inline SVG: it follows the page's light or dark theme, and has a description for screen readers."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files

from mlsys_labkit._base import light_dark_colours
from mlsys_labkit._base.units import plain, si
from mlsys_labkit.device import VIRTUAL_LABEL
from mlsys_labkit.roofline.labels import LabelBoard, Spot, spread
from mlsys_labkit.roofline.layout import RooflineView, flat_start, ridge_of, slope_start, view
from mlsys_labkit.roofline.place import Placement
from mlsys_labkit.roofline.roof import Ceiling, Roof
from mlsys_labkit.work import Work

WIDTH, HEIGHT = 860.0, 500.0
LEFT, TOP, RIGHT, BOTTOM = 76.0, 66.0, 640.0, 446.0  # the plot; right of it stand the names of the compute ceilings

STYLE = light_dark_colours.themed(files(__package__).joinpath("svg.css").read_text(encoding="utf-8"), ".lk-roofline")


def draw(
    roofline: Roof, works: Sequence[Work] = (), *, dtypes: Sequence[str] | None = None, level: str = "dram"
) -> str:
    """Draw the chart as one ``<svg>`` element.

    Dashed lines are datasheet ceilings, solid ones are measured. A filled dot is a timed work, an open diamond a work
    without a time at the best it could reach, a cross a work above the roof. ``dtypes`` limits the compute ceilings,
    ``level`` is where the bytes of ``works`` come from.

    Example:
        >>> from mlsys_labkit.roofline import Roofline
        >>> draw(Roofline.from_spec("t4")).startswith('<svg class="lk-roofline"')
        True
    """
    shown = view(roofline, works, dtypes, level)
    spoken, name = describe(roofline, shown), roofline.device.label if roofline.virtual else roofline.device.name
    key = hashlib.sha256(spoken.encode()).hexdigest()[:8]  # ids are unique in the page and equal in every build
    parts = [
        f'<svg class="lk-roofline" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" '
        f'aria-labelledby="lk-{key}-t lk-{key}-d">',
        f'<title id="lk-{key}-t">Roofline of {escape(name)}</title>',
        f'<desc id="lk-{key}-d">{escape(spoken)}</desc>',
        f"<style>{STYLE}</style>",
        *_heading(roofline, shown),
        *_Chart(roofline, shown, level).parts(),
        "</svg>",
    ]
    return "\n".join(parts)


def describe(roofline: Roof, shown: RooflineView) -> str:
    """Describe the chart in sentences, for readers who cannot see it."""
    ceilings = [f"{c.label} {si(c.value, c.unit)} ({c.origin})" for c in (*shown.memory, *shown.compute)]
    verdicts = [placed.verdict for placed, _ in shown.points]
    mark = f" {VIRTUAL_LABEL.capitalize()}." if roofline.virtual else ""
    return " ".join([f"Attainable FLOP/s over arithmetic intensity.{mark} Ceilings: {'; '.join(ceilings)}.", *verdicts])


def _line(css: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{css}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(css: str, spot: Spot, text: str) -> str:
    turn = f' transform="rotate({spot.angle:.1f} {spot.x:.1f} {spot.y:.1f})"' if spot.angle else ""
    anchor = "" if spot.anchor == "start" else f' text-anchor="{spot.anchor}"'
    return f'<text class="{css}" x="{spot.x:.1f}" y="{spot.y:.1f}"{anchor}{turn}>{escape(text)}</text>'


def _heading(roofline: Roof, shown: RooflineView) -> Iterator[str]:
    yield _text("name", Spot(LEFT, 22), roofline.device.name)
    origins = {c.origin for c in (*shown.compute, *shown.memory)}
    x = LEFT
    if roofline.virtual:
        yield _text("model", Spot(x, 44), VIRTUAL_LABEL)
        x += 158
    for origin in ("datasheet", "measured"):
        if origin in origins:
            yield _line(f"compute {origin}", x, 40, x + 34, 40)
            yield _text("soft", Spot(x + 41, 44), origin)
            x += 128
    if any(p.achieved_flops_per_second for p, _ in shown.points):
        yield f'<circle class="ran" cx="{x + 6:g}" cy="40" r="5"/>' + _text("soft", Spot(x + 18, 44), "timed")
        x += 76
    if any(not p.achieved_flops_per_second for p, _ in shown.points):
        yield _diamond(x + 6, 40) + _text("soft", Spot(x + 18, 44), "at best")


def _diamond(x: float, y: float) -> str:
    return f'<path class="bound" d="M{x:.1f},{y - 6:.1f} l6,6 l-6,6 l-6,-6 z"/>'


def _ticks(span: tuple[float, float]) -> Iterator[tuple[float, int]]:
    """Yield (log10 of the value, its leading digit) of every tick in the span."""
    for decade in range(math.floor(span[0]), math.ceil(span[1]) + 1):
        for digit in range(1, 10):
            at = decade + math.log10(digit)
            if span[0] <= at <= span[1]:
                yield at, digit


class _Chart:
    """Lines first, then points, then text: each text looks for a place that is still free."""

    def __init__(self, roofline: Roof, shown: RooflineView, level: str) -> None:
        self.roofline, self.shown, self.level = roofline, shown, level
        self.board = LabelBoard(LEFT + 2, TOP + 2, RIGHT - 2, BOTTOM - 2)
        # Slope of a bandwidth in the picture, in degrees: the same for all, as the axes are logarithmic.
        rise = (BOTTOM - TOP) / (shown.y[1] - shown.y[0])
        run = (RIGHT - LEFT) / (shown.x[1] - shown.x[0])
        self.angle = -math.degrees(math.atan2(rise, run))

    def parts(self) -> Iterator[str]:
        yield from self._axes()
        yield from self._under()
        yield from self._memory_lines()
        yield from self._compute_lines()
        yield from self._ridges()
        yield from self._point_marks()
        yield from self._compute_names()
        yield from self._memory_names()
        yield from self._point_names()
        yield from self._ridge_names()

    def _x(self, log: float) -> float:
        low, high = self.shown.x
        return LEFT + (log - low) / (high - low) * (RIGHT - LEFT)

    def _y(self, log: float) -> float:
        low, high = self.shown.y
        return BOTTOM - (log - low) / (high - low) * (BOTTOM - TOP)

    def _slope(self, memory: Ceiling) -> tuple[float, float, float, float]:
        """Return the visible part of a bandwidth line, up to the highest compute ceiling, in px."""
        start = slope_start(memory, self.shown)
        end = min(ridge_of(max(self.shown.compute, key=lambda c: c.value), memory), self.shown.x[1])
        log = math.log10(memory.value)
        return self._x(start), self._y(start + log), self._x(end), self._y(end + log)

    def _axes(self) -> Iterator[str]:
        for at, digit in _ticks(self.shown.x):
            x = self._x(at)
            if digit == 1:
                name = f"{10.0**at:g}" if at < 4 else f"{10 ** (at - 3):g} k"
                yield _line("grid", x, TOP, x, BOTTOM) + _text("soft", Spot(x, BOTTOM + 20, anchor="middle"), name)
            yield _line("axis", x, BOTTOM, x, BOTTOM + (6 if digit == 1 else 3))
        few = self.shown.y[1] - self.shown.y[0] < 2.5
        for at, digit in _ticks(self.shown.y):
            y = self._y(at)
            if digit == 1 or (few and digit in (2, 5)):
                yield _line("grid", LEFT, y, RIGHT, y)
                yield _text("soft", Spot(LEFT - 10, y + 4, anchor="end"), si(10.0**at, "").strip())
            yield _line("axis", LEFT - (6 if digit == 1 else 3), y, LEFT, y)
        yield f'<path class="axis" d="M{LEFT:g},{TOP:g} V{BOTTOM:g} H{RIGHT:g}"/>'
        yield _text("soft", Spot((LEFT + RIGHT) / 2, BOTTOM + 44, anchor="middle"), "arithmetic intensity (FLOP/B)")
        yield _text("soft", Spot(18, (TOP + BOTTOM) / 2, -90, "middle"), "FLOP/s")

    def _under(self) -> Iterator[str]:
        memory = self.roofline.memory(self.level)
        top = max(
            (c.value for c in self.shown.compute if c.origin == memory.origin), default=self.shown.compute[0].value
        )
        start, corner = slope_start(memory, self.shown), math.log10(top / memory.value)
        yield (
            f'<path class="under" d="M{self._x(start):.1f},{self._y(start + math.log10(memory.value)):.1f} '
            f'L{self._x(corner):.1f},{self._y(math.log10(top)):.1f} H{RIGHT:g} V{BOTTOM:g} H{self._x(start):.1f} z"/>'
        )

    def _memory_lines(self) -> Iterator[str]:
        for memory in self.shown.memory:
            line = self._slope(memory)
            self.board.block_line(*line)
            yield _line(f"memory {memory.origin}", *line)

    def _compute_lines(self) -> Iterator[str]:
        for compute in self.shown.compute:
            x, y = self._x(flat_start(compute, self.shown)), self._y(math.log10(compute.value))
            self.board.block_line(x, y, RIGHT, y)
            yield _line(f"compute {compute.origin}", x, y, RIGHT, y)

    def _compute_names(self) -> Iterator[str]:
        both = len({c.origin for c in self.shown.compute}) > 1
        same: dict[tuple[float, str], list[Ceiling]] = {}
        for compute in sorted(self.shown.compute, key=lambda c: (-c.value, c.origin)):
            same.setdefault((compute.value, compute.origin), []).append(compute)
        lines = [self._y(math.log10(value)) for value, _ in same]
        for ((value, origin), group), y, name_y in zip(
            same.items(), lines, spread(lines, 17, TOP, BOTTOM - 4), strict=True
        ):
            yield f'<path class="leader" d="M{RIGHT + 2:g},{y:.1f} L{RIGHT + 14:g},{name_y:.1f} h5"/>'
            text = f"{', '.join(c.label for c in group)} {si(value, 'FLOP/s')}"
            text += " measured" if both and origin == "measured" else ""
            yield _text("compute", Spot(RIGHT + 23, name_y + 4), text)

    def _memory_names(self) -> Iterator[str]:
        """Yield one label per level: above its line, but under the slowest line, where there is room."""
        turn = math.radians(self.angle)
        levels: dict[str | None, list[Ceiling]] = {}
        for memory in sorted(self.shown.memory, key=lambda m: m.value):
            levels.setdefault(memory.level, []).append(memory)
        for rank, group in enumerate(levels.values()):
            numbers = [si(m.value, "B/s").split(" ", 1) for m in group]
            if len({unit for _, unit in numbers}) == 1:  # "2.95 of 3.35 TB/s": measured of datasheet
                numbers = [[number, ""] for number, _ in numbers[:-1]] + numbers[-1:]
            text = f"{group[0].label} {' of '.join(' '.join(part).strip() for part in numbers)}"
            sides = (-18.0, 7.0) if rank == 0 and len(levels) > 1 else (7.0, -18.0)
            spots = []
            for side in sides:
                x1, y1, x2, y2 = self._slope(group[0] if side < 0 else group[-1])
                spots += [
                    Spot(
                        x1 + part * (x2 - x1) + side * math.sin(turn),
                        y1 + part * (y2 - y1) - side * math.cos(turn),
                        self.angle,
                        "middle",
                    )
                    for part in (0.5, 0.4, 0.6, 0.3, 0.7, 0.45, 0.55, 0.35, 0.65, 0.22, 0.75, 0.8)
                ]
            yield _text("memory halo", self.board.put(text, spots), text)

    def _point_marks(self) -> Iterator[str]:
        for placed, speed in self.shown.points:
            x, y = self._x(math.log10(placed.intensity)), self._y(math.log10(speed))
            roof = self._y(math.log10(placed.attainable_flops_per_second))
            self.board.block(x, y, 12)
            if placed.above_roof:
                yield f'<path class="wrong" d="M{x - 5:.1f},{y - 5:.1f} l10,10 m0,-10 l-10,10"/>'
            elif placed.achieved_flops_per_second:
                if y - roof > 12:
                    self.board.block_line(x, y, x, roof, 4)
                    yield _line("gap", x, y - 6, x, roof + 2)
                yield f'<circle class="ran" cx="{x:.1f}" cy="{y:.1f}" r="6"/>'
            else:
                yield _diamond(x, y)

    def _point_names(self) -> Iterator[str]:
        for placed, speed in sorted(self.shown.points, key=lambda point: not point[0].above_roof):
            x, y = self._x(math.log10(placed.intensity)), self._y(math.log10(speed))
            text = _point_text(placed)
            spots = [
                Spot(x + dx, y + dy, anchor=anchor)
                for reach in (0, 14, 28, 44)
                for dx, dy, anchor in (
                    (11, 4 + reach, "start"),
                    (11, 22 + reach, "start"),
                    (-11, 4 - reach, "end"),
                    (-11, -10 - reach, "end"),
                    (11, -12 - reach, "start"),
                    (0, 24 + reach, "middle"),
                    (0, -14 - reach, "middle"),
                    (-11, 22 + reach, "end"),
                )
            ]
            css = "wrong halo" if placed.above_roof else "halo"
            spot = self.board.put(text, spots)
            if abs(spot.y - y) > 40:  # too far from the point: connect them with a line
                yield _line("leader", x, y + math.copysign(9, spot.y - y), x, spot.y - (12 if spot.y > y else -4))
            yield _text(css, spot, text)

    def _peaks(self) -> list[tuple[float, float]]:
        """Return (peak, px of its ridge) of each compute ceiling that ``Roofline.compute`` returns."""
        memory = self.roofline.memory(self.level)
        peaks = sorted({c.value for c in self.shown.compute if self.roofline.compute(str(c.dtype)) is c})
        return [(peak, self._x(math.log10(peak / memory.value))) for peak in peaks]

    def _ridges(self) -> Iterator[str]:
        for peak, x in self._peaks():
            y = self._y(math.log10(peak))
            yield _line("plumb", x, y + 6, x, BOTTOM)
            yield f'<circle class="ridge" cx="{x:.1f}" cy="{y:.1f}" r="4"/>'

    def _ridge_names(self) -> Iterator[str]:
        memory, peaks = self.roofline.memory(self.level), self._peaks()
        for _, x in peaks:
            self.board.block_line(x, BOTTOM - 100, x, BOTTOM, 2)
        for peak, x in peaks:
            spots = [
                Spot(x + side * 6, BOTTOM - 8 - 16 * row, anchor="start" if side > 0 else "end")
                for row in range(6)
                for side in ((1, -1) if peak == peaks[-1][0] else (-1, 1))
            ]
            text = f"ridge {plain(peak / memory.value)}"
            yield _text("soft halo", self.board.put(text, spots), text)


def _point_text(placed: Placement) -> str:
    name = placed.work.name or "work"
    if placed.above_roof:
        return f"{name}: above the roof"
    return f"{name} {placed.fraction:.0%}" if placed.fraction is not None else name
