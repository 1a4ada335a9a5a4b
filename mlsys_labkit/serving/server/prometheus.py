"""The endpoint's metrics for Prometheus: the engine's counts, and what its clients wait for.

Reference: Prometheus, "Exposition formats"; written by its own client library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from mlsys_labkit.serving.server.worker import Counts

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


class EndpointMetrics:
    """A registry of an endpoint's own, so that two in one process do not share their counts."""

    def __init__(self, counts: Callable[[], Counts]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_EngineCollector(counts))
        self.answers = Counter(
            "labkit_http_answers", "Answers by route and status.", ("route", "status"), registry=self._registry
        )
        self.first_token = Histogram(
            "labkit_time_to_first_token_seconds",
            "From a request's arrival to its first token.",
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.whole = Histogram(
            "labkit_request_seconds",
            "From a request's arrival to its last token.",
            buckets=_SECONDS,
            registry=self._registry,
        )

    def exposition(self, accept: str | None) -> tuple[bytes, str]:
        """Return the metrics and their content type, in the newest format that the reader accepts."""
        encode, content_type = choose_encoder(accept or "")
        return encode(self._registry), content_type


class _EngineCollector(Collector):
    """The engine's counts, read when they are asked for."""

    def __init__(self, counts: Callable[[], Counts]) -> None:
        self._counts = counts

    def collect(self) -> Iterator[Metric]:
        now = self._counts()
        gauges = {
            "labkit_requests_running": ("Continuations that hold blocks.", now.running),
            "labkit_requests_waiting": ("Continuations that wait for a place.", now.waiting),
            "labkit_cache_blocks": ("Blocks of the key-value cache.", now.blocks),
            "labkit_cache_blocks_used": ("Blocks that some block table holds.", now.blocks - now.free_blocks),
        }
        counters = {
            "labkit_steps": ("Passes through the model.", now.steps),
            "labkit_prompt_tokens": ("Tokens of all prompts taken.", now.prompt_tokens),
            "labkit_output_tokens": ("Tokens given out.", now.output_tokens),
        }
        for name, (meaning, value) in gauges.items():
            yield GaugeMetricFamily(name, meaning, value)
        for name, (meaning, value) in counters.items():
            yield CounterMetricFamily(name, meaning, value)
        ended = CounterMetricFamily("labkit_requests_ended", "Continuations that ended, and how.", labels=["reason"])
        for reason in ("stop", "length", "abort"):
            ended.add_metric([reason], now.ended.get(reason, 0))
        yield ended
