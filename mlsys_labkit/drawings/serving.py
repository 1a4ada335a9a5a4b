"""Drawings of serving: the cache of keys and values, its pages, a request's way, and split prefill and decode."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from mlsys_labkit.drawings.drawing import Drawing
from mlsys_labkit.drawings.parts import Arrow, Box, Label, Part, Role, column, row
from mlsys_labkit.planner.cluster import CLUSTERS
from mlsys_labkit.planner.transformer import Transformer

_LLAMA, _KIB, _MIB = Transformer.named("llama-3-8b"), 1024, 1024**2


def kv_cache() -> Drawing:
    """Return prefill and three decode steps over a growing cache."""
    parts: list[Part] = []
    steps = (("prefill", 5, 5), ("decode 1", 6, 1), ("decode 2", 7, 1), ("decode 3", 8, 1))
    for at, (name, tokens, new) in enumerate(steps):
        y = 40 + 46 * at
        parts.append(Label(16, y + 21, name, "start", bold=True))
        for token in range(tokens):
            role: Role = "compute" if token >= tokens - new else "memory"
            parts.append(Box(110 + 38 * token, y, 34, 32, f"{token}", role))
        parts.append(
            Label(430, y + 21, "5 tokens at once: arithmetic" if not at else "1 token: reads all weights", "start")
        )
    parts += [
        Label(110, 26, "blue: computed in this step", "start", "compute"),
        Label(330, 26, "orange: read from the cache", "start", "memory"),
        Label(
            16,
            244,
            f"Llama 3 8B: 2 × {_LLAMA.layers} layers × {_LLAMA.kv_heads} heads × {_LLAMA.head_width} numbers × 2 bytes "
            f"= {_LLAMA.kv_bytes_per_token() / _KIB:.0f} KiB for each token",
            "start",
        ),
    ]
    return Drawing(
        "Prefill and decode with a cache",
        "Prefill computes keys and values of five prompt tokens at once. Each decode step computes those of "
        "one new token and reads those of all tokens before it from the cache.",
        "Without the cache each step would compute all tokens again.",
        256,
        parts,
    )


def paged_cache() -> Drawing:
    """Return two sequences, their block tables, and the blocks that they share.

    Source: Kwon and others, "Efficient Memory Management for Large Language Model Serving with PagedAttention", arXiv
    2309.06180, 2023.
    """
    contents: tuple[tuple[str, Role], ...] = (
        ("0: the cat sat on", "control"),
        ("1: free", "absent"),
        ("2: a mat .", "memory"),
        ("3: free", "absent"),
        ("4: a hat and", "compute"),
        ("5: free", "absent"),
    )
    pool = column(250, 40, 150, 228, [text for text, _ in contents], gap=6)
    blocks = [replace(box, role=role) for box, (_, role) in zip(pool, contents, strict=True)]
    first, second = (
        row(20, 110, 150, 34, ["0", "2"], "memory", gap=4),
        row(470, 110, 150, 34, ["0", "4"], "compute", gap=4),
    )
    parts: list[Part] = [
        *blocks,
        *first,
        *second,
        Label(325, 26, "blocks of 4 tokens", bold=True),
        Label(95, 166, "table of sequence A", bold=True),
        Label(95, 183, "“… a mat .”"),
        Label(515, 166, "table of sequence B", bold=True),
        Label(515, 183, "“… a hat and”"),
        Arrow([first[0].top, (57, 58), (250, 58)], "memory"),
        Arrow([first[1].right, (210, 127), (210, 136), (250, 136)], "memory"),
        Arrow([second[0].top, (507, 58), (400, 58)], "compute"),
        Arrow([second[1].right, (632, 127), (632, 212), (400, 212)], "compute"),
        Label(325, 292, "Block 0 is shared: its reference count is 2. Whoever writes to it copies it first."),
    ]
    return Drawing(
        "Blocks that two sequences share",
        "A pool of six blocks of four tokens. The table of sequence A lists blocks 0 and 2, that of sequence "
        "B blocks 0 and 4. Block 0 holds the common beginning and is shared. Three blocks are free.",
        "Neither sequence is contiguous, nothing is reserved, and at most the last block of a sequence is "
        "partly empty.",
        302,
        parts,
    )


def serving_path() -> Drawing:
    """Return the way of a request through a serving engine."""
    boxes = row(
        12, 60, 616, 60, ["client", "API server", "tokeniser", "scheduler", "GPU worker", "sampler"], "plain", gap=22
    )
    roles: tuple[Role, ...] = ("plain", "link", "control", "control", "compute", "control")
    boxes = [replace(box, role=role) for box, role in zip(boxes, roles, strict=True)]
    cache = Box(330, 184, 186, 44, "blocks of the KV cache", "memory")
    parts: list[Part] = [*boxes, cache]
    parts += [Arrow([a.right, b.left]) for a, b in pairwise(boxes)]
    scheduler, worker, sampler = boxes[3:]
    parts += [
        Arrow([(scheduler.top[0], 120), (scheduler.top[0], 184)], "memory", "both"),
        Arrow([(worker.top[0], 120), (worker.top[0], 184)], "memory", "both"),
        Arrow([sampler.top, (sampler.top[0], 34), (scheduler.top[0], 34), scheduler.top], "control"),
        Arrow([sampler.bottom, (sampler.top[0], 254), (boxes[0].top[0], 254), boxes[0].bottom], "link"),
        Label(470, 26, "every step: who runs next?"),
        Label(20, 272, "text, streamed token by token", "start"),
    ]
    return Drawing(
        "A request's way through an engine",
        "A request goes from the client to the API server, is cut into tokens, and waits at the scheduler. At "
        "each step the scheduler chooses which sequences run; the GPU worker computes, reading and "
        "writing blocks of the cache; the sampler picks tokens. Tokens go back to the scheduler for the next "
        "step and to the client as text.",
        "The loop between scheduler, worker and sampler runs once for every token of the batch.",
        282,
        parts,
    )


def disaggregation() -> Drawing:
    """Return prefill and decode on different machines.

    Source: Zhong and others, "DistServe", arXiv 2401.09670, 2024.
    """
    tokens, port = 2048, float(CLUSTERS["dgx-h100"].inter.bytes_per_second)
    size = tokens * _LLAMA.kv_bytes_per_token()
    router = Box(16, 108, 96, 60, "router", "control")
    prefill = column(180, 40, 150, 196, ["prefill GPU\nbound by arithmetic"] * 2, "compute", gap=40)
    decode = column(470, 20, 154, 236, ["decode GPU\nbound by bandwidth"] * 3, "memory", gap=16)
    parts: list[Part] = [router, *prefill, *decode]
    parts += [Arrow([router.right, one.left]) for one in prefill]
    parts += [Arrow([a.right, b.left], "link") for a in prefill for b in decode]
    parts += [
        Label(400, 30, "KV cache", role="link", bold=True),
        Label(
            320,
            286,
            f"{tokens:,} tokens of Llama 3 8B: {size / _MIB:.0f} MiB of cache, {size / port * 1e3:.0f} ms at "
            f"{port / 1e9:.0f} GB/s",
        ),
    ]
    return Drawing(
        "Prefill and decode on different GPUs",
        "A router sends each prompt to one of two prefill GPUs. The finished cache travels over the network "
        "to one of three decode GPUs, which writes the answer.",
        "Neither phase disturbs the other, and each kind of machine can be chosen for its bound. The cost is "
        "the transfer of the cache.",
        296,
        parts,
    )


def prefix_tree() -> Drawing:
    """Return requests that share the beginnings of their prompts.

    Source: Zheng and others, "SGLang", arXiv 2312.07104, 2023.
    """
    root = Box(20, 96, 150, 50, "system prompt\n600 tokens", "memory")
    docs = column(240, 40, 150, 164, ["document 1\n2,000 tokens", "document 2\n3,000 tokens"], "memory", gap=64)
    questions = column(460, 20, 160, 204, ["question a, 40", "question b, 30", "question c, 50"], "compute", gap=30)
    parts: list[Part] = [root, *docs, *questions]
    parts += [Arrow([root.right, doc.left]) for doc in docs]
    parts += [Arrow([docs[0].right, questions[0].left]), Arrow([docs[0].right, questions[1].left])]
    parts += [Arrow([docs[1].right, questions[2].left])]
    total = 3 * 600 + 2 * 2000 + 3000 + 120
    computed = 600 + 2000 + 3000 + 120
    parts.append(Label(320, 256, f"alone: {total:,} tokens of prefill; with shared beginnings: {computed:,}"))
    return Drawing(
        "Prompts that begin alike",
        "A tree: the system prompt is followed by one of two documents, and those by three questions. Each "
        f"path is one prompt. Alone they need {total:,} tokens of prefill; shared, {computed:,}.",
        "Each node is computed once. Only what follows the longest known beginning is new work.",
        266,
        parts,
    )


def input_pipeline() -> Drawing:
    """Return the way of training data from storage to the GPU."""
    texts = ["object store\nshards", "read and\ndecompress", "tokenise,\npack", "shuffle\nbuffer", "batch,\npin", "GPU"]
    roles: tuple[Role, ...] = ("memory", "control", "control", "memory", "control", "compute")
    boxes = [replace(box, role=role) for box, role in zip(row(12, 40, 616, 60, texts, gap=22), roles, strict=True)]
    parts: list[Part] = [*boxes]
    parts += [Arrow([a.right, b.left]) for a, b in pairwise(boxes)]
    parts += [
        Label(64, 126, "network"),
        Label(275, 126, "CPU cores, several processes"),
        Label(490, 126, "host memory"),
        Label(320, 158, "the checkpoint needs: position in each shard, state of the buffer, the seed"),
    ]
    return Drawing(
        "The way of training data",
        "Shards are read from an object store, decompressed, turned into tokens and packed, mixed in a "
        "shuffle buffer, batched in pinned host memory, and copied to the GPU.",
        "Each stage works ahead of the next. The slowest of them sets the rate, and the GPU shows it by waiting.",
        170,
        parts,
    )


def price_of_token() -> Drawing:
    """Return the chain from the price of a GPU to the price of a token."""
    boxes = column(
        20,
        14,
        270,
        296,
        [
            "price of the GPU and its share\nof the building",
            "dollars per hour sold",
            "dollars per step",
            "dollars per million tokens",
        ],
        "memory",
        gap=30,
    )
    said = (
        ("as equal yearly payments with interest, plus", "power and people, ÷ hours that are sold"),
        ("÷ 3,600, × seconds per step: the bytes that", "a step reads, ÷ bandwidth"),
        ("÷ tokens per step: the users of a batch,", "whom the cache's memory and latency limit"),
    )
    parts: list[Part] = [*boxes]
    for (above, below), lines in zip(pairwise(boxes), said, strict=True):
        y = above.bottom[1]
        parts.append(Arrow([above.bottom, below.top], "link"))
        parts += [Label(310, y + 10 + 17 * at, line, "start") for at, line in enumerate(lines)]
    return Drawing(
        "From the price of a GPU to the price of a token",
        "The price of a GPU becomes yearly payments with interest. With power and people, divided by the "
        "hours sold, it is "
        "dollars per hour. Times the seconds of a step, dollars per step. Divided by the tokens of a step, "
        "dollars per token.",
        "The hours sold and the users of a batch move the result most.",
        324,
        parts,
    )
