"""Oracles of the verdicts about runs: replays by hand, and ``mlsys_labkit.ranks``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mlsys_labkit._base.units import si
from mlsys_labkit.ranks import Link
from mlsys_labkit.ranks.simulation import schedules
from mlsys_labkit.ranks.simulation.clock import simulate
from mlsys_labkit.ranks.simulation.patterns import ALGORITHMS, pattern
from mlsys_labkit.ranks.simulation.theory import collective_seconds
from tests.labkit.verdict_numbers import Expected, State, plain, some

Seen = Mapping[str, Any]
SCHEDULES = {
    "gpipe": ("GPipe", "(p − 1) / (m + p − 1)"),
    "1f1b": ("1F1B", "(p − 1) / (m + p − 1)"),
    "interleaved": ("interleaved 1F1B", "(p − 1) / (v·m + p − 1)"),
    "zero_bubble": ("zero bubble (ZB-H1)", "(p − 1)·F / (m·(F + B) + (p − 1)·F)"),
}


def memory_timeline(state: State, seen: Seen) -> Expected:
    """Add up the bytes of the events."""
    live = np.cumsum([event[1] for event in state["events"]])
    at, top = state["cursor"], int(np.argmax(live))
    share = f", {plain(100 * live[at] / live[top])} % of the peak of {si(live[top], 'B')}"
    return Expected(
        f"At event {at + 1}: {si(live[at], 'B')} live{', the peak' if at == top else share}.",
        labels=[f"peak {si(live[top], 'B')} at {top + 1}"],
    )


def request_timeline(state: State, seen: Seen) -> Expected:
    """Compare each request's waits with the bounds; a wait of exactly the bound is in time."""

    def verdict(row: Any) -> str:
        _, arrival, first, last, tokens, reason = row
        if first is None or reason not in ("stop", "length"):
            return f"not served ({reason or 'unfinished'})"
        late = first - arrival > state["ttft"] * (1 + 1e-9)
        slow = tokens > 1 and (last - first) / (tokens - 1) > state["tpot"] * (1 + 1e-9)
        return (
            "misses both bounds" if late and slow else "misses TTFT" if late else "misses TPOT" if slow else "in time"
        )

    rows = state["rows"]
    met = sum(verdict(row) == "in time" for row in rows)
    name, arrival, first, last, tokens, _ = row = rows[state["row"]]
    own = [piece for piece in state["segments"] if piece[0] == state["row"]]
    spent = Counter()
    for _, kind, start, end, _ in own:
        spent[kind] += end - start
    many = Counter(piece[1] for piece in own)
    ttft = "none" if first is None else si(first - arrival, "s")
    tpot = "none" if tokens < 2 else si((last - first) / (tokens - 1), "s")
    times = "once" if many[3] == 1 else f"{many[3]} times"
    lost = f", preempted {times} for {si(spent[3], 's')}" if many[3] else ""
    return Expected(
        f"{met} of {len(rows)} requests ({plain(100 * met / len(rows))} %) are served in time: goodput "
        f"{plain(met / state['seconds'])} requests/s; {name}: arrived at {si(arrival, 's')}, queued "
        f"{si(spent[0], 's')}, prefilled in {some(many[1], 'chunk')}, {some(tokens, 'token')}, TTFT {ttft}, TPOT "
        f"{tpot}{lost}: {verdict(row)}."
    )


def block_table(state: State, seen: Seen) -> Expected:
    """Replay the changes of the tables."""
    held: dict[int, tuple[int, list[int]]] = {}
    cached: set[int] = set()
    for changes, turned in state["steps"][: state["step"] + 1]:
        cached ^= set(turned)
        for owner, tokens, kept, *blocks in changes:
            held[owner] = (tokens, [*held.get(owner, (0, []))[1][:kept], *blocks])
    held = {owner: table for owner, table in held.items() if table[1]}
    holders = Counter(block for _, blocks in held.values() for block in blocks)
    size, filled = state["size"], {}
    for tokens, blocks in held.values():
        for at, block in enumerate(blocks):
            filled[block] = max(filled.get(block, 0), min(size, max(0, tokens - at * size)))
    slots = len(holders) * size
    empty = f"{plain(100 * (slots - sum(filled.values())) / slots)} %" if slots else "none"
    shared = sum(count > 1 for count in holders.values())
    clock = "virtual " if state["clock"] == "virtual" else ""
    time = f" ({clock}time {si(state['seconds'][state['step']], 's')})" if state["seconds"][-1] else ""
    events = "".join(f"; {event}" for event in state["events"][state["step"]])
    return Expected(
        f"After step {state['step'] + 1} of {len(state['steps'])}{time}, {some(len(held), 'request')} "
        f"{'holds' if len(held) == 1 else 'hold'} {len(holders)} of {state['total']} blocks, {shared} of them shared; "
        f"{len(cached)} more are cached, {empty} of the slots in use are unfilled{events}."
    )


