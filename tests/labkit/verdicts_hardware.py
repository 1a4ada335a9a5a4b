"""Oracles of the verdicts about machines: published tables, ``cuda.occupancy``, and closed formulas."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from mlsys_labkit._base.units import si
from mlsys_labkit.cuda.nvidia.occupancy import LIMITS, occupancy as kit_occupancy
from mlsys_labkit.widgets.accelerator_map import kinds as judgements
from mlsys_labkit.widgets.compiler_map import graph
from tests.labkit.verdict_numbers import Expected, State, nearest, plain, some, whole

Seen = Mapping[str, Any]
RESOURCES = {"warps": "warp slots", "blocks": "block slots"}


def accelerator_map(state: State, seen: Seen) -> Expected:
    """Sort the judgements of the table by hand."""
    change = state["change"]
    by_depth = sorted(judgements.KINDS, key=lambda kind: kind[2][change][0])
    easy = [name for name, _, levels in judgements.KINDS if levels[change][0] <= 1]
    hard = sum(levels[change][0] == len(judgements.TAKES) - 1 for _, _, levels in judgements.KINDS)
    name, _, levels = by_depth[-seen["handles"][0][2]]
    level, reason = levels[change]
    title = judgements.CHANGES[change]
    possible = f"while running on {', '.join(easy)}" if easy else "on none of them while running"
    return Expected(
        f"{title[0].upper()}{title[1:]}: possible {possible}; {hard} of {len(judgements.KINDS)} need a new chip; "
        f"{name} takes {judgements.TAKES[level]}: {reason}."
    )


def compiler_map(state: State, seen: Seen) -> Expected:
    """Try every order of up to all nodes between the ends, along the edges of the graph."""
    follows: dict[str, list[str]] = {}
    for source, target in graph.EDGES:
        follows.setdefault(source, []).append(target)

    def paths(way: tuple[str, ...]) -> list[tuple[str, ...]]:
        if way[-1] == state["end"]:
            return [way]
        return [one for node in follows.get(way[-1], ()) if node not in way for one in paths((*way, node))]

    found = paths((state["start"],))
    if not found:
        return Expected(f"No way from {state['start']} to {state['end']} on this map: it would have to be written.")
    through = re.search(r"of them through (.+);", seen["says"][0])
    kept = [way for way in found if not through or through[1] in way]
    part = f", {len(kept)} of them through {through[1]}" if through else ""
    ways = "1 way" if len(found) == 1 else f"{len(found)} ways"
    stops = some(min(map(len, kept)) - 2, "stop")
    return Expected(f"{ways} from {state['start']} to {state['end']}{part}; the shortest has {stops}.")


def energy_ladder(state: State, seen: Seen) -> Expected:
    """Divide joules by bits and by uses."""
    rungs = {name: (joules, bits) for name, joules, bits, _ in state["rungs"]}
    compute, bits = rungs[state["operation"]]
    joules, moved = rungs[state["place"]]
    fetch = joules / moved * bits
    total = compute + fetch / state["uses"]
    often = "once" if state["uses"] == 1 else f"{whole(state['uses'])} times"
    energy = f"{plain(total * 1e9)} nJ" if total >= 1e-9 else f"{plain(total * 1e12)} pJ"
    share = nearest(100 * (total - compute) / total)
    return Expected(
        f"{state['operation']} on a word from {state['place']}, used {often}: {share} % of {energy} is movement; "
        f"both are equal at {plain(fetch / compute)} uses."
    )


def hardware_explorer(state: State, seen: Seen) -> Expected:
    """Divide the rows of the table."""
    places = {name: at + 1 for at, (name, _, _) in enumerate(state["columns"])}
    labels = {name: (label, unit) for name, label, unit in state["columns"]}
    first, second = (next(row for row in state["rows"] if row[0] == state[one]) for one in ("first", "second"))
    x, y = (labels[state[name]] for name in ("x", "y"))
    both = [(row[places[state["x"]]], row[places[state["y"]]]) for row in state["rows"]]
    notes = _trend(x, y, np.array([pair for pair in both if all(pair)]))
    if first is second:
        return Expected(f"{first[0]}, beside itself.", notes=notes)
    pairs = [(labels[name], first[places[name]], second[places[name]]) for name in state["offered"]]
    times = [f"{plain(b / a)} times the {label}" for (label, unit), a, b in pairs if unit != "year" and a and b]
    ridges = ""
    if {"peak", "bandwidth"} <= places.keys():
        values = [(row[places["peak"]], row[places["bandwidth"]]) for row in (first, second)]
        if all(peak and bandwidth for peak, bandwidth in values):
            ridges = "; ridges: " + " and ".join(plain(peak / bandwidth) for peak, bandwidth in values) + " FLOP/B."
    return Expected(
        f"{second[0]} has {', '.join(times) or 'nothing in common'} of {first[0]}{ridges or '.'}", notes=notes
    )


def _trend(x: tuple[str, str], y: tuple[str, str], points: np.ndarray) -> list[str]:
    """Return the note on a line that NumPy fits through the machines."""
    if not len(points):
        return [f"No machine here has both {x[0]} and {y[0]}."]
    years = x[1] == "year"
    across = points[:, 0] if years else np.log2(points[:, 0])
    if y[1] == "year" or np.ptp(across) == 0:
        return [""]
    slope = np.polyfit(across - across.mean(), np.log2(points[:, 1]), 1)[0]
    if years and abs(slope) > 1e-3:
        return [f"{y[0]} {'doubles' if slope > 0 else 'halves'} every {plain(abs(1 / slope))} years."]
    return [f"{y[0]} goes with {x[0]} to the power of {plain(slope)}."]


def roofline(state: State, seen: Seen) -> Expected:
    """Compare the time of the arithmetic with the time of the bytes."""
    flops, moved = state["flops"], state["bytes"]
    said, rows, drawn = [], {}, []
    for at in (state["first"], state["second"]):
        if at < 0 or (at == state["first"] and said):  # a machine is not compared with itself
            continue
        machine = state["machines"][at]
        peak, bandwidth = machine["peaks"].get(state["dtype"]), machine["bandwidths"].get(state["level"])
        if not peak or not bandwidth:
            missing = f"bandwidth for {state['level']}" if peak else f"peak for {state['dtype']}"
            said.append(f"{machine['name']} states no {missing}")
            continue
        drawn.append((peak, bandwidth))
        compute, memory = flops / peak, moved / bandwidth
        limit = "memory" if memory > compute * (1 + 1e-12) else "compute"
        speed = min(peak, flops / moved * bandwidth)
        said.append(
            f"{machine['name']} is {limit} bound: at most {si(speed, 'FLOP/s')}, "
            f"{plain(100 * speed / peak)} % of its {state['dtype']} peak"
        )
        for name, value in {
            "bound": limit,
            "attainable": si(speed, "FLOP/s"),
            "ridge": f"{plain(peak / bandwidth)} FLOP/B",
            "least time": si(max(compute, memory), "s"),
        }.items():
            rows.setdefault(name, []).append(value)
    tags = ("A ", "B ") if len(drawn) > 1 else ("",)
    labels = [f"{tag}{si(peak, 'FLOP/s')}" for tag, (peak, _) in zip(tags, drawn, strict=False)]
    labels += [f"{tag}ridge {plain(peak / bandwidth)}" for tag, (peak, bandwidth) in zip(tags, drawn, strict=False)]
    head = f"{si(flops, 'FLOP')} over {si(moved, 'B')} is {plain(flops / moved)} FLOP/B"
    return Expected(f"{head}: {'; '.join(said)}.", rows, labels=labels)


def occupancy(state: State, seen: Seen) -> Expected:
    """Ask ``cuda.occupancy``, which is tested against NVIDIA's tables; search relief among all smaller values."""
    limits = LIMITS[state["architecture"]]

    def at(**changed: int) -> Any:
        now = {**state, **changed}
        return kit_occupancy(state["architecture"], now["threads"], now["registers"], now["shared"])

    found = at()
    warps = -(-state["threads"] // 32)
    stops = " and ".join(RESOURCES.get(name, name) for name in found.limits)
    if not found.blocks_per_sm:
        return Expected(
            f"No block fits: one block asks for more {stops} than {state['architecture']} has, so the launch fails."
        )
    relief = ""
    key = {("registers",): "registers", ("shared memory",): "shared"}.get(tuple(found.limits))
    if key:
        step = 1 if key == "registers" else 1024
        smaller = range((state[key] - 1) // step * step, 15 if key == "registers" else -1, -step)
        better = next((value for value in smaller if at(**{key: value}).blocks_per_sm > found.blocks_per_sm), None)
        if better is not None:
            size = f"{better} registers" if key == "registers" else f"{plain(better / 1024)} KiB"
            relief = f"; at {size} it would be {at(**{key: better}).blocks_per_sm} blocks"
    idle = -state["threads"] % 32
    waste = f"; {some(idle, 'lane')} of each block's last warp never {'works' if idle == 1 else 'work'}" if idle else ""
    fill = "fills" if found.blocks_per_sm == 1 else "fill"
    used = found.blocks_per_sm * warps
    return Expected(
        f"{some(found.blocks_per_sm, 'block')} of {some(warps, 'warp')} {fill} {used} of {limits.warps_per_sm} warp "
        f"slots: {plain(100 * used / limits.warps_per_sm)} % occupancy; the limit: {stops}{relief}{waste}."
    )
