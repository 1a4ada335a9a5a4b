"""Drawings of many GPUs that train one model: collectives, cuts, pipelines and networks."""

from __future__ import annotations

import math

from mlsys_labkit.drawings.drawing import Drawing
from mlsys_labkit.drawings.parts import Arrow, Box, Label, Part, Role, column, row
from mlsys_labkit.ranks.simulation.clock import simulate
from mlsys_labkit.ranks.simulation.schedules import pipeline_programs, schedule


def ring_all_reduce() -> Drawing:
    """Return the two halves of a ring all-reduce over four ranks.

    Source: Patarasuk, Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.
    """
    parts: list[Part] = []
    for at, (name, sums) in enumerate((("reduce-scatter: 3 steps", False), ("all-gather: 3 steps", True))):
        left = 20 + 316 * at
        parts.append(Label(left + 142, 18, name, bold=True))
        for rank in range(4):
            x, y = left + (0 if rank in (0, 3) else 170), 34 + (0 if rank < 2 else 112)
            parts.append(Box(x, y, 114, 66, f"rank {rank}", holds=True))
            for chunk in range(4):
                done = sums or chunk == (rank + 1) % 4
                role: Role = "compute" if done else "memory"
                parts.append(Box(x + 8 + 25 * chunk, y + 30, 22, 26, "Σ" if done else str(chunk), role))
        parts += [
            Arrow([(left + 114, 67), (left + 170, 67)], "link"),
            Arrow([(left + 227, 100), (left + 227, 146)], "link"),
            Arrow([(left + 170, 179), (left + 114, 179)], "link"),
            Arrow([(left + 57, 146), (left + 57, 100)], "link"),
        ]
    parts += [
        Label(162, 238, "after it, each rank has one whole sum"),
        Label(478, 238, "after it, each rank has all sums"),
        Label(
            320,
            264,
            "in each of 6 steps each rank sends a quarter of the data",
        ),
    ]
    return Drawing(
        "A ring all-reduce over four ranks",
        "Four ranks form a ring, and the data are cut into four chunks. In three steps of reduce-scatter each "
        "rank ends with the sum of one chunk. In three steps of all-gather the sums "
        "go round until every rank has all four.",
        "With N ranks each sends 2 (N − 1) / N times its data. No rank waits for a link that another one uses.",
        276,
        parts,
    )


def tensor_parallel() -> Drawing:
    """Return an MLP cut over two ranks: the first matrix by columns, the second by rows.

    Source: Shoeybi and others, "Megatron-LM", arXiv 1909.08053, 2019.
    """
    parts: list[Part] = [Box(16, 96, 70, 60, "X\nthe same", "plain")]
    for rank, y in ((0, 34), (1, 148)):
        first = Box(130, y, 110, 70, f"A, columns\nof rank {rank}", "compute")
        act = Box(270, y + 12, 80, 46, "GELU", "control")
        second = Box(380, y, 110, 70, f"B, rows\nof rank {rank}", "compute")
        parts += [first, act, second]
        parts += [
            Arrow([(86, 126), (130, y + 35)]),
            Arrow([first.right, act.left]),
            Arrow([act.right, second.left]),
            Arrow([second.right, (536, 126)], "link"),
        ]
    parts += [
        Box(536, 96, 88, 60, "all-reduce:\nadd", "link"),
        Label(310, 24, "nothing is sent between A and B"),
        Label(310, 244, "forward: one all-reduce of the activations for each MLP, and one for each attention"),
    ]
    return Drawing(
        "An MLP cut over two ranks",
        "The same X goes to both ranks. Each multiplies with half of the columns of A, applies GELU, and "
        "multiplies with half of the rows of B. The two partial results are added by an all-reduce.",
        "Columns first, rows second: the cut in the middle matches, so the ranks speak once for two products.",
        256,
        parts,
    )


def pipeline_stages() -> Drawing:
    """Return one forward and backward pass of four micro-batches through four stages, one-forward-one-backward.

    Source: Narayanan and others, "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM",
    arXiv 2104.04473, 2021.
    """
    stages, batches, unit = 4, 4, 25.0
    trace = simulate(pipeline_programs(schedule("1f1b", stages, batches), forward_seconds=1, backward_seconds=2))
    parts: list[Part] = []
    for event in trace.events:
        if event.kind == "compute" and event.start_seconds is not None and event.end_seconds is not None:
            forward, length = event.name.startswith("F"), float(event.end_seconds - event.start_seconds)
            x = 76 + unit * float(event.start_seconds)
            role: Role = "compute" if forward else "memory"
            parts.append(Box(x, 30 + 40 * event.rank, unit * length - 2, 32, event.name[1:], role))
    total = float(trace.seconds or 0)
    parts += [Label(12, 51 + 40 * stage, f"stage {stage}", "start") for stage in range(stages)]
    parts += [
        Label(76, 18, "blue: forward, 1 unit      orange: backward, 2 units", "start"),
        Arrow([(76, 202), (76 + unit * total, 202)]),
        Label(
            76,
            222,
            f"{total:.0f} units for {3 * batches} of work per stage: the bubble is (4 − 1) × 3 = 9 units",
            "start",
        ),
    ]
    return Drawing(
        "Four micro-batches through a pipeline of four stages",
        "Each stage runs the forward passes of four micro-batches and their backward passes in the order one "
        f"forward, one backward. All of it takes {total:.0f} units of time; each stage works {3 * batches}.",
        "Stages wait at the start and at the end. With m micro-batches and p stages the bubble is (p − 1) / "
        "(m + p − 1) of the time.",
        234,
        parts,
    )


