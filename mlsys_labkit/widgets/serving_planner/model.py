"""Memory, time and price of serving a language model; the twin of ``model.js``.

A set-up is a mapping: ``parameters`` and ``active`` (parameters that a token visits), ``layers``, ``cache`` (bytes a
token), ``peak`` (FLOP/s) and ``bandwidth`` (B/s) and ``memory`` (B) of a GPU, ``gpus`` that share each layer, ``bits``
a weight, ``cuts`` (the most parts that the cache can be cut into: the key-value heads; under latent attention one cache
serves all heads, and users are shared out instead), ``users`` in the batch, ``context`` tokens each, ``efficiency``
(the part of both peaks that is reached) and ``price`` (USD per hour and GPU).
Reference: Pope et al., "Efficiently Scaling Transformer Inference", MLSys 2023, sec. 2.
"""

from __future__ import annotations

from collections.abc import Mapping

HOP_SECONDS = 5e-6
"""Latency of one all-reduce of a layer between GPUs of a node; there are two per layer."""
USABLE = 0.9

Setup = Mapping[str, float]


def memory(setup: Setup) -> dict[str, float]:
    """Return the bytes on each GPU: weights, cache, and the rest of the usable nine tenths (negative: does not fit)."""
    weights = setup["parameters"] * setup["bits"] / 8 / setup["gpus"]
    cache = setup["users"] * setup["context"] * setup["cache"] / min(setup["gpus"], setup["cuts"])
    return {"weights": weights, "cache": cache, "free": USABLE * setup["memory"] - weights - cache}


def touched(setup: Setup, tokens: float) -> float:
    """Return the parameters that ``tokens`` tokens read together; with experts, more as their choices differ."""
    share = setup["active"] / setup["parameters"]
    return setup["parameters"] * float(1 - (1 - share) ** tokens)


def _copies(setup: Setup) -> float:
    """Return how often the cache is held: GPUs beyond the key-value heads hold, and read, the same part again."""
    return max(1.0, setup["gpus"] / setup["cuts"])


def _hops(setup: Setup) -> float:
    return 2 * setup["layers"] * HOP_SECONDS if setup["gpus"] > 1 else 0.0


def decode_seconds(setup: Setup) -> float:
    """Return the seconds of one step that gives each user one token: time per output token."""
    cache = setup["users"] * setup["context"] * setup["cache"] * _copies(setup)
    read = touched(setup, setup["users"]) * setup["bits"] / 8 + cache
    flops = 2 * setup["active"] * setup["users"]
    speed = setup["gpus"] * setup["efficiency"]
    return max(read / (speed * setup["bandwidth"]), flops / (speed * setup["peak"])) + _hops(setup)


def prefill_seconds(setup: Setup) -> float:
    """Return the seconds of one prefill of ``context`` tokens alone: the least time to the first token."""
    speed = setup["gpus"] * setup["efficiency"]
    flops = 2 * setup["active"] * setup["context"]
    read = touched(setup, setup["context"]) * setup["bits"] / 8
    return max(flops / (speed * setup["peak"]), read / (speed * setup["bandwidth"])) + _hops(setup)


def usd_per_million(setup: Setup) -> float:
    """Return USD for a million tokens written, every seat taken all the time."""
    return setup["price"] * setup["gpus"] / 3600 / (setup["users"] / decode_seconds(setup)) * 1e6


def most_users(setup: Setup) -> int:
    """Return the users whose caches fit beside the weights."""
    room = USABLE * setup["memory"] * setup["gpus"] - setup["parameters"] * setup["bits"] / 8
    return max(0, int(room // (setup["context"] * setup["cache"] * _copies(setup))))
