"""Drawings of many requests: a queue, cache tiers, guesses, masks, adapters, agents and the processes of "
"an engine."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

from mlsys_labkit import specs
from mlsys_labkit.drawings.drawing import Drawing
from mlsys_labkit.drawings.parts import Arrow, Box, Label, Part, Role, column, row
from mlsys_labkit.planner.cluster import CLUSTERS
from mlsys_labkit.planner.transformer import Transformer


def littles_law() -> Drawing:
    """Return four requests as bars, and the number of requests below them.

    Source: Little, "A proof for the queuing formula: L = lambda W", 1961.
    """
    unit, left = 43.0, 96.0
    spans = ((0, 4), (1, 6), (3, 5), (7, 10))
    parts: list[Part] = []
    for at, (start, end) in enumerate(spans):
        box = Box(left + unit * start, 24 + 28 * at, unit * (end - start), 22, f"{end - start} s", "compute")
        parts += [box, Label(16, 40 + 28 * at, f"request {at + 1}", "start")]
    for second in range(10):
        present = sum(start <= second < end for start, end in spans)
        for level in range(present):
            parts.append(Box(left + unit * second, 214 - 22 * level, unit - 2, 20, "", "memory"))
        parts.append(Label(left + unit * (second + 0.5), 252, str(present)))
    total = sum(end - start for start, end in spans)
    parts += [
        Label(16, 252, "N(t)", "start"),
        Label(left + 10 * unit + 14, 80, f"rows: {total} s", "start"),
        Label(left + 10 * unit + 14, 210, f"columns: {total} s", "start"),
        Label(
            16,
            280,
            f"L = {total} / 10 = {total / 10:g} requests;  λ W = 4 / 10 per second × {total / 4:g} s = {total / 10:g}",
            "start",
        ),
    ]
    return Drawing(
        "One area, counted in rows and in columns",
        f"Above, four requests as bars over ten seconds, {total} seconds together. Below, for each second, "
        f"as many squares as requests are present: {total} squares. Divided by ten seconds, both say "
        "how many requests are present on average.",
        "Nothing was assumed about the order of service or about the arrivals.",
        290,
        parts,
    )


def cache_tiers() -> Drawing:
    """Return the places where a cache of keys and values can wait, by bandwidth."""
    dgx, h100, model = CLUSTERS["dgx-h100"], specs.get("h100-sxm"), Transformer.named("llama-3-8b")
    host, port = float(dgx.host.bytes_per_second), float(dgx.inter.bytes_per_second)
    tiers: tuple[tuple[str, str, float, Role], ...] = (
        ("HBM of the GPU", "HBM", h100.bandwidth(), "compute"),
        ("host memory, PCIe 5", "host memory", host, "memory"),
        ("another node, 400 Gb/s", "another node", port, "memory"),
        ("NVMe drive, PCIe 5 x4", "an NVMe drive", host / 4, "memory"),  # the host's link has 16 lanes
        ("object store, 10 Gb/s", "an object store", 10e9 / 8, "control"),
    )
    reached = 0.6 * h100.peak("bfloat16")  # by prefill, as chapter 11 assumes
    limit = model.kv_bytes_per_token() * reached / (2 * model.parameters)
    least, left = tiers[-1][2], 180.0

    def width(rate: float) -> float:
        return 50 + 90 * math.log10(rate / least)

    parts: list[Part] = []
    for at, (name, _, rate, role) in enumerate(tiers):
        y, wide = 22 + 40 * at, width(rate)
        parts += [
            Label(16, y + 20, name, "start"),
            Box(left, y, wide, 30, "", role),
            Label(max(left + 10 + wide, 290), y + 20, f"{rate / 1e9:,.6g} GB/s", "start"),
        ]
    edge = left + width(limit)
    parts += [
        Arrow([(edge, 10), (edge, 226)], "link", "none", dashed=True),
        Label(edge + 6, 236, f"{limit / 1e9:.1f} GB/s: below it, computing again is faster", "start", "link"),
        Label(16, 260, "bars are logarithmic; Llama 3 8B on an H100", "start"),
    ]
    return Drawing(
        "Places where a cache can wait",
        "Bandwidths in GB/s from high to low: "
        + ", ".join(f"{said} {rate / 1e9:,.6g}" for _, said, rate, _ in tiers)
        + f". The break-even of Llama 3 8B on an H100 is {limit / 1e9:.1f} GB/s: all but the object store are "
        "faster than computing the cache again.",
        "The break-even depends on the model's cache per token and on the GPU's arithmetic, not on the length.",
        270,
        parts,
    )


def speculation() -> Drawing:
    """Return one pass of speculative decoding with four guesses."""
    texts = ["the", "cat", "sat", "down", "on"]
    guesses = row(150, 34, 470, 36, texts[1:], "control", gap=14)
    verdicts: tuple[tuple[str, Role], ...] = (
        ("accepted", "link"),
        ("accepted", "link"),
        ("rejected", "memory"),
        ("dropped", "absent"),
    )
    checked = [Box(box.x, 130, box.width, 36, text, role) for box, (text, role) in zip(guesses, verdicts, strict=True)]
    parts: list[Part] = [
        Box(20, 34, 96, 36, texts[0], "plain"),
        *guesses,
        *checked,
        Arrow([(116, 52), (150, 52)]),
        Label(385, 22, "draft: four guesses, one after another, by something cheap"),
        Label(385, 104, "the model checks all of them in one pass"),
        Label(16, 153, "verdict", "start", bold=True),
        Label(16, 211, "result", "start", bold=True),
        *row(150, 190, 349, 36, ["cat", "sat", "in, drawn anew"], "compute", gap=14),
        Label(150, 254, "3 tokens for one reading of the weights", "start"),
    ]
    parts += [Arrow([guess.bottom, below.top], "plain") for guess, below in zip(guesses, checked, strict=True)]
    return Drawing(
        "One pass of speculative decoding",
        "After the word the, a draft guesses cat, sat, down, on. The model checks the four in one pass: it "
        "accepts two, rejects the third and draws another word in its place, and drops the fourth. The pass "
        "yields "
        "three tokens.",
        "A rejected guess is replaced by a draw from what the draft had given too little, so the text has "
        "the model's distribution.",
        264,
        parts,
    )


def token_mask() -> Drawing:
    """Return a state of an automaton and the mask that it gives to the logits."""
    states = row(
        16, 40, 608, 44, ['{"age":', "digit", "digit or ,", '"member":', "true, false", "}"], "control", gap=24
    )
    mask: tuple[tuple[str, bool], ...] = (
        ("cat", False),
        ("2", True),
        ("42", False),
        ("the", False),
        (",", True),
        ('"', False),
        ("true", False),
    )
    cells = row(96, 142, 528, 34, [text for text, _ in mask], "plain", gap=6)
    cells = [replace(box, role="compute" if on else "absent") for box, (_, on) in zip(cells, mask, strict=True)]
    parts: list[Part] = [*states, *cells, Box(states[2].x - 5, 35, states[2].width + 10, 54, "", "compute")]
    parts += [Arrow([a.right, b.left]) for a, b in pairwise(states)]
    parts += [
        Label(16, 22, 'automaton of the form, and the state after “{"age": 4”', "start"),
        Arrow([(states[2].bottom[0], 89), (states[2].bottom[0], 142)], "compute"),
        Label(16, 164, "tokens", "start"),
        Label(96, 202, "blue: may follow. dashed: logit set to −∞ before the draw (ages go to 99)", "start"),
    ]
    return Drawing(
        "A mask from an automaton",
        "An automaton has the states: age, digit, digit or comma, member, true or false, end. After the "
        "first digit another digit or a comma may follow, so the tokens 2 and comma "
        "are allowed. The others are masked: 42 would make the age 442.",
        "The masks of all states are computed once, before serving. A step looks one of them up.",
        212,
        parts,
    )


def adapters() -> Drawing:
    """Return a batch whose rows share a base matrix and have thin matrices of their own.

    Source: Chen and others, "Punica", arXiv 2310.18547, 2023.
    """
    model, rank = Transformer.named("llama-3-8b"), 16
    width, inner, keys = model.width, model.hidden, model.kv_width
    sides = 2 * (width + model.query_width) + 2 * (width + keys) + 3 * (width + inner)  # of a layer's seven matrices
    size = 2 * rank * sides * model.layers
    users = column(16, 40, 110, 168, ["row 0: A", "row 1: B", "row 2: A", "row 3: C"], gap=8)
    roles: tuple[Role, ...] = ("link", "control", "link", "memory")
    users = [replace(box, role=role) for box, role in zip(users, roles, strict=True)]
    base = Box(200, 40, 170, 168, "base W: one product\nfor all rows,\nread once", "compute")
    parts: list[Part] = [*users, base]
    thin = column(440, 40, 110, 168, ["adapter A", "adapter B", "adapter C"], gap=14)
    own: tuple[Role, ...] = ("link", "control", "memory")
    thin = [replace(box, role=role) for box, role in zip(thin, own, strict=True)]
    parts += [*thin, *[Arrow([user.right, (200, user.left[1])]) for user in users]]
    parts += [
        Arrow([(370, 124), (440, 124)], heads="none"),
        Label(405, 112, "+"),
        Label(560, 70, f"{rank}-wide,", "start"),
        Label(560, 87, f"{size / 1e6:.0f} MB each", "start"),
        Label(
            16,
            238,
            f"an adapter of rank {rank} for Llama 3 8B takes the place of {size / model.kv_bytes_per_token():.0f} "
            "tokens of cache",
            "start",
        ),
    ]
    return Drawing(
        "Rows of one batch with different adapters",
        "Four rows share one product with the base matrix. Rows 0 and 2 also use adapter A, row 1 adapter "
        f"B, row 3 adapter C. An adapter of rank {rank} has {size / 1e6:.0f} MB.",
        "The arithmetic of the adapters is small. What grows with their number is the reading.",
        248,
        parts,
    )


def agent_turns() -> Drawing:
    """Return the growing prompt of an agent, with what is new in each turn."""
    parts: list[Part] = []
    for turn in range(5):
        y, known = 34 + 34 * turn, 110 + 70 * turn
        parts.append(Label(16, y + 18, f"turn {turn + 1}", "start", bold=True))
        if turn:
            parts.append(Box(80, y, known - 44, 26, "in the cache", "memory"))
            parts.append(Box(80 + known - 44, y, 44, 26, "", "compute"))
        else:
            parts.append(Box(80, y, known, 26, "prompt", "compute"))
        parts.append(Box(80 + known, y, 26, 26, "", "control"))
    parts += [
        Label(80, 222, "blue: to compute. orange: found in the cache. purple: written by the model", "start"),
        Label(80, 244, "without reuse every turn computes its whole row again", "start"),
    ]
    return Drawing(
        "The growing prompt of an agent",
        "Five turns. Each prompt is the last one with the model's words and a tool's output appended. With "
        "reuse, only the new part is computed; without it, the whole row.",
        "Without reuse, the tokens to compute grow with the square of the number of turns.",
        254,
        parts,
    )


def engine_processes() -> Drawing:
    """Return the processes of vLLM V1 for two-way tensor parallelism.

    Source: vLLM's documentation, "Architecture overview".
    """
    server = Box(16, 84, 150, 70, "API server\nHTTP, tokeniser,\nstreaming", "link")
    core = Box(240, 84, 150, 70, "engine core\nscheduler and\ncache manager", "control")
    workers = column(470, 40, 154, 158, ["worker of GPU 0", "worker of GPU 1"], "compute", gap=26)
    parts: list[Part] = [server, core, *workers]
    parts += [
        Arrow([server.right, core.left], heads="both"),
        Arrow([core.right, workers[0].left], heads="both"),
        Arrow([core.right, workers[1].left], heads="both"),
        Arrow([workers[0].bottom, workers[1].top], "link", "both"),
        Label(203, 76, "ZeroMQ"),
        Label(398, 192, "shared", "start"),
        Label(398, 209, "memory", "start"),
        Label(562, 123, "NCCL", "start"),
        Label(16, 228, "each box is a process: tokenising never delays a step of the GPU", "start"),
    ]
    return Drawing(
        "Processes of an engine",
        "An API server process tokenises and streams. It talks to the engine core, which schedules and "
        "manages the cache, over ZeroMQ. The core talks to one worker process per GPU through shared "
        "memory, and the workers "
        "exchange tensors by NCCL.",
        "vLLM V1 with two GPUs. Python's lock is one per process, so work on text and work on steps do not "
        "wait for each other.",
        238,
        parts,
    )
