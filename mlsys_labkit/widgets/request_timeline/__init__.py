"""Request timeline: waiting, prefill and decoding of each request, and the requests served in time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mlsys_labkit._base.units import plain, si
from mlsys_labkit.errors import LabkitError
from mlsys_labkit.serving.measuring import measure
from mlsys_labkit.serving.metrics import RunMetrics
from mlsys_labkit.serving.records import Recording
from mlsys_labkit.widgets.base import Kind, State, paragraph, table
from mlsys_labkit.widgets.request_timeline import model

MOST_STEPS = 500
MOST_NUMBERS = 60_000
QUEUED, PREFILL, DECODE, PREEMPTED, STALLED = range(5)
_TOLD = 30  # rows of the static table


def request_timeline(
    recording: Recording, *, ttft_seconds: float | None = None, tpot_seconds: float | None = None
) -> Any:
    """Draw one row per request: queued, prefilled, decoding, preempted; bounds on TTFT and TPOT set the goodput.

    Batch size and cache occupancy are drawn beneath. The bounds start at the run's own 90th percentiles unless given.
    Of more than 500 steps, the strips show the largest of every two, three, ... of them, and the view says so.
    Raises LabkitError for a run without steps or requests, one too long to draw, or a bound that is not above 0.
    Reference: Zhong et al., "DistServe", OSDI 2024, sec. 2; Agrawal et al., "Sarathi-Serve", OSDI 2024, fig. 1.

    Example:
        >>> from mlsys_labkit.serving import EngineStep, Request, Scheduled
        >>> step = EngineStep(0, 0.0, 0.1, (Scheduled("a", "prefill", 3, 0),))
        >>> run = Recording((Request("a", (1, 2, 3)),), (step,), {"a": (7,)}, {"a": (0.1,)}, {"a": "stop"}, 16, 4)
        >>> request_timeline(run, ttft_seconds=0.2)
        <Request timeline>
    """
    if not isinstance(recording, Recording):
        raise LabkitError(f"expected the Recording of an engine's run, got {type(recording).__name__}")
    if not recording.steps or not recording.requests:
        raise LabkitError("the run has no step or no request to draw; record one that serves something")
    for name, bound in (("ttft_seconds", ttft_seconds), ("tpot_seconds", tpot_seconds)):
        if bound is not None and not 0 < bound < math.inf:
            raise LabkitError(f"{name} is a bound in seconds above 0, got {bound}")
    measured = measure(recording)
    rows = [_row(recording, latency.id, latency.arrival_seconds) for latency in measured.latencies]
    segments = _segments(recording, [row[0] for row in rows], [row[1] for row in rows])
    if 6 * len(rows) + 5 * len(segments) > MOST_NUMBERS:
        raise LabkitError(
            f"{len(rows)} requests in {len(segments)} pieces do not fit a page; record fewer requests or a shorter time"
        )
    stride = -(-len(recording.steps) // MOST_STEPS)
    first, rest = (_bounds(measured, name, given) for name, given in (("ttft", ttft_seconds), ("tpot", tpot_seconds)))
    return KIND.show(
        rows=rows,
        segments=segments,
        strips=_strips(recording, measured, stride),
        stride=stride,
        blocks=recording.blocks,
        seconds=measured.seconds,
        clock=recording.clock,
        ttfts=first[0],
        tpots=rest[0],
        ttft=first[1],
        tpot=rest[1],
        row=0,
    )


def _short(seconds: float, digits: int = 9) -> float:
    return float(f"{seconds:.{digits}g}")


def _row(recording: Recording, name: str, arrival_seconds: float) -> list[Any]:
    seconds = recording.token_seconds.get(name, ())
    first, last = (_short(seconds[0]), _short(seconds[-1])) if seconds else (None, None)
    return [name, _short(arrival_seconds), first, last, len(seconds), recording.reasons.get(name, "")]


def _segments(recording: Recording, names: Sequence[str], arrivals: Sequence[float]) -> list[list[float]]:
    """Return ``[row, kind, start, end, steps]`` of all rows; decodes in steps that follow each other are one piece."""
    numbers = {name: number for number, name in enumerate(names)}
    # Until its first token a request's prefill is that of all its samples.
    families = {each.id: [numbers[name] for name in each.sample_ids] for each in recording.requests}
    found: list[list[float]] = []
    latest: dict[int, tuple[int, list[float]]] = {}  # row -> its last step and piece
    lost: dict[int, float] = {}  # row -> since when it is preempted
    for at, step in enumerate(recording.steps):
        for each in step.preempted:
            for row in families.get(each.request_id, [numbers[each.request_id]]):
                lost[row] = step.start_seconds
        for part in step.scheduled:
            kind = PREFILL if part.phase == "prefill" else DECODE
            if kind == DECODE:
                families.pop(part.request_id, None)
            for row in families.get(part.request_id, [numbers[part.request_id]]):
                before, piece = latest.get(row, (-1, None))
                if kind == DECODE and piece and piece[1] == DECODE and before == at - 1:
                    piece[3], piece[4] = _short(step.end_seconds), piece[4] + 1
                else:
                    found += _between(row, piece, lost.pop(row, None), arrivals[row], step.start_seconds)
                    piece = [row, kind, _short(step.start_seconds), _short(step.end_seconds), 1]
                    found.append(piece)
                latest[row] = (at, piece)
    for row, since in lost.items():
        found.append([row, PREEMPTED, _short(since), _short(recording.seconds), 0])
    for row, name in enumerate(names):
        if row not in latest and name not in recording.reasons and arrivals[row] < recording.seconds:
            found.append([row, QUEUED, _short(arrivals[row]), _short(recording.seconds), 0])
    return found


def _between(
    row: int, piece: list[float] | None, lost: float | None, arrival: float, start: float
) -> list[list[float]]:
    """Return the state of a request before its next step: queued, preempted, or waiting with its blocks."""
    since = arrival if piece is None else piece[3]
    waits = [(QUEUED if piece is None else STALLED, since, start if lost is None else lost)]
    if lost is not None:
        waits.append((PREEMPTED, lost, start))
    return [[row, kind, _short(begin), _short(end), 0] for kind, begin, end in waits if end - begin > 1e-9]


def _strips(recording: Recording, measured: RunMetrics, stride: int) -> list[list[float]]:
    """Return ``[start, end, tokens, requests, used blocks]`` of each step, or of the largest of every few."""
    found = []
    for at in range(0, len(recording.steps), stride):
        steps, memory = recording.steps[at : at + stride], measured.memory[at : at + stride]
        most = [max(step.tokens for step in steps), max(len(step.scheduled) for step in steps)]
        span = [_short(steps[0].start_seconds), _short(steps[-1].end_seconds)]
        found.append([*span, *most, max(row.used_blocks for row in memory)])
    return found


def _bounds(measured: RunMetrics, name: str, given: float | None) -> tuple[list[float], float]:
    """Return a ladder of bounds from below the shortest wait to above the longest, and the rung to start on."""
    waits = measured.values(name) or [0.1]
    low, high = max(min(waits), 1e-6) / 2, max(max(waits), 1e-6) * 2
    rungs = {_short(low * (high / low) ** (at / 40), 2) for at in range(41)}
    start = given if given is not None else _short(max(measured.percentile(name, 90) or 0.1, 1e-6), 2)
    return sorted(rungs | {float(start)}), float(start)


def _static(state: State) -> str:
    rows, first, rest = state["rows"], state["ttft"], state["tpot"]
    met, rate = model.goodput(rows, first, rest, state["seconds"])

    def cells(row: Sequence[Any]) -> list[str]:
        waits = ["-" if seconds is None else si(seconds, "s") for seconds in (model.ttft(row), model.tpot(row))]
        miss = model.missed(row, first, rest)
        result = miss if miss == "not served" else f"misses {miss}" if miss else "met"
        return [row[0], si(row[1], "s"), *waits, str(row[4]), result]

    words = (
        f"Under TTFT <= {si(first, 's')} and TPOT <= {si(rest, 's')}, {met} of {len(rows)} requests are served in "
        f"time: goodput {plain(rate)} requests/s."
    )
    head = ["request", "arrival", "TTFT", "TPOT", "tokens", "in time"]
    caption = "Requests in the order of arrival" + (f", the first {_TOLD} of {len(rows)}" if len(rows) > _TOLD else "")
    return paragraph(words) + table(caption, head, [cells(row) for row in rows[:_TOLD]])


KIND = Kind("request_timeline", "Request timeline", _static)
