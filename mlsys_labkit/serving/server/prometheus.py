"""The engine's counts as Prometheus reads them.

Reference: Prometheus, "Exposition formats", text format 0.0.4.
"""

from __future__ import annotations

from mlsys_labkit.serving.server.worker import Counts

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def exposition(counts: Counts) -> str:
    """Return the families of samples, each with its meaning.

    Example:
        >>> print(exposition(Counts(running=3)).splitlines()[2])
        labkit_requests_running 3
    """
    used = counts.blocks - counts.free_blocks
    ended = {f'{{reason="{reason}"}}': counts.ended.get(reason, 0) for reason in ("stop", "length", "abort")}
    families: list[tuple[str, str, str, dict[str, int]]] = [
        ("requests_running", "gauge", "Continuations that hold blocks.", {"": counts.running}),
        ("requests_waiting", "gauge", "Continuations that wait for a place.", {"": counts.waiting}),
        ("cache_blocks", "gauge", "Blocks of the key-value cache.", {"": counts.blocks}),
        ("cache_blocks_used", "gauge", "Blocks that some block table holds.", {"": used}),
        ("steps_total", "counter", "Passes through the model.", {"": counts.steps}),
        ("prompt_tokens_total", "counter", "Tokens of all prompts taken.", {"": counts.prompt_tokens}),
        ("output_tokens_total", "counter", "Tokens given out.", {"": counts.output_tokens}),
        ("requests_ended_total", "counter", "Continuations that ended, and how.", ended),
    ]
    lines = []
    for name, kind, meaning, samples in families:
        lines += [f"# HELP labkit_{name} {meaning}", f"# TYPE labkit_{name} {kind}"]
        lines += [f"labkit_{name}{labels} {value}" for labels, value in samples.items()]
    return "\n".join(lines) + "\n"