def sharded_states() -> Drawing:
    """Return what each of four ranks keeps under ZeRO stages 0 to 3.

    Source: Rajbhandari and others, "ZeRO", arXiv 1910.02054, 2019.
    """
    stages = (("none", 0), ("ZeRO-1", 1), ("ZeRO-2", 2), ("ZeRO-3, FSDP", 3))
    kinds: tuple[tuple[str, int, Role], ...] = (
        ("weights", 2, "compute"),
        ("gradients", 2, "control"),
        ("optimiser", 12, "memory"),
    )
    ranks, scale = 4, 26.0
    parts: list[Part] = [
        Label(150 + scale * (2 * at + 1), 22, name[0].upper()) for at, (name, *_) in enumerate(kinds[:2])
    ]
    parts.append(Label(150 + scale * 10, 22, "optimiser's states"))
    for at, (name, stage) in enumerate(stages):
        y, x, total = 34 + 48 * at, 150.0, 0.0
        parts.append(Label(16, y + 21, name, "start", bold=True))
        for kind, (_, size, role) in enumerate(kinds):
            cut = stage >= 3 - kind
            kept = size / ranks if cut else size
            parts.append(Box(x, y, scale * size - 4, 32, "", "absent"))
            parts.append(Box(x, y, max(scale * kept - 4, 4), 32, "", role))
            x += scale * size
            total += kept
        parts.append(Label(x + 10, y + 21, f"{total:g} B", "start"))
    parts.append(
        Label(
            16,
            244,
            "bytes of each parameter on one of 4 ranks: W weights, G gradients; dashed: on other ranks",
            "start",
        )
    )
    return Drawing(
        "States that each of four ranks keeps",
        "Without sharding each rank keeps 16 bytes for each parameter. ZeRO-1 cuts the optimiser's states "
        "over the ranks: 7 bytes. ZeRO-2 cuts the gradients, too: 5.5 bytes. ZeRO-3 cuts the "
        "weights as well: 4 bytes.",
        "What is cut must be fetched before use: ZeRO-3 gathers the weights of each layer twice per step.",
        254,
        parts,
    )


def expert_exchange() -> Drawing:
    """Return how tokens travel to their experts and back, over four ranks.

    Source: Lepikhin and others, "GShard", arXiv 2006.16668, 2020.
    """
    left = column(20, 40, 120, 200, [f"rank {at}\ntokens" for at in range(4)], "memory")
    middle = column(260, 40, 120, 200, [f"rank {at}\nexperts {2 * at}, {2 * at + 1}" for at in range(4)], "compute")
    right = column(500, 40, 120, 200, [f"rank {at}\ntokens" for at in range(4)], "memory")
    parts: list[Part] = [*left, *middle, *right]
    parts += [Arrow([a.right, b.left], "link") for a in left for b in middle]
    parts += [Arrow([a.right, b.left], "link") for a in middle for b in right]
    parts += [
        Label(200, 24, "dispatch", bold=True),
        Label(440, 24, "combine", bold=True),
        Label(
            320, 266, "each token goes to the ranks of its k experts, and k results come back: two all-to-alls a layer"
        ),
    ]
    return Drawing(
        "Tokens on their way to experts",
        "Four ranks hold tokens. An all-to-all called dispatch sends each token to the ranks that hold its "
        "experts. A second one, combine, brings the results back.",
        "Every rank sends to every other one. The volume grows with k, and the slowest expert sets the pace.",
        276,
        parts,
    )


