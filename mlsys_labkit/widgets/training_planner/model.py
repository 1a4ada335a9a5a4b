"""Memory and time of a training layout, estimated by hand; the twin of ``model.js``.

A plan is a mapping: the model's ``parameters``, ``layers``, ``width``, ``vocabulary``, ``saved`` (bytes that a layer
keeps a token, fused kernels, 16 bits) and ``flops`` (a token, forward and backward); ``data``, ``tensor``, ``pipeline``
ranks, ``zero`` stage, ``micro_batch`` sequences, ``micro_batches`` of a step, ``sequence`` tokens, ``recompute`` (0 or
1); a GPU's ``peak`` (FLOP/s), ``memory`` (B), ``bandwidth`` (B/s), ``intra`` and ``inter`` (B/s inside a node and
between nodes); and the ``efficiency`` of its computing, which ``halving`` multiplies each time that tensor parallel
halves the products. ``mlsys_labkit.planner.plan`` is more detailed, and this is tested against it.
Reference: Narayanan et al., arXiv:2104.04473; Rajbhandari et al., arXiv:1910.02054; Korthikanti, arXiv:2205.05198.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from mlsys_labkit.planner import Assumptions

GPUS_A_NODE = 8
USABLE = Assumptions().memory_fraction
INTERFERENCE, STREAM = Assumptions().interference, Assumptions().bandwidth_fraction

Plan = Mapping[str, float]


def memory(plan: Plan) -> dict[str, float]:
    """Return the bytes on the fullest rank, part by part, and what is free of its memory (or missing)."""
    own = plan["parameters"] / plan["tensor"] / plan["pipeline"]
    shared = [1.0 / plan["data"] if plan["zero"] >= stage else 1.0 for stage in (3, 2, 1)]
    alive = min(plan["micro_batches"], plan["pipeline"])
    tokens, layers = plan["micro_batch"] * plan["sequence"], plan["layers"] / plan["pipeline"]
    kept = 2 * plan["width"] if plan["recompute"] else plan["saved"]
    activations = (alive * layers * kept + (plan["saved"] if plan["recompute"] else 0)) * tokens / plan["tensor"]
    # Logits and their gradient, if one rank has all layers. Under ZeRO-3 a few layers are gathered at a time.
    logits = 6 * tokens * plan["vocabulary"] / plan["tensor"] if plan["pipeline"] == 1 else 0.0
    gathered = 12 * own / layers if plan["zero"] == 3 else 0.0
    parts = {
        "parameters": 2 * own * shared[0],
        "gradients": 2 * own * shared[1],
        "optimizer": 12 * own * shared[2],
        "activations": activations,
        "buffers": logits + gathered,
    }
    return {**parts, "free": USABLE * plan["memory"] - sum(parts.values())}


def reached(plan: Plan) -> float:
    """Return the part of the peak that is reached while computing; smaller products reach less."""
    return float(plan["efficiency"] * plan["halving"] ** math.log2(plan["tensor"]))


def seconds(plan: Plan) -> dict[str, float]:
    """Return the seconds of a step: compute, recompute, bubble, and messages that nothing hides."""
    tokens = plan["micro_batch"] * plan["sequence"]
    speed = plan["tensor"] * plan["pipeline"] * reached(plan) * plan["peak"]
    compute = plan["flops"] * tokens * plan["micro_batches"] / speed
    again = compute / 3 if plan["recompute"] else 0.0
    bubble = (compute + again) * (plan["pipeline"] - 1) / plan["micro_batches"]
    t, d = plan["tensor"], plan["data"]
    # Four all-reduces of a micro-batch's activations per layer, six with recomputation; nothing runs meanwhile.
    sent = 2 * (t - 1) / t * 2 * plan["width"] * tokens
    link = plan["intra"] if t <= GPUS_A_NODE else plan["inter"]
    tensor = (6 if plan["recompute"] else 4) * sent * plan["layers"] / plan["pipeline"] * plan["micro_batches"] / link
    own = 2 * plan["parameters"] / t / plan["pipeline"]
    ports = max(1, GPUS_A_NODE // t)  # a group that spans nodes has the ports of all its ranks in a node
    wire = plan["intra"] if t * d * plan["pipeline"] <= GPUS_A_NODE else min(plan["intra"], ports * plan["inter"])
    # ZeRO 3 gathers weights twice and scatters gradients for each micro-batch; 2 scatters for each; else once a step.
    many = plan["micro_batches"]
    data = (3 * many if plan["zero"] == 3 else many + 1 if plan["zero"] == 2 else 2) * (d - 1) / d * own / wire
    behind = compute + again if plan["zero"] >= 2 else (compute + again) / many
    data = max(0.0, data - behind) + INTERFERENCE * min(data, behind)
    if plan["zero"] == 3:  # both times, gathered weights of 2 bytes are read and written once more
        data += 8 * own / 2 * many / (STREAM * plan["bandwidth"])
    return {"compute": compute, "recompute": again, "bubble": bubble, "tensor": tensor, "data": data}


def utilisation(plan: Plan) -> float:
    """Return the model FLOPs utilisation: useful arithmetic over the peak of all GPUs."""
    times = seconds(plan)
    return times["compute"] * reached(plan) / sum(times.values())


def tokens_per_second(plan: Plan) -> float:
    step = plan["data"] * plan["micro_batch"] * plan["micro_batches"] * plan["sequence"]
    return step / sum(seconds(plan).values())
