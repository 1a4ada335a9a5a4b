"""``measure``: computes the metrics of a recording."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from mlsys_labkit.serving.metrics import SERVED, Latency, MemoryUse, RunMetrics
from mlsys_labkit.serving.records import Recording, Request


def measure(recording: Recording) -> RunMetrics:
    """Compute latencies per request, throughput, and the use of the cache.

    Example:
        >>> from mlsys_labkit.serving import EngineStep, Request, Scheduled
        >>> steps = [EngineStep(0, 1.0, 3.0, (Scheduled("a", "prefill", 5, 0),)), EngineStep(1, 3.0, 4.0)]
        >>> asked = Request("a", prompt=(1, 2, 3, 4, 5), max_new_tokens=2, arrival_seconds=0.5)
        >>> found = measure(Recording((asked,), tuple(steps), {"a": (7, 8)}, {"a": (3.0, 4.0)}, {"a": "length"}, 16, 4))
        >>> row = found.latencies[0]
        >>> row.queue_seconds, row.ttft_seconds, row.tpot_seconds, row.e2e_seconds
        (0.5, 2.5, 1.0, 3.5)
        >>> print(found.service_level(ttft_seconds=3, tpot_seconds=0.5))
        0 of 1 requests (0 %) met TTFT <= 3 s and TPOT <= 500 ms: goodput 0 requests/s

    Reference: Zhong et al., "DistServe", OSDI 2024, sec. 2.
    """
    begun: dict[str, float] = {}
    hits: Counter[str] = Counter()
    for step in recording.steps:
        for part in step.scheduled:
            begun.setdefault(part.request_id, step.start_seconds)
            hits[part.request_id] += part.hit_tokens
    lost = Counter(each.request_id for step in recording.steps for each in step.preempted)
    hows = Counter(each.how for step in recording.steps for each in step.preempted)
    parts = [part for step in recording.steps for part in step.scheduled]
    arrivals = [request.arrival_seconds for request in recording.requests]
    return RunMetrics(
        requests=len(recording.requests),
        latencies=tuple(
            _latency(recording, request, name, begun, lost[name], hits[name])
            for request in recording.requests
            for name in request.sample_ids
        ),
        memory=tuple(_memory(recording)),
        seconds=max(0.0, recording.seconds - min(arrivals, default=0.0)),
        prompt_tokens=sum(len(request.prompt) for request in recording.requests),
        output_tokens=sum(len(tokens) for tokens in recording.tokens.values()),
        prefill_tokens=sum(part.tokens for part in parts if part.phase == "prefill"),
        hit_tokens=hits.total(),
        recomputed=hows["recompute"],
        swapped=hows["swap"],
        copies=sum(len(step.copies) for step in recording.steps),
        block_size=recording.block_size,
        blocks=recording.blocks,
        clock=recording.clock,
    )


def _latency(
    recording: Recording, request: Request, name: str, begun: dict[str, float], preemptions: int, hit_tokens: int
) -> Latency:
    seconds = recording.token_seconds.get(name, ())
    reason = recording.reasons.get(name, "")
    start = begun.get(request.id, begun.get(name))  # a prompt is prefilled once, for all of its samples
    since = request.arrival_seconds
    return Latency(
        id=name,
        prompt_tokens=len(request.prompt),
        output_tokens=len(recording.tokens.get(name, ())),
        arrival_seconds=since,
        queue_seconds=None if start is None else start - since,
        ttft_seconds=seconds[0] - since if seconds else None,
        token_gaps_seconds=tuple(later - sooner for sooner, later in pairwise(seconds)),
        e2e_seconds=seconds[-1] - since if seconds and reason in SERVED else None,
        reason=reason,
        preemptions=preemptions,
        hit_tokens=hit_tokens,
    )


def _memory(recording: Recording) -> Iterator[MemoryUse]:
    size, cached = recording.block_size, set[int]()
    for step in recording.steps:
        cached ^= set(step.turned_blocks)
        filled: dict[int, int] = {}
        for name, blocks in step.block_tables.items():
            held = step.held_tokens.get(name, 0)
            for at, block in enumerate(blocks):  # sequences that share a block may fill it to different points
                filled[block] = max(filled.get(block, 0), min(size, max(0, held - at * size)))
        yield MemoryUse(step.end_seconds, len(filled), len(cached), len(filled) * size - sum(filled.values()))
