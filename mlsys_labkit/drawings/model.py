"""Drawings of models: a transformer block, heads that share keys, attention in tiles, and what training keeps."""

from __future__ import annotations

from collections.abc import Callable

from mlsys_labkit.drawings.drawing import Drawing
from mlsys_labkit.drawings.parts import Arrow, Box, Label, Part, Role, row
from mlsys_labkit.planner.transformer import Transformer


def transformer_block() -> Drawing:
    """Return one block of Llama 3 8B with the parameters of each part.

    Source: "The Llama 3 Herd of Models", arXiv 2407.21783, 2024.
    """
    model = Transformer.named("llama-3-8b")
    attention, mlp = model.attention_parameters / 1e6, 3 * model.width * model.hidden / 1e6
    texts: list[tuple[str, Role]] = [
        ("RMSNorm", "control"),
        (f"attention: Q, K, V, output\n{attention:.0f} million parameters", "compute"),
        ("RMSNorm", "control"),
        (f"MLP: gate, up, down\n{mlp:.0f} million parameters", "compute"),
    ]
    heights, y, boxes = (28, 48, 28, 48), 46.0, list[Box]()
    for at, ((text, role), height) in enumerate(zip(texts, heights, strict=True)):
        box = Box(150, y, 270, height, text, role)
        boxes.append(box)
        y += height + (20 if at % 2 == 0 else 48)
    norm1, attend, norm2, feed = boxes
    adds = [Label(285, attend.y + 75, "+", bold=True), Label(285, feed.y + 75, "+", bold=True)]
    parts: list[Part] = [
        *boxes,
        *adds,
        Label(285, 16, f"{model.width:,} numbers for each token"),
        Arrow([(285, 22), norm1.top]),
        Arrow([norm1.bottom, attend.top]),
        Arrow([attend.bottom, (285, attend.y + 62)]),
        Arrow([(285, attend.y + 80), norm2.top]),
        Arrow([norm2.bottom, feed.top]),
        Arrow([feed.bottom, (285, feed.y + 62)]),
        Arrow([(285, 32), (90, 32), (90, attend.y + 70), (276, attend.y + 70)], "link"),
        Arrow([(285, attend.y + 84), (90, attend.y + 84), (90, feed.y + 70), (276, feed.y + 70)], "link"),
        Arrow([(285, feed.y + 80), (285, feed.y + 98)]),
        Label(285, feed.y + 114, f"to the next of {model.layers} blocks"),
        Label(440, attend.y + 20, "mixes tokens: reads the", "start"),
        Label(440, attend.y + 37, "keys and values of all before", "start"),
        Label(440, feed.y + 20, "works on each token", "start"),
        Label(440, feed.y + 37, "alone", "start"),
        Label(16, attend.y - 16, "residual", "start", "link"),
    ]
    return Drawing(
        "One block of Llama 3 8B",
        f"From top to bottom: RMSNorm, attention with {attention:.0f} million parameters, an addition, "
        f"RMSNorm, an MLP with {mlp:.0f} million parameters, "
        "and an addition. Two residual lines lead around the attention and around the MLP to the additions.",
        f"{model.layers} such blocks have {model.layers * (attention + mlp) / 1e3:.1f} billion of the model's "
        f"{model.parameters / 1e9:.1f} billion "
        "parameters; tables of words hold the rest.",
        feed.y + 124,
        parts,
    )


