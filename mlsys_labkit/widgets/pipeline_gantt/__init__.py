"""Pipeline Gantt: schedules of stages and micro-batches with sliders; and any trace with times, rank by rank."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from mlsys_labkit._base.units import si
from mlsys_labkit.errors import LabkitError
from mlsys_labkit.widgets.base import Kind, State, paragraph, table
from mlsys_labkit.widgets.pipeline_gantt import model

if TYPE_CHECKING:
    from mlsys_labkit.ranks.trace.events import Event, RunTrace

NAMES = {"gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "interleaved 1F1B", "zero_bubble": "zero bubble (ZB-H1)"}
MOST = {"stages": 8, "micro_batches": 32, "chunks": 4}
BACKWARDS = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
MOST_BARS = 2000
_TASK = re.compile(r"([FBW])(\d+(?:\.\d+)?)")


def pipeline_gantt(
    stages: int = 4, micro_batches: int = 8, schedule: str = "1f1b", *, chunks: int = 1, backward: float = 2.0
) -> Any:
    """Draw a pipeline schedule, its bubble beside the formula, and the activations that each stage holds.

    ``schedule`` is "gpipe", "1f1b", "interleaved" (with ``chunks`` model chunks per stage) or "zero_bubble";
    ``backward`` is the time of a backward in forwards (0.5 to 3 in halves). Messages take no time here;
    ``rank_timeline`` draws runs where they do. Raises LabkitError for another schedule and numbers out of range.
    Reference: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters", 2021.

    Example:
        >>> pipeline_gantt(stages=4, micro_batches=8, schedule="interleaved", chunks=2)
        <Pipeline schedule>
    """
    if schedule not in NAMES or float(backward) not in BACKWARDS:
        raise LabkitError(
            f"expected a schedule of {', '.join(NAMES)}, backward of {BACKWARDS}; got {schedule!r}, {backward}"
        )
    given = {"stages": stages, "micro_batches": micro_batches, "chunks": chunks}
    for name, value in given.items():
        if not 1 <= value <= MOST[name]:
            raise LabkitError(f"expected {name} from 1 to {MOST[name]}, got {value}")
    model.steps(schedule, stages, micro_batches, chunks)  # raises where the schedule does not allow the numbers
    drawn = {"bars": [], "arrows": [], "path": "", "note": ""}
    return KIND.show(**given, schedule=schedule, backward=float(backward), cursor=0, **drawn)


def rank_timeline(trace: RunTrace) -> Any:
    """Draw a trace with times: what each rank computed, where it stood still, its messages, and the critical path.

    ``trace`` is simulated, replayed or recorded with a clock. At most 2,000 bars are drawn.
    Raises RanksError for a trace without times, LabkitError for one in which nothing took any.
    Reference: Yang and Miller, "Critical Path Analysis for the Execution of Parallel and Distributed Programs", 1988.

    Example:
        >>> from mlsys_labkit.ranks import Compute, Link, Recv, Send, simulate
        >>> link = Link(latency_seconds=1e-5, bytes_per_second=1e9)
        >>> rank_timeline(simulate([[Compute("F0", 1e-3), Send(1, 1000)], [Recv(0), Compute("F0", 1e-3)]], link))
        <Ranks in time>
    """
    from mlsys_labkit.ranks.trace.analysis import critical_path

    path = critical_path(trace)
    if not path.stretches:
        raise LabkitError("expected a trace that took time, got one of 0 s; give its tasks seconds")
    first = path.stretches[0].start_seconds
    on_path = {id(stretch.event) for stretch in path.stretches if stretch.kind in ("compute", "collective")}
    timed = sorted((event for event in trace if event.seconds), key=lambda event: _seconds(event)[0])
    drawn, left_out = timed[:MOST_BARS], len(timed) - MOST_BARS
    keys = {stretch.event.key for stretch in path.stretches if stretch.event is not None}
    parts = (("computing", "compute"), ("messages", "message"), ("collectives", "collective"), ("other", "other"))
    words = ", ".join(f"{si(path.of(kind), 's')} {name}" for name, kind in parts if path.of(kind) > 0)
    return TIMELINE.show(
        stages=trace.world_size,
        micro_batches=1,
        chunks=1,
        schedule=trace.backend,
        backward=2.0,
        cursor=0,
        bars=[[*_bar(event, first), int(id(event) in on_path)] for event in drawn],
        arrows=[[*arrow, int(key in keys)] for key, arrow in _arrows(trace, first)][:MOST_BARS],
        path=f"{si(path.seconds, 's')} on the critical path: {words}.",
        note=f"The last {left_out} bars are not drawn. " if left_out > 0 else "",
    )


def _seconds(event: Event) -> tuple[float, float]:
    assert event.start_seconds is not None
    assert event.end_seconds is not None
    return float(event.start_seconds), float(event.end_seconds)


def _bar(event: Event, first: float) -> list[Any]:
    start, end = (time - float(first) for time in _seconds(event))
    if event.kind != "compute":
        return [event.rank, "call", event.name, start, end]
    task = _TASK.fullmatch(event.name)
    return [event.rank, task[1] if task else "task", task[2] if task else event.name, start, end]


def _arrows(trace: RunTrace, first: float) -> list[tuple[str, list[Any]]]:
    """Return (key, [source, time of the send, destination, time of arrival, bytes]) of each complete message."""
    sends: dict[str, Event] = {}
    arrivals: dict[str, tuple[int, float]] = {}
    for event in trace:
        if event.kind == "send":
            sends[event.key] = event
        elif event.kind == "recv" or (event.kind == "wait" and event.name == "recv"):
            arrivals[event.key] = (event.rank, _seconds(event)[1])
    out = []
    for key, sent in sends.items():
        if key in arrivals:
            rank, end = arrivals[key]
            out.append((key, [sent.rank, _seconds(sent)[0] - float(first), rank, end - float(first), sent.bytes]))
    return out


def _static(state: State) -> str:
    p, drawn = state["stages"], state["bars"]
    if not drawn:
        f, b, m, v = 1.0, state["backward"], state["micro_batches"], state["chunks"]
        rows = []
        for name, title in NAMES.items():
            parts = v if name == "interleaved" else 1
            if parts > 1 and m % p:
                continue
            made = model.bars(name, p, m, parts, f, b)
            length = max(end for *_, end in made)
            peaks = " ".join(str(max(held for _, held in model.live(made, rank))) for rank in range(p))
            rows.append([title, f"{100 * model.idle(made, p, length):.3g} %", f"{length:g}", peaks])
        words = f"{p} stages, {m} micro-batches, {v} chunks a stage; a backward takes {b:g} forwards, messages nothing."
        head = ["schedule", "bubble", "time in forwards", "most micro-batches held, by stage"]
        return paragraph(words) + table("Pipeline schedules", head, rows)
    rows = []
    for rank in range(p):
        mine = [bar for bar in drawn if bar[0] == rank]
        busy = sum(bar[4] - bar[3] for bar in mine if bar[1] != "call")
        calls = sum(bar[4] - bar[3] for bar in mine if bar[1] == "call")
        order = ", ".join(bar[1] + bar[2] if bar[1] in "FBW" else bar[2] for bar in mine[:12])
        rows.append([f"rank {rank}", si(busy, "s"), si(calls, "s"), order])
    head = ["rank", "computing", "in calls", "what came first"]
    return paragraph(state["note"] + state["path"]) + table("What each rank did", head, rows)


KIND = Kind("pipeline_gantt", "Pipeline schedule", _static)
TIMELINE = Kind("pipeline_gantt", "Ranks in time", _static)
