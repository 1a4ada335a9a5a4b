"""Drawings of exchanges: sequences over ranks, heads for sequences, and tokens on their way to their experts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from mlsys_labkit.drawings.drawing import Drawing
from mlsys_labkit.drawings.parts import Arrow, Box, Label, Part, Role
from mlsys_labkit.planner.transformer import Transformer

NODES, NODE_LIMIT, GPUS = 8, 4, 8  # DeepSeek-V3: nodes that share a layer's experts, nodes per token, GPUs of a node


def context_parallel() -> Drawing:
    """Return a layer of a Transformer over four ranks that hold a quarter of the sequence each.

    Source: Liu and others, "Ring Attention with Blockwise Transformers", arXiv 2310.01889, 2023.
    """
    ranks, tokens, left, wide, gap = 4, 131_072, 132.0, 112.0, 12.0
    each = tokens // ranks
    layer: tuple[tuple[str, Role], ...] = (
        ("norm", "plain"),
        ("Q, K, V products", "compute"),
        ("attention", "link"),
        ("output product", "compute"),
        ("norm", "plain"),
        ("feed-forward", "compute"),
    )
    parts: list[Part] = []
    for rank in range(ranks):
        x = left + (wide + gap) * rank
        parts.append(Label(x + wide / 2, 20, f"rank {rank}", bold=True))
        parts.append(Label(x + wide / 2, 38, f"{rank * each // 1024} K to {(rank + 1) * each // 1024} K"))
    whole = ranks * wide + (ranks - 1) * gap
    for at, (name, role) in enumerate(layer):
        y = 50 + 40.0 * at
        parts.append(Label(left - 12, y + 20, name, "end"))
        if name == "attention":
            parts.append(Box(left, y, whole, 30, "every query needs the keys and values of all ranks", role))
        else:
            parts += [Box(left + (wide + gap) * rank, y, wide, 30, "its own tokens", role) for rank in range(ranks)]
    parts += [
        Arrow([(left + (wide + gap) * rank + wide / 2, y), (left + (wide + gap) * rank + wide / 2, y + 10)])
        for rank in range(ranks)
        for y in (80.0 + 40 * at for at in range(len(layer) - 1))
    ]
    return Drawing(
        "A layer with the sequence over four ranks",
        "Four columns are ranks, each with a quarter of the tokens. Norms, products and the feed-forward part stay in "
        "their column. One row, attention, spans all four: a query needs the keys and values of every rank.",
        "Only attention looks at other tokens, so only attention communicates.",
        294,
        parts,
    )


def ulysses() -> Drawing:
    """Return a tensor of four heads on four ranks: cut by tokens, by heads for attention, and by tokens again.

    Source: Jacobs and others, "DeepSpeed Ulysses", arXiv 2309.14509, 2023.
    """
    ranks, cell, top = 4, 36.0, 56.0
    roles: tuple[Role, ...] = ("compute", "memory", "link", "control")
    side, lefts = cell * ranks, (64.0, 276.0, 488.0)
    parts: list[Part] = []
    for left, name in zip(lefts, ("Q, K, V by tokens", "by heads: attention", "output by tokens"), strict=True):
        parts += [
            Label(left + side / 2, 20, name, bold=True),
            Label(left + side / 2, top - 10, "tokens →"),
        ]
        for head in range(ranks):
            for piece in range(ranks):
                owner = head if "heads" in name else piece
                at = (left + cell * piece, top + cell * head)
                parts.append(Box(*at, cell - 3, cell - 3, str(owner), roles[owner]))
    parts += [Label(8, top + cell * head + 22, f"head {head}", "start") for head in range(ranks)]
    for left, to in pairwise(lefts):
        parts += [
            Arrow([(left + side + 4, top + side / 2), (to - 6, top + side / 2)], "link"),
            Label((left + side + to) / 2 - 1, top + side / 2 - 26, "all-\nto-all"),
        ]
    model, tokens = Transformer.named("llama-3-8b"), 131_072
    sizes = [(count, *sequence_bytes(model, tokens, count)) for count in (ranks, 2 * ranks)]
    parts += [
        Label(
            64,
            226,
            "the number in a cell is the rank that holds it; a rank keeps 1 of its 4 cells and sends 3",
            "start",
        ),
        Label(64, 248, "Llama 3 8B, 131,072 tokens, a layer's forward, bytes that a rank sends:", "start"),
        *(
            Label(
                64, 270 + 22 * at, f"{count} ranks: {swapped / 1e6:.0f} MB; around a ring {ring / 1e6:.0f} MB", "start"
            )
            for at, (count, swapped, ring) in enumerate(sizes)
        ),
    ]
    return Drawing(
        "Ulysses over four ranks",
        "Three squares of four heads by four pieces of the sequence. On the left each rank holds one piece of the "
        "tokens for all heads. After an all-to-all, in the middle, each rank holds one head for all tokens and "
        "computes its attention. A second all-to-all, on the right, gives each rank its piece of the tokens back.",
        "Attention of one head needs no other rank. More ranks than key-value heads would need copies of them.",
        304,
        parts,
    )


def sequence_bytes(model: Transformer, tokens: int, ranks: int) -> tuple[float, float]:
    """Return the bytes that a rank sends in a layer's forward, in 16 bits: with Ulysses, and around a ring."""
    queries, keys, own = model.query_width, model.kv_width, tokens / ranks
    return 2 * (ranks - 1) / ranks * own * (2 * queries + 2 * keys), 2 * (ranks - 1) * own * 2 * keys