def networks() -> Drawing:
    """Return a fat tree whose leaf switches serve one rail each.

    Source: NVIDIA, "DGX SuperPOD Reference Architecture: DGX H100".
    """
    spines = row(100, 30, 440, 34, ["spine"] * 4, "link", gap=30)
    leaves = row(40, 124, 560, 34, [f"leaf: rail {at}" for at in range(4)], "link", gap=24)
    parts: list[Part] = [*spines, *leaves]
    parts += [Arrow([leaf.top, spine.bottom], "link", "none") for leaf in leaves for spine in spines]
    for at in range(3):
        x = 20 + 208 * at
        parts.append(Box(x, 224, 184, 76, f"node {at}", holds=True))
        gpus = row(x + 8, 252, 168, 36, [f"{gpu}" for gpu in range(4)], "compute", gap=6)
        parts += gpus
        parts += [Arrow([gpu.top, leaf.bottom], "plain", "none") for gpu, leaf in zip(gpus, leaves, strict=True)]
    parts.append(Label(320, 326, "GPU 0 of every node hangs on the same leaf: equal GPUs reach each other in one hop"))
    return Drawing(
        "A fat tree with rails",
        "Three nodes with four GPUs each. GPU 0 of each node is connected to the leaf switch of rail 0, GPU 1 "
        "to that of rail 1, and so on. Each leaf is connected to all four spine switches.",
        "Collectives between equal GPUs stay below one leaf. Traffic that changes rails crosses a spine, or "
        "moves inside the node first.",
        336,
        parts,
    )


def ring_of_sequences() -> Drawing:
    """Return ring attention over four ranks.

    Source: Liu and others, "Ring Attention with Blockwise Transformers", arXiv 2310.01889, 2023.
    """
    parts: list[Part] = []
    centre, radius = (200.0, 146.0), 96.0
    places = [
        (centre[0] + 1.25 * radius * math.cos(turn), centre[1] + radius * math.sin(turn))
        for turn in (-math.pi * 3 / 4, -math.pi / 4, math.pi / 4, math.pi * 3 / 4)
    ]
    for rank, (x, y) in enumerate(places):
        parts += [
            Box(x - 66, y - 34, 132, 68, f"rank {rank}", holds=True),
            Box(x - 58, y - 6, 56, 32, f"Q{rank}", "compute"),
            Box(x + 2, y - 6, 56, 32, f"K, V {rank}", "memory"),
        ]
    (x0, y0), (x1, _), (_, y2), _ = places
    parts += [
        Arrow([(x0 + 66, y0), (x1 - 66, y0)], "link"),
        Arrow([(x1, y0 + 34), (x1, y2 - 34)], "link"),
        Arrow([(x1 - 66, y2), (x0 + 66, y2)], "link"),
        Arrow([(x0, y2 - 34), (x0, y0 + 34)], "link"),
        Label(420, 90, "Q stays. K and V go round.", "start", bold=True),
        Label(420, 118, "Each step a rank computes on", "start"),
        Label(420, 135, "the K and V that it has, and", "start"),
        Label(420, 152, "sends them on at the same time.", "start"),
        Label(420, 180, "After 4 steps each Q has met", "start"),
        Label(420, 197, "all keys and values.", "start"),
    ]
    return Drawing(
        "Ring attention over four ranks",
        "Four ranks in a ring, each with a quarter of the sequence. Each rank keeps its Q. K and V travel "
        "round the ring, one rank per step, while the rank computes.",
        "The exchange hides behind the arithmetic if a rank's piece of the sequence is long enough.",
        286,
        parts,
    )


def expert_load() -> Drawing:
    """Return tokens per expert of an uneven router, with a capacity.

    Source: Fedus and others, "Switch Transformers", arXiv 2101.03961, 2021.
    """
    loads, capacity = (9, 31, 14, 6, 22, 11, 16, 19), 20
    mean = sum(loads) / len(loads)
    floor, scale = 190.0, 4.6
    parts: list[Part] = []
    for at, load in enumerate(loads):
        x, kept = 40 + 60 * at, min(load, capacity)
        parts.append(Box(x, floor - scale * kept, 44, scale * kept, str(load), "compute"))
        if load > capacity:
            parts.append(Box(x, floor - scale * load, 44, scale * (load - capacity), "", "absent"))
        parts.append(Label(x + 22, floor + 18, f"E{at}"))
    dropped = sum(max(load - capacity, 0) for load in loads)
    parts += [
        Arrow([(30, floor - scale * mean), (530, floor - scale * mean)], "link", "none", dashed=True),
        Label(538, floor - scale * mean + 5, f"mean {mean:g}", "start", "link"),
        Arrow([(30, floor - scale * capacity), (530, floor - scale * capacity)], "control", "none"),
        Label(538, floor - scale * capacity + 5, f"capacity {capacity}", "start", "control"),
        Label(
            40,
            floor + 42,
            f"busiest: {max(loads) / mean:.1f} times the mean. Capacity {capacity / mean:.2f} drops "
            f"{dropped} of {sum(loads)}.",
            "start",
        ),
    ]
    return Drawing(
        "Tokens per expert, with a capacity",
        f"Eight experts receive {', '.join(map(str, loads))} tokens; the mean is {mean:g}. A capacity of "
        f"{capacity} cuts off what two experts receive beyond it: {dropped} of {sum(loads)} tokens.",
        "The busiest expert sets the pace of the layer. A capacity bounds it and drops tokens.",
        246,
        parts,
    )