def shared_heads() -> Drawing:
    """Return how query heads share keys and values, with the bytes of cache per token and layer.

    Sources: Shazeer, "Fast Transformer Decoding", arXiv 1911.02150, 2019; Ainslie and others, "GQA", arXiv 2305.13245,
    2023; "DeepSeek-V2", arXiv 2405.04434, 2024.
    """
    v3 = Transformer.named("deepseek-v3")
    latent_bytes = v3.kv_bytes_per_token() // v3.layers
    parts: list[Part] = []
    cases = (("multi-head", 8), ("grouped-query", 2), ("multi-query", 1))
    for at, (name, kv) in enumerate(cases):
        left = 12 + 158 * at
        queries = row(left, 44, 142, 30, ["Q"] * 8, "compute", gap=2)
        shared = row(left, 130, 142, 34, ["K\nV"] * kv, "memory", gap=2)
        parts += [Label(left + 71, 24, name, bold=True), *queries, *shared]
        parts += [Arrow([box.bottom, shared[head * kv // 8].top], heads="none") for head, box in enumerate(queries)]
        parts.append(Label(left + 71, 188, f"{2 * kv * 128 * 2:,} B"))
    queries = row(486, 44, 142, 30, ["Q"] * 8, "compute", gap=2)
    up = Box(486, 92, 142, 26, "expand", "control")
    latent = Box(516, 136, 82, 28, "latent", "memory")
    parts += [Label(557, 24, "latent (MLA)", bold=True), *queries, up, latent, Arrow([latent.top, up.bottom])]
    parts += [Arrow([box.bottom, (box.top[0], up.y)], heads="none") for box in queries]
    parts += [
        Label(557, 188, f"{latent_bytes:,} B"),
        Label(
            320,
            214,
            "bytes of cache for each token and layer, in 16 bits; heads of 128 numbers",
        ),
    ]
    return Drawing(
        "Heads that share keys and values",
        "Four designs with eight query heads. Multi-head attention has keys and values for each head: 4,096 "
        "bytes per token and layer. Grouped-query attention with two groups "
        "has 1,024 bytes. Multi-query attention has 512. Latent attention keeps one short vector, from which "
        f"keys and values are expanded: {latent_bytes:,} bytes in DeepSeek-V3, for {v3.heads} heads.",
        f"The latent of DeepSeek-V3 serves {v3.heads} heads. Multi-head attention would keep "
        f"{2 * 2 * v3.heads * v3.head_width:,} bytes there.",
        224,
        parts,
    )


def attention_tiles() -> Drawing:
    """Return attention in tiles with a running maximum and sum.

    Source: Dao and others, "FlashAttention", arXiv 2205.14135, 2022.
    """
    keys = row(150, 40, 470, 36, [f"K, V tile {at}" for at in range(4)], "memory")
    query = Box(20, 100, 110, 90, "tile of Q:\nstays", "memory")
    scores = row(
        150,
        110,
        470,
        70,
        ["scores\nof tile 0", "scores\nof tile 1", "scores\nof tile 2", "scores\nof tile 3"],
        "compute",
    )
    states = row(150, 222, 470, 54, ["m, l, O"] * 4, "control")
    parts: list[Part] = [*keys, query, *scores, *states]
    for at in range(4):
        parts += [Arrow([keys[at].bottom, scores[at].top]), Arrow([scores[at].bottom, states[at].top])]
        if at:
            parts.append(Arrow([states[at - 1].right, states[at].left], "control"))
    parts += [
        Arrow([query.right, scores[0].left]),
        Label(385, 24, "one tile at a time, from HBM to shared memory"),
        Label(20, 246, "largest score m,", "start"),
        Label(20, 263, "sum l, output O", "start"),
        Label(385, 302, "new m: scale the old l and O by exp(old m − new m), then add the tile's part"),
        Label(385, 324, "at the end: O / l. No row of scores was ever in HBM."),
    ]
    return Drawing(
        "Attention in tiles",
        "A tile of Q stays. Tiles of K and V arrive one after another. For each, scores are computed, and the "
        "running maximum m, sum l and output O are brought up to date. "
        "After the last tile the output is divided by the sum.",
        "Each score exists only in registers. The running maximum makes the sum of exponentials safe before "
        "all scores are known.",
        334,
        parts,
    )


def training_memory() -> Drawing:
    """Return the 16 bytes that each parameter needs in mixed-precision training with Adam.

    Source: Rajbhandari and others, "ZeRO", arXiv 1910.02054, 2019.
    """
    kinds = (
        ("weight\nBF16", 2),
        ("gradient\nBF16", 2),
        ("weight\nFP32", 4),
        ("momentum\nFP32", 4),
        ("variance\nFP32", 4),
    )
    count = Transformer.named("llama-3-8b").parameters / 1e9
    parts: list[Part] = []
    x = 20.0
    for at, (name, size) in enumerate(kinds):
        parts.append(Box(x, 50, size * 37 - 4, 60, name, "compute" if at < 2 else "memory"))
        parts.append(Label(x + size * 18.5 - 2, 130, f"{size} B"))
        x += size * 37
    parts += [
        Label(20 + 72, 34, "used by each pass", role="compute"),
        Label(20 + 148 + 222, 34, "used by the optimiser only", role="memory"),
        Label(
            320,
            164,
            f"16 bytes × {count:.2f} billion parameters of Llama 3 8B = {16 * count:.0f} GB, before any activation",
        ),
    ]
    return Drawing(
        "Bytes of one parameter in training",
        "A parameter needs 2 bytes of weight and 2 of gradient in BF16, and 4 each for the weight, the "
        "momentum and the variance in FP32: 16 bytes.",
        "Three quarters of it are needed once per step. ZeRO spreads that part over the ranks first.",
        176,
        parts,
    )


def sparse_attention() -> Drawing:
    """Return what one query reads of a long context in native sparse attention.

    Source: Yuan and others, "Native Sparse Attention", arXiv 2502.11089, 2025.
    """
    context = 65_536
    kinds: tuple[tuple[str, str, Callable[[int], bool], Role], ...] = (
        ("compressed", f"every 16 tokens one entry: {context // 16:,}", lambda at: True, "control"),
        ("selected", "16 blocks of 64 tokens: 1,024", lambda at: at in (5, 6, 17, 30, 39), "compute"),
        ("window", "the last 512 tokens", lambda at: at >= 45, "link"),
    )
    parts: list[Part] = [Label(130, 20, f"context of {context:,} tokens", "start", bold=True)]
    parts += [Box(130 + 10 * at, 30, 8, 22, "", "memory") for at in range(48)]
    for row_at, (name, said, read, role) in enumerate(kinds):
        y = 78 + 54 * row_at
        parts += [Label(16, y + 16, name, "start", bold=True), Label(130, y + 38, said, "start")]
        height = 8 if name == "compressed" else 22
        parts += [
            Box(130 + 10 * at, y + 22 - height, 8, height, "", role if read(at) else "absent") for at in range(48)
        ]
    total = context // 16 + 16 * 64 + 512
    parts.append(
        Label(
            130,
            252,
            f"together {total:,} of {context:,}: {context / total:.1f} times fewer; all tokens stay in the cache",
            "start",
        )
    )
    return Drawing(
        "What one query reads of a long context",
        f"A context of {context:,} tokens. The compressed branch reads one entry for every 16 tokens, the "
        f"selected branch 16 blocks of 64 tokens, the window the last 512: {total:,} in all.",
        "Learnt gates add the outputs of the three. Whole blocks are chosen because contiguous rows are "
        "read at full bandwidth.",
        262,
        parts,
    )