def node_limited_experts(scores: Sequence[float], nodes: int, limit: int, chosen: int) -> list[int]:
    """Return the ``chosen`` experts of highest score on the ``limit`` nodes whose best few have the highest sum."""
    each, best = len(scores) // nodes, chosen // limit

    def worth(node: int) -> float:
        return sum(sorted(scores[each * node : each * (node + 1)])[-best:])

    allowed = sorted(range(nodes), key=worth)[-limit:]
    return sorted((e for e in range(len(scores)) if e // each in allowed), key=scores.__getitem__)[-chosen:]


def node_limited_dispatch() -> Drawing:
    """Return the copies of one token of DeepSeek-V3: over InfiniBand to four nodes, inside them over NVLink.

    Source: DeepSeek-AI, "DeepSeek-V3 Technical Report", arXiv 2412.19437, 2024, sections 2.1.2 and 3.2.2.
    """
    model, rail = Transformer.named("deepseek-v3"), GPUS - 1
    draw = random.Random(13)  # a token of which no expert is on its own node, and whose best eight are on six nodes
    scores = [draw.random() for _ in range(model.experts)]
    experts = node_limited_experts(scores, NODES, NODE_LIMIT, model.active_experts)
    best = sorted(range(model.experts), key=scores.__getitem__)[-model.active_experts :]
    on_gpu = model.experts // (NODES * GPUS)
    places = {expert: divmod(expert // on_gpu, GPUS) for expert in {*experts, *best}}
    boxes = {(node, gpu): Box(56 + 73 * node, 34 + 25 * gpu, 48, 21) for node in range(NODES) for gpu in range(GPUS)}
    nodes = sorted({places[expert][0] for expert in experts})
    boxes[0, rail] = replace(boxes[0, rail], text="token", role="compute")
    for node in nodes:
        boxes[node, rail] = replace(boxes[node, rail], text="copy", role="link")
    for expert, place in places.items():
        boxes[place] = replace(boxes[place], text=str(expert), role="memory" if expert in experts else "absent")
    low, bus = boxes[0, rail].bottom[1], boxes[0, rail].bottom[1] + 24
    parts: list[Part] = [*boxes.values()]
    parts += [Label(boxes[node, 0].top[0], 22, f"node {node}", bold=node in (0, *nodes)) for node in range(NODES)]
    parts += [Label(8, boxes[0, gpu].y + 16, f"GPU {gpu}", "start") for gpu in range(GPUS)]
    for node in nodes:
        (x, _), start = boxes[node, rail].bottom, boxes[0, rail].bottom[0]
        parts.append(Arrow([(start, low), (start, bus), (x, bus), (x, low)], "link"))
    forwarded = [place for expert, place in places.items() if expert in experts and place[1] != rail]
    for place in forwarded:
        to, copy = boxes[place].right, boxes[place[0], rail].right
        lane = to[0] + 11
        parts.append(Arrow([copy, (lane, copy[1]), (lane, to[1]), to], "memory"))
    width = model.width
    between, inside, each = (
        f"{len(some)} × {width:,} B = {len(some) * width / 1e3:.1f} kB" for some in (nodes, forwarded, experts)
    )
    said = (
        f"green: InfiniBand, on rail {rail}, once per node. orange: NVLink, to each expert",
        f"dispatch in FP8: InfiniBand {between}, then NVLink {inside}",
        f"with one copy for each expert: InfiniBand {each}",
        f"combine in BF16, back the same way: InfiniBand {len(nodes) * 2 * width / 1e3:.1f} kB",
    )
    parts += [Label(56, bus + 20 + 21 * at, line, "start") for at, line in enumerate(said)]
    return Drawing(
        "Node-limited dispatch of one token",
        f"Eight nodes of eight GPUs hold {model.experts} experts. A token on GPU {rail} of node 0 is sent "
        f"to GPU {rail} of nodes {', '.join(map(str, nodes))}, once to each over InfiniBand. From there "
        f"NVLink forwards it to the GPUs of its {len(experts)} experts. Dashed experts are among the "
        f"{len(best)} best of all, on nodes that are not allowed.",
        "Numbers are experts, four on each GPU. Scores are random; the rule of DeepSeek-V3 chooses nodes and experts.",
        bus + 98,
        parts,
    )