def collective_animator(state: State, seen: Seen) -> Expected:
    """Pass sets of contributions along the messages of ``ranks.pattern``."""
    name, way, p, step = (state[key] for key in ("collective", "algorithm", "ranks", "step"))
    plan = pattern(name, p, way)
    times = [_collective_times(state)]
    if step == 0:
        own = "rank 0 holds the tensor" if name == "broadcast" else "each rank holds its own contribution"
        return Expected(f"Before round 1 of {len(plan.rounds)}: {own}.", others=times)

    def at_first(rank: int, chunk: int) -> set[int]:
        owner = {"broadcast": 0, "all_gather": chunk, "all_to_all": chunk // p}.get(name, rank)
        return {rank} if rank == owner else set()

    has = [[at_first(rank, chunk) for chunk in range(plan.chunks)] for rank in range(p)]
    for messages in plan.rounds[:step]:
        carried = [(m, {chunk: set(has[m.source][chunk]) for chunk in m.chunks}) for m in messages]
        for m, chunks in carried:
            for chunk, given in chunks.items():
                has[m.destination][chunk] = given | has[m.destination][chunk] if m.reduce else given
    wanted = {
        "all_reduce": lambda rank: all(len(one) == p for one in has[rank]),
        "reduce_scatter": lambda rank: len(has[rank][rank]) == p,
        "reduce": lambda rank: rank == 0 and all(len(one) == p for one in has[rank]),
        "all_gather": lambda rank: all(has[rank]),
        "broadcast": lambda rank: all(has[rank]),
        "all_to_all": lambda rank: all(has[rank][p * source + rank] for source in range(p)),
    }[name]
    done = sum(map(wanted, range(p)))
    goal = "1 ranks has its" if name == "reduce" else f"{p} ranks have their"
    last = plan.rounds[step - 1]
    what = "the whole tensor" if plan.chunks == 1 else some(len(last[0].chunks), "chunk")
    kept = "added to what is there" if last[0].reduce else "kept as they come"
    return Expected(
        f"Round {step} of {len(plan.rounds)}: {some(len(last), 'message')} of {what}, {kept}; {done} of {goal} result.",
        others=times,
    )


def _collective_times(state: State) -> str:
    """Return the verdict on the times of a collective's algorithms."""
    name, n, size = state["collective"], state["cluster"], state["size"]
    link = Link(state["latency"], state["bandwidth"])
    ways = [way for way in ALGORITHMS[name] if way != "pairwise"]

    def seconds(way: str, of: float) -> float:
        return float(collective_seconds(name, way, n, of, link))

    times = {way: seconds(way, size) for way in ways}
    least = min(times.values())
    fastest = " and ".join(way for way, time in times.items() if time <= least * (1 + 1e-9))
    told = ", ".join(f"{way} {si(time, 's')}" for way, time in times.items())
    text = f"{si(size, 'B')} on {n} ranks: {told}. Fastest: {fastest}. "
    if {"tree", "ring"} <= times.keys() and seconds("tree", 1) < seconds("ring", 1):
        low, high = 1.0, 1e18
        for _ in range(200):
            middle = (low * high) ** 0.5
            low, high = (middle, high) if seconds("tree", middle) < seconds("ring", middle) else (low, middle)
        if high < 1e18:
            text += f"The tree beats the ring below {si(low, 'B')}: fewer messages, more bytes."
    return text


def pipeline_gantt(state: State, seen: Seen) -> Expected:
    """Simulate the schedule with the clock of ``ranks``; a trace is added up bar by bar."""
    p, m = state["stages"], state["micro_batches"]
    if state["bars"]:
        length = max(bar[4] for bar in state["bars"])
        busy = sum(end - start for _, kind, _, start, end, _ in state["bars"] if kind != "call")
        said = f"{state['note']}{state['path']}".replace(". ", "; ")
        return Expected(
            f"{p} ranks in {si(length, 's')}: computing fills {plain(100 * busy / (p * length))} % of their "
            f"time; {said}"
        )
    name, chunks, backward = state["schedule"], state["chunks"], state["backward"]
    made = schedules.schedule(name, p, m, chunks=chunks)
    trace = simulate(schedules.pipeline_programs(made, forward_seconds=1.0, backward_seconds=backward))
    tasks = [event for event in trace if event.kind == "compute"]
    length = max(float(event.end_seconds) for event in tasks)
    idle = 1 - m * (1 + backward) / length  # each stage computes m forwards and m backwards, whatever the chunks
    theory = {
        "gpipe": (p - 1) / (m + p - 1),
        "1f1b": (p - 1) / (m + p - 1),
        "interleaved": (p - 1) / (chunks * m + p - 1),
        "zero_bubble": (p - 1) / (m * (1 + backward) + p - 1),
    }[name]
    title, formula = SCHEDULES[name]
    note = "" if abs(idle - theory) < 1e-9 else ", which holds for m ≥ p and W ≤ F"
    return Expected(
        f"{title}: the bubble is {plain(100 * idle)} % of all time; {formula} = {plain(100 * theory)} %{note}; "
        f"{plain(length)} forwards in all.",
        {str(stage): _stage(tasks, stage, state["cursor"] / 1000 * length, length) for stage in range(p)},
    )


def _stage(tasks: Sequence[Any], stage: int, at: float, length: float) -> list[str]:
    """Return the row of a stage: its task, its time, and the micro-batches whose activations it holds and held."""
    own = [(event.name, float(event.start_seconds), float(event.end_seconds)) for event in tasks if event.rank == stage]
    last = "W" if any(event.name[0] == "W" for event in tasks) else "B"
    moments = sorted({time for _, start, end in own for time in (start, end)})

    def held(moment: float) -> int:
        begun = sum(name[0] == "F" and start <= moment for name, start, _ in own)
        return begun - sum(name[0] == last and end <= moment for name, _, end in own)

    now = ", ".join(name for name, start, end in own if start <= at < end)
    busy = sum(end - start for _, start, end in own)
    return [
        now or "idle",
        f"{plain(busy)} F",
        f"{plain(length - busy)} F",
        str(held(at)),
        str(max(map(held, moments))),
    ]


def prediction(state: State, seen: Seen) -> Expected:
    """Compare the choice with the answer by their letters."""
    if state["choice"] is None:
        return Expected("")
    letters = "abcdefghij"
    answer = letters[state["answer"]]
    right = letters[state["choice"]] == answer
    return Expected(f"{'Right.' if right else f'Not this time: it is {answer}.'} {state['because']}")
