"""Loss as a power law of parameters and tokens; the twin of ``model.js``.

    loss(N, D) = floor + a / N**alpha + b / D**beta,   arithmetic C = 6 N D

Reference: Hoffmann et al., "Training Compute-Optimal Large Language Models", arXiv:2203.15556, approach 3.
"""

from __future__ import annotations

from collections.abc import Mapping

CHINCHILLA = {"floor": 1.69, "a": 406.4, "b": 410.7, "alpha": 0.34, "beta": 0.28}
"""Eq. 10 of the reference; a replication (arXiv:2404.10102) finds 1.8172, 482.01, 2085.43, 0.3478 and 0.3658."""

Law = Mapping[str, float]


def loss(law: Law, parameters: float, tokens: float) -> float:
    """Return the cross entropy in nats per token.

    Example:
        >>> round(loss(CHINCHILLA, 70e9, 1.4e12), 3)
        1.937
    """
    return float(law["floor"] + law["a"] / parameters ** law["alpha"] + law["b"] / tokens ** law["beta"])


def best_parameters(law: Law, flops: float) -> float:
    """Return parameters that reach the least loss with ``flops`` of training; the tokens are flops / (6 parameters).

    Example:
        >>> round(best_parameters(CHINCHILLA, 5.76e23) / 1e9)
        32
    """
    exponent = law["alpha"] + law["beta"]
    ratio = law["alpha"] * law["a"] / (law["beta"] * law["b"])
    return float(ratio ** (1 / exponent) * (flops / 6) ** (law["beta"] / exponent))


def lifetime(parameters: float, tokens: float, served: float) -> float:
    """Return FLOPs of training on ``tokens`` and then of writing ``served`` tokens: 6 and 2 per parameter."""
    return 6 * parameters * tokens + 2 * parameters * served


def tokens_for(law: Law, parameters: float, target: float) -> float | None:
    """Return the tokens with which a model of this size reaches the loss ``target``; None if it never does."""
    left = target - law["floor"] - law["a"] / parameters ** law["alpha"]
    return float((law["b"] / left) ** (1 / law["beta"])) if left > 0 else None
