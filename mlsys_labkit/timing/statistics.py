"""Statistics of noisy samples: order-statistic intervals, the end of the warm-up, drift and steps. Pure functions.

Run times are skewed, heavy-tailed and correlated: a neighbour's burst hits the next samples too. So everything here is
rank-based or clipped, and intervals are taken over medians of contiguous blocks, which forgives any correlation
shorter than a block. The median of a block of odd size has the same median as one sample, so blocks cost no bias.

References: Hahn and Meeker, "Statistical intervals", ch. 5 (order-statistic interval of a quantile); Hollander,
Wolfe and Chicken, "Nonparametric statistical methods", sec. 3.1 to 3.3 (signed ranks, Walsh averages); White, "An
effective truncation heuristic for bias reduction in simulation output", Simulation 69(6), 1997 (MSER); Hoefler and
Belli, "Scientific benchmarking of parallel computing systems", SC'15.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]

BLOCKS = 32  # enough for a 99.5 % sign interval of moderate width, few enough that blocks outlast a scheduler's slice
_MAD_TO_SIGMA = 1.4826


class Interval(NamedTuple):
    low: float
    high: float


def blocks(values: Values) -> Values:
    """Cut the latest ``values`` [n] into contiguous blocks [count, size] of odd size, or size 1 when n is small."""
    size = len(values) // BLOCKS
    size = max(1, size - 1 + size % 2)  # odd, so that a block's median is one of its samples
    count = len(values) // size
    return values[len(values) - count * size :].reshape(count, size)


def block_medians(values: Values) -> Values:
    """Return the median of each block."""
    medians: Values = np.median(blocks(values), axis=1)
    return medians


def median_interval(values: Values, confidence: float = 0.95) -> Interval:
    """Return a confidence interval of the median by the sign test.

    The test assumes that blocks are independent, and nothing about the shape of the noise.

    The interval is infinite on both sides when there are too few values for the confidence (fewer than 6 at 95 %).
    """
    ordered = np.sort(block_medians(values))
    rank = _sign_test_rank(len(ordered), confidence)
    if rank < 1:
        return Interval(-math.inf, math.inf)
    return Interval(float(ordered[rank - 1]), float(ordered[-rank]))


class Centre(NamedTuple):
    value: float
    low: float
    high: float


def symmetric_centre(values: Values, confidence: float = 0.95) -> Centre:
    """Return the centre of a symmetric distribution and its interval, as Hodges and Lehmann do.

    It is meant for log ratios of pairs in random order. They are symmetric because exchanging the noise of the two
    changes only the sign. Each block contributes the mean of its middle half, which no spike moves. The signed-rank
    test over the blocks has 95 % of the efficiency of Student's t for normal noise, and tolerates heavy tails.

    The interval is infinite on both sides when there are too few values for the confidence.
    """
    ordered = np.sort(blocks(values), axis=1)
    quarter = ordered.shape[1] // 4
    middles = ordered[:, quarter : ordered.shape[1] - quarter].mean(axis=1)
    rows, columns = np.triu_indices(len(middles))
    walsh = np.sort((middles[rows] + middles[columns]) / 2)
    rank = _signed_rank_rank(len(middles), confidence)
    if rank < 1:
        return Centre(float(np.median(walsh)) if len(walsh) else math.nan, -math.inf, math.inf)
    return Centre(float(np.median(walsh)), float(walsh[rank - 1]), float(walsh[-rank]))


@functools.lru_cache(maxsize=512)
def _signed_rank_rank(n: int, confidence: float) -> int:
    """Return the largest j whose j-th smallest and j-th largest Walsh average bracket the centre; 0 if none do."""
    chances = np.ones(1)
    for rank in range(1, n + 1):  # each rank is in the sum or not, with equal chance
        longer = np.zeros(len(chances) + rank)
        longer[: len(chances)] += chances / 2
        longer[rank:] += chances / 2
        chances = longer
    return int(np.sum(np.cumsum(chances) <= (1 - confidence) / 2))


@functools.lru_cache(maxsize=512)
def _sign_test_rank(n: int, confidence: float) -> int:
    """Return the largest j whose j-th smallest and j-th largest of n bracket the median; 0 if none do."""
    tail, rank = 0.0, 0
    while rank < n // 2:
        tail += math.comb(n, rank) / 2**n
        if 2 * tail > 1 - confidence:
            break
        rank += 1
    return rank


def warmup_end(values: Values) -> int:
    """Count the leading samples of a warm-up: up to a change point in the first half, 0 when there is none.

    The cut is where dropping more of the beginning no longer lowers the standard error of the rest (MSER), on values
    clipped to five sigmas so that one spike is not a phase. It is accepted only when the part before differs from the
    part after by more than 2 % and 4 standard errors.
    """
    n = len(values)
    if n < 10:
        return 0
    late = values[n // 2 :]
    centre, sigma = _centre_and_sigma(late)
    clipped = np.clip(values, centre - 5 * sigma, centre + 5 * sigma)
    # Suffix sums give the variance of every tail in one pass.
    count = np.arange(n, 0, -1, dtype=np.float64)
    shifted = clipped - centre
    tail_sum, tail_square = np.cumsum(shifted[::-1])[::-1], np.cumsum(shifted[::-1] ** 2)[::-1]
    spread = np.maximum(tail_square - tail_sum**2 / count, 0.0)
    cut = int(np.argmin((spread / count**2)[: n // 2]))
    if cut == 0:
        return 0
    before, after = float(np.mean(clipped[:cut])), float(np.median(clipped[cut:]))
    sigma_after = _centre_and_sigma(clipped[cut:])[1]
    is_clear = abs(before - after) > 4 * sigma_after / math.sqrt(cut) and abs(before - after) > 0.02 * after
    return cut if is_clear else 0


def trend(values: Values) -> str:
    """Return "steady", "drifting" (a ramp, up or down) or "stepped" (slower from some point to the end).

    ``values`` are in order of time. A change counts when it is over 5 % of the median and Kendall's tau is beyond 3.5
    standard errors; it is a step when one step leaves less than half the squared error of the best line.
    """
    medians = block_medians(values)
    n = len(medians)
    if n < 10:
        return "steady"
    x = np.arange(n, dtype=np.float64)
    rise = np.sign(medians[None, :] - medians[:, None])
    tau_sum = float(np.triu(rise, 1).sum())
    if abs(tau_sum) < 3.5 * math.sqrt(n * (n - 1) * (2 * n + 5) / 18):
        return "steady"
    centre, _ = _centre_and_sigma(medians)
    third = n // 3
    change = float(np.median(medians[-third:]) - np.median(medians[:third]))
    if abs(change) < 0.05 * centre:
        return "steady"
    line = np.polyval(np.polyfit(x, medians, 1), x)
    line_error = float(np.sum((medians - line) ** 2))
    step_error, up = min(
        (float(np.var(medians[:k]) * k + np.var(medians[k:]) * (n - k)), bool(medians[k:].mean() > medians[:k].mean()))
        for k in range(3, n - 2)
    )
    return "stepped" if up and step_error < 0.5 * line_error else "drifting"


def outliers(values: Values) -> int:
    """Count the samples beyond Tukey's far fences, 3 interquartile ranges from the quartiles."""
    low, high = np.percentile(values, [25, 75])
    reach = 3 * (high - low)
    return int(np.sum((values < low - reach) | (values > high + reach)))


def _centre_and_sigma(values: Values) -> tuple[float, float]:
    centre = float(np.median(values))
    sigma = _MAD_TO_SIGMA * float(np.median(np.abs(values - centre)))
    return centre, max(sigma, 1e-3 * abs(centre))  # a tenth of a percent: a quantised clock has MAD 0
