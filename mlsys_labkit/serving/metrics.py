"""Metrics of a recorded run: latencies for each reader, throughput, and waste of memory.

References: Zhong et al., "DistServe", OSDI 2024, sec. 2 (TTFT, TPOT, goodput); Kwon et al., "PagedAttention",
SOSP 2023, sec. 3.1 (where memory is wasted).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from mlsys_labkit._base.text_table import text_table
from mlsys_labkit._base.units import plain, si
from mlsys_labkit.serving.errors import RecordError

_PERCENTILES = (50.0, 90.0, 99.0, 100.0)
SERVED = ("stop", "length")
_ROUNDING = 1e-9  # a wait is a difference of two clock readings and can exceed an equal bound by rounding


@dataclass(frozen=True)
class Latency:
    """Latencies of one continuation. A request with several samples has a row for each.

    Attributes:
        id: the request, or one of its samples.
        prompt_tokens, output_tokens: tokens of the prompt, and tokens that it was given.
        arrival_seconds: its arrival on the engine's clock.
        queue_seconds: from its arrival to the start of the first step that worked on it; None without one.
        ttft_seconds: time to first token, from its arrival; None without a token.
        token_gaps_seconds: time between each token and the next (inter-token latencies).
        e2e_seconds: from its arrival to its last token; None: it did not end, or was aborted.
        reason: "stop", "length", "abort", or "" for one that did not end.
        preemptions: how often it lost its blocks.
        hit_tokens: how many of its tokens it found in the cache by their hash.
    """

    id: str
    prompt_tokens: int
    output_tokens: int
    arrival_seconds: float
    queue_seconds: float | None
    ttft_seconds: float | None
    token_gaps_seconds: tuple[float, ...]
    e2e_seconds: float | None
    reason: str
    preemptions: int = 0
    hit_tokens: int = 0

    @property
    def tpot_seconds(self) -> float | None:
        """Return the time per output token after the first, (E2E - TTFT) / (tokens - 1); None below two tokens."""
        gaps = self.token_gaps_seconds
        return math.fsum(gaps) / len(gaps) if gaps else None

    def meets(self, ttft_seconds: float, tpot_seconds: float) -> bool:
        """Return True if it was served to its end within both bounds. A single token needs no TPOT."""
        if self.ttft_seconds is None or self.reason not in SERVED:
            return False
        waits = ((self.ttft_seconds, ttft_seconds), (self.tpot_seconds or 0.0, tpot_seconds))
        return all(seconds <= bound * (1 + _ROUNDING) for seconds, bound in waits)


@dataclass(frozen=True)
class MemoryUse:
    """Use of the pool after one step, which holds until the next step ends.

    Attributes:
        end_seconds: when the step ended.
        used_blocks: blocks that a table holds, each counted once, however many tables share it.
        cached_blocks: blocks that no table holds and whose contents can still be found.
        unfilled_slots: slots of used blocks without a token.
    """

    end_seconds: float
    used_blocks: int
    cached_blocks: int
    unfilled_slots: int


@dataclass(frozen=True)
class ServiceLevel:
    """The result of a run under a service-level objective (SLO), which bounds TTFT and TPOT.

    ``goodput`` is the requests per second that met both. DistServe searches for the highest arrival rate at which
    ``attainment`` stays above a goal such as 0.9; this is one point of that search.
    """

    ttft_seconds: float
    tpot_seconds: float
    met: int
    asked: int
    goodput: float

    @property
    def attainment(self) -> float:
        """Return the share of all requests that met both bounds; unfinished requests met neither."""
        return self.met / self.asked if self.asked else 0.0

    def __str__(self) -> str:
        bounds = f"TTFT <= {si(self.ttft_seconds, 's')} and TPOT <= {si(self.tpot_seconds, 's')}"
        share = f"{self.met} of {self.asked} requests ({plain(100 * self.attainment)} %)"
        return f"{share} met {bounds}: goodput {plain(self.goodput)} requests/s"


@dataclass(frozen=True)
class RunMetrics:
    """Metrics that :func:`~mlsys_labkit.serving.measure` finds in a recording; print them for a table.

    Attributes:
        requests: how many were asked.
        latencies: a row per request or sample, in the order of arrival.
        seconds: from the first arrival to the end of the last step.
        prompt_tokens, output_tokens: of all requests; a prompt with several samples counts once.
        clock: "real" or "virtual".
        memory: a row per step; none of a run that was seen from a client's side.
        prefill_tokens: tokens that went through the model in prefills, those computed anew after a preemption too.
        hit_tokens: tokens that a prefill found in the cache instead.
        recomputed, swapped: preemptions of either kind.
        copies: blocks copied because they were shared and about to be written.
        block_size, blocks: tokens per block, blocks in the pool.
    """

    requests: int
    latencies: tuple[Latency, ...]
    seconds: float
    prompt_tokens: int
    output_tokens: int
    clock: str
    memory: tuple[MemoryUse, ...] = ()
    prefill_tokens: int = 0
    hit_tokens: int = 0
    recomputed: int = 0
    swapped: int = 0
    copies: int = 0
    block_size: int = 0
    blocks: int = 0

    @property
    def tokens_per_second(self) -> float:
        """Return output tokens per second."""
        return self.output_tokens / self.seconds if self.seconds else 0.0

    @property
    def requests_per_second(self) -> float:
        """Return the requests per second that were served to their end."""
        done = sum(row.reason in SERVED for row in self.latencies)
        return done / self.seconds if self.seconds else 0.0

    @property
    def hit_rate(self) -> float:
        """Return the share of the tokens needed by prefills that were in the prefix cache."""
        needed = self.hit_tokens + self.prefill_tokens
        return self.hit_tokens / needed if needed else 0.0

    @property
    def waste(self) -> float:
        """Return the share of slots in used blocks without a token, over all steps: internal fragmentation."""
        reserved = self.block_size * sum(row.used_blocks for row in self.memory)
        return sum(row.unfilled_slots for row in self.memory) / reserved if reserved else 0.0

    @property
    def occupancy(self) -> float:
        """Return the share of the pool in use, averaged over time."""
        spans = [(now.used_blocks, after.end_seconds - now.end_seconds) for now, after in pairwise(self.memory)]
        time = sum(seconds for _, seconds in spans)
        return sum(used * seconds for used, seconds in spans) / (time * self.blocks) if time else 0.0

    @property
    def peak_blocks(self) -> int:
        """Return the most blocks in use after any step."""
        return max((row.used_blocks for row in self.memory), default=0)

    def values(self, name: str) -> list[float]:
        """Return all values of a latency: "queue", "ttft", "tpot", "e2e", or "token_gaps" of all requests together.

        Raises RecordError for another name.
        """
        if name == "token_gaps":
            return [gap for row in self.latencies for gap in row.token_gaps_seconds]
        if name not in _LATENCIES:
            raise RecordError(f"there is no latency {name!r}; expected one of {', '.join(_LATENCIES)}")
        found = (getattr(row, f"{name}_seconds") for row in self.latencies)
        return [seconds for seconds in found if seconds is not None]

    def percentile(self, name: str, percent: float) -> float | None:
        """Return a percentile of :meth:`values` in seconds, interpolated linearly; None without values."""
        found = self.values(name)
        return float(np.percentile(found, percent)) if found else None

    def service_level(self, ttft_seconds: float, tpot_seconds: float) -> ServiceLevel:
        """Return attainment and goodput under both bounds. Raises RecordError for a bound that is not above 0."""
        if not (ttft_seconds > 0 and tpot_seconds > 0):
            raise RecordError(f"bounds are seconds above 0, got {ttft_seconds} for TTFT and {tpot_seconds} for TPOT")
        met = sum(row.meets(ttft_seconds, tpot_seconds) for row in self.latencies)
        goodput = met / self.seconds if self.seconds else 0.0
        return ServiceLevel(ttft_seconds, tpot_seconds, met, len(self.latencies), goodput)

    def __str__(self) -> str:
        head = ("", *(f"p{percent:g}" if percent < 100 else "max" for percent in _PERCENTILES))
        rows = [head, *((title, *self._cells(name)) for name, title in _LATENCIES.items())]
        return "\n".join([*text_table(rows, range(1, len(head))), "", *self._sentences()])

    def _cells(self, name: str) -> Iterator[str]:
        for percent in _PERCENTILES:
            seconds = self.percentile(name, percent)
            yield "-" if seconds is None else si(seconds, "s")

    def _sentences(self) -> Iterator[str]:
        ends = Counter(row.reason or "unfinished" for row in self.latencies)
        counted = ", ".join(f"{count} {reason}" for reason, count in sorted(ends.items())) or "none"
        texts = f", {len(self.latencies)} continuations" if len(self.latencies) > self.requests else ""
        yield f"{self.requests} requests{texts} ({counted}) in {si(self.seconds, 's')} of {self.clock} time"
        yield (
            f"{self.output_tokens} tokens, {plain(self.tokens_per_second)} tokens/s; "
            f"{plain(self.requests_per_second)} requests/s"
        )
        if not self.memory:
            return
        peak = f"{self.peak_blocks} of {self.blocks} blocks at the peak"
        average, waste = plain(100 * self.occupancy), plain(100 * self.waste)
        yield f"cache: {peak}, {average} % on average; {waste} % of slots in use unfilled"
        yield (
            f"prefix hits {plain(100 * self.hit_rate)} % of tokens; "
            f"preempted {self.recomputed} by recompute, {self.swapped} by swap; {self.copies} blocks copied"
        )


_LATENCIES = {"queue": "queued", "ttft": "TTFT", "tpot": "TPOT", "token_gaps": "between tokens", "e2e": "end to end"}
