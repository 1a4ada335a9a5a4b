"""Oracles of the verdicts about kernels, memory and numbers: NVIDIA's rules, NumPy, and counting by hand."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from mlsys_labkit import formats as kit_formats
from mlsys_labkit._base.units import si
from tests.labkit.verdict_numbers import Expected, State, javascript, plain, rounded, some, whole

Seen = Mapping[str, Any]
HEAT_UNITS = {"sectors": "sector", "wavefronts": "wavefront", "requests": "request", "steps": "lane-step"}


def tile_walk(state: State, seen: Seen) -> Expected:
    """Count loads tile by tile along one side."""
    n, tile, register, item = (state[name] for name in ("n", "tile", "register", "item"))
    ends = [min(n, low + tile) for low in range(0, n, tile)]
    loads = 2 * n * n * len(ends) * item  # each of len(ends) rows of blocks reads all of B, and each column all of A
    head = f"Block {state['block']} of {len(ends) ** 2}, step {state['step'] + 1} of {len(ends)}: "
    threads, shared = (tile // register) ** 2, 2 * tile * tile * item
    rows = {"threads a block": [str(threads), "your choice"], "loaded from global memory": [si(loads, "B")]}
    if tile == 1:
        return Expected(
            f"{head}a tile of 1 is the naive kernel, and every multiply-add loads both of its operands from global "
            f"memory, {si(loads, 'B')} in all.",
            rows,
        )
    warning = ""
    if threads > 1024:
        warning = f"; {threads} threads are more than the 1024 a block may have: give each thread more elements"  #
    elif shared > 48 * 1024:
        warning = (
            f"; {si(shared, 'B')} of shared memory are more than the 48 KiB of a static array: it takes dynamic "
            "shared memory, or a tile less deep along k"
        )
    elif threads < 32:
        warning = f"; {some(threads, 'thread')} {'does' if threads == 1 else 'do'} not fill a warp of 32"
    row, column = divmod(state["block"], len(ends))
    high, wide = (ends[at] - at * tile for at in (row, column))
    serves = f"each element of A that the block loads serves {some(wide, 'multiply-add')}, of B {high}"
    if high == wide:
        serves = f"each element that the block loads serves {some(high, 'multiply-add')}"
    mine = (high + wide) * item  # bytes of a column of the block's rows of A and of a row of its columns of B
    return Expected(
        f"{head}{serves}, {si(loads, 'B')} loaded "
        f"instead of {si(2 * n**3 * item, 'B')}, {plain(2 * n**3 / (loads + n * n * item))} FLOP/B{warning}.",
        rows,
        labels=[
            f"shared memory: {si(shared, 'B')}",
            f"this block loaded {si(mine * ends[state['step']], 'B')} of {si(mine * n, 'B')}",
        ],
    )


def _lanes(state: State) -> tuple[list[int | None], int, str, str, str]:
    """Return the byte of each lane, bytes per lane, space, operation and the words that name the request."""
    if state["pattern"] == "recorded":
        site = state["sites"][state["site"]]
        mine = [sample for sample in state["samples"] if sample[0] == state["site"]]
        _, where, lanes = mine[min(state["request"], len(mine) - 1)]
        return lanes, site["size"], site["space"], site["op"], f"Line {site['line']}, {where}: "
    formula = state["formula"].replace("/", "//")  # no index here is negative, so that C and Python divide alike
    indices = [eval(formula, {"lane": lane, "i": state["request"], "k": state["k"]}) for lane in range(32)]
    return [index * state["size"] for index in indices], state["size"], state["space"], "load", ""


def warp_access(state: State, seen: Seen) -> Expected:
    """Count sectors and words of a request byte by byte, after the rules in NVIDIA's programming guide."""
    lanes, size, space, op, where = _lanes(state)
    active = [at for at in lanes if at is not None]
    if not active:
        return Expected(f"{where}No lane is active.")
    asks = "lane asks" if len(active) == 1 else "lanes ask"
    head = f"{where}{len(active)} {asks} for {size} B each: "
    lane = {"Chosen thread of the warp": _lane(state["lane"], lanes, size, space, op)}
    same = max(Counter(active).values())
    turns = f"; {same} atomics on one address take turns" if op == "atomic" and same > 1 else ""
    asked = {at + byte for at in active for byte in range(size)}
    if space == "global":
        sectors, least = len({byte // 32 for byte in asked}), -(-len(asked) // 32)
        fine = "as few as there can be" if sectors == least else f"where {least} would do"
        share = plain(100 * len(asked) / (32 * sectors))
        rows = {"sectors of 32 B": [str(sectors), str(least)], "bytes fetched": [str(32 * sectors), str(32 * least)]}
        return Expected(
            f"{head}{len(asked)} distinct bytes in {some(sectors, 'sector')}, {fine}; {share} % of the "
            f"{32 * sectors} B fetched were asked for{turns}.",
            rows,
            handles=lane,
        )
    together = _together(lanes, size, op)
    depths, waves = [], []
    for low in range(0, 32, together):
        group = [at for at in lanes[low : low + together] if at is not None]
        words = {byte // 4 for at in group for byte in range(at, at + size)}
        depth = max(Counter(word % 32 for word in words).values(), default=0)
        depths.append(depth)
        waves.append(max(depth, max(Counter(group).values(), default=0) if op == "atomic" else 0))
    phases = sum(wave > 0 for wave in waves)
    parts = f" in {phases} phases of {together} lanes" if phases > 1 else ""
    conflict = (
        f"a {max(depths)}-way bank conflict: {max(depths)} different words in one bank"
        if max(depths) > 1
        else "no bank conflict: no bank is asked for two different words at once"
    )
    rows = {"wavefronts": [str(sum(waves)), str(phases)], "most in one phase": [str(max(waves)), "1"]}
    return Expected(f"{head}{some(sum(waves), 'wavefront')}{parts}; {conflict}{turns}.", rows, handles=lane)


def _together(lanes: Sequence[int | None], size: int, op: str) -> int:
    """Return how many lanes shared memory serves at once."""
    lanes_of = {8: 16, 16: 8}.get(size, 32)
    twice = op == "load" and lanes_of < 32 and any(_in_pairs(lanes, distance) for distance in (1, 2))
    return 2 * lanes_of if twice else lanes_of


def _lane(lane: int, lanes: Sequence[int | None], size: int, space: str, op: str) -> str:
    """Return what the handle says of a lane."""
    at = lanes[lane]
    if at is None:
        return f"Lane {lane} is inactive."
    if space == "global":
        first = at - at % 32
        return f"Lane {lane}: byte {at}, sector {first // 32} (bytes {first} to {first + 31})."
    together = _together(lanes, size, op)
    last = (at + size - 1) // 4 % 32
    phase = f" to {last}; phase {lane // together + 1} of {32 // together} (the others are dimmed)" if size > 4 else ""
    return f"Lane {lane}: byte {at}, word {at // 4}, bank {at // 4 % 32}{phase}."


def _in_pairs(lanes: Sequence[int | None], distance: int) -> bool:
    pairs = [(lanes[lane], lanes[lane ^ distance]) for lane in range(32)]
    return all(a is None or b is None or a == b for a, b in pairs)


def annotated_source(state: State, seen: Seen) -> Expected:
    """Add up the counts of the line."""
    line, metric = state["line"], state["heat"]
    own = [count for count in state["counts"] if count[0] == line]
    parts = []
    if metric == "steps":
        value = dict(state["steps"]).get(line)
    else:
        space, field = {"sectors": ("global", 6), "wavefronts": ("shared", 7), "requests": (None, 4)}[metric]
        counted = [count for count in own if space in (None, count[1]) and count[4]]
        value = sum(count[field] for count in counted) if counted else None
        value = value / sum(count[4] for count in counted) if counted and space else value
    if value is not None:
        per = " a request" if metric in ("sectors", "wavefronts") else ""
        number = plain(value) if per else whole(value)
        parts.append(f"{number} {HEAT_UNITS[metric]}{'' if value == 1 else 's'}{per}")
    ratios = [
        (count[top] / count[low] if count[low] else 1.0, count[1])
        for count in own
        for top, low in [(6, 8) if count[1] == "global" else (7, 9)]
    ]
    if not ratios:
        parts.append("no memory access on this line")
    else:
        worst, space = max(ratios, key=lambda one: one[0])
        if worst < 1.05:
            parts.append("as little traffic as the bytes need")
        elif space == "global":
            parts.append(
                f"{plain(worst)} times the sectors that the bytes need: neighbouring lanes should touch neighbouring "
                "addresses"
            )
        else:
            parts.append(
                f"{plain(worst)} times the wavefronts needed: lanes queue at the same bank, in different words"
            )
    parts += [f"finding: {mark['kind']}" for mark in state["findings"] if mark["line"] == line]
    return Expected(f"Line {line}: {'; '.join(parts)}.")


def compiled_stages(state: State, seen: Seen) -> Expected:
    """Count the lines of each stage that name this source line."""
    line, counted = state["line"], []
    for stage in state["stages"]:
        lines = sum(len(texts) + hidden for sources, texts, hidden in stage["runs"] if line in sources)
        if lines:
            counted.append(f"{whole(lines)} line{'' if lines == 1 else 's'} of {stage['name']}")
    nothing = "nothing is made of it: a name, a comment, or work that the compiler found needless"
    return Expected(f"Line {state['code'][line][0]}: {', '.join(counted) or nothing}.")


def strides(state: State, seen: Seen) -> Expected:
    """Ask NumPy for the same view of a memory that holds 0, 1, 2, ..."""
    shape, steps, item = tuple(state["shape"]), state["strides"], state["itemsize"]
    axes = np.meshgrid(*map(np.arange, shape), indexing="ij")
    places = (state["offset"] + sum(axis * step for axis, step in zip(axes, steps, strict=True))).ravel()
    lost = int(((places < 0) | (places >= state["size"])).sum())
    if lost:
        return Expected(
            f"{lost} of {places.size} elements lie outside the {state['size']} elements of memory: reading them is "
            "undefined behaviour."
        )
    memory = np.arange(state["size"], dtype=f"i{item}") if item > 1 else np.arange(state["size"]).astype("i1")
    view = np.lib.stride_tricks.as_strided(memory[state["offset"] :], shape, [step * item for step in steps])
    lines = places * item // 64
    moves, distinct = int(np.count_nonzero(np.diff(lines))), len(set(lines.tolist()))
    alias = places.size - len(set(places.tolist()))
    order = (
        "Contiguous: reading order is memory order"
        if view.flags.c_contiguous
        else ("Not contiguous: reading order jumps in memory")
    )
    return Expected(
        f"{order}; {some(places.size, 'element')}, {some(distinct, 'cache line')}, {some(moves, 'move')} between lines"
        + (f"; {alias} elements alias another, so a write to one shows in both" if alias else "")
        + "; no data moved"
        + ("; NumPy has negative strides, PyTorch does not (flip copies there)" if min(steps) < 0 else "")
        + "."
    )


def exact(value: float) -> str:
    """Return eight digits as the explorer of formats writes them."""
    if math.isnan(value):
        return "NaN"
    if abs(value) >= 1e6 or (value and abs(value) < 1e-4):
        mantissa, _, exponent = f"{rounded(value, 5):.4e}".partition("e")
        return f"{mantissa}e{int(exponent):+d}"
    return javascript(rounded(value, 8))


def number_formats(state: State, seen: Seen) -> Expected:
    """Search all numbers of the format, or step by step beside it where they are too many."""
    made, value = kit_formats.FORMATS[state["format"]], state["value"]
    numbers = _numbers(state["format"], value)
    low, top = numbers[0], numbers[-1]
    clipped = min(max(value, low), top)
    distances = np.abs(numbers - clipped)
    near = numbers[distances == distances.min()]
    stored = float(near[0] if len(near) == 1 else made.round(clipped))
    assert stored in near
    lower, higher = numbers[numbers < value], numbers[numbers > value]
    below, above = float(lower[-1] if len(lower) else low), float(higher[0] if len(higher) else top)
    handles = {"Number": f"{exact(value)}, stored as {exact(stored)}"}
    if stored == value:
        return Expected(
            f"{exact(value)} is a number of {state['format']}: no error; its neighbours are {exact(below)} and "
            f"{exact(above)}.",
            handles=handles,
            labels=[exact(value), f"stored {exact(stored)}"],
        )
    where = f"between {exact(below)} and {exact(above)}" if low <= value <= top else "beyond the range"
    error = abs(stored - value)
    relative = f"{plain(100 * error / abs(value))} %" if value else exact(error)
    return Expected(
        f"{exact(value)} lies {where}; {state['format']} stores {exact(stored)}, an error of "
        f"{exact(error)} ({relative}).",
        handles=handles,
        labels=[exact(value), f"stored {exact(stored)}"],
    )


def _numbers(name: str, value: float) -> np.ndarray:
    made = kit_formats.FORMATS[name]
    if made.bits <= 19:
        return _all_numbers(name)
    kind = np.float32  # too many to list: those beside the number
    with np.errstate(over="ignore"):
        here = kind(value)
        around = [here, np.nextafter(here, kind(-np.inf)), np.nextafter(here, kind(np.inf))]
    numbers = np.array([*around, np.finfo(kind).max, np.finfo(kind).min], np.float64)
    return np.unique(numbers[np.isfinite(numbers)])


@cache
def _all_numbers(name: str) -> np.ndarray:
    numbers = np.asarray(kit_formats.FORMATS[name].values(), np.float64).ravel()
    return np.unique(numbers[np.isfinite(numbers)])
