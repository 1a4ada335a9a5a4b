"""The statistics on simulated streams: coverage against known medians, warm-up, drift and steps planted on purpose."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy
from hypothesis import given, strategies as st

from mlsys_labkit.timing.statistics import block_medians, median_interval, outliers, symmetric_centre, trend, warmup_end


def noise(n, seed, spread=0.05):
    return np.random.default_rng(seed).lognormal(0, spread, n)


STREAMS = {
    "lognormal": lambda rng, n: rng.lognormal(0, 0.3, n),
    "exponential": lambda rng, n: math.log(2) ** -1 * rng.exponential(1, n),
    "cauchy": lambda rng, n: 1 + rng.standard_cauchy(n),
}


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("n", [10, 40, 300, 2000])
@pytest.mark.parametrize("confidence", [0.95, 0.99])
def test_the_interval_covers_a_known_median_as_often_as_it_says(stream, n, confidence):
    rng, runs, true_median = np.random.default_rng(7), 600, 1.0
    intervals = (median_interval(STREAMS[stream](rng, n), confidence) for _ in range(runs))
    hits = sum(low <= true_median <= high for low, high in intervals)
    # 3 standard errors of a binomial count below the nominal level
    assert hits / runs >= confidence - 3 * math.sqrt(confidence * (1 - confidence) / runs)


def test_the_interval_keeps_its_promise_when_neighbours_are_alike():
    """Correlated over about 10 samples: an interval over single samples covers far too rarely."""
    rng, n, runs, hits, naive = np.random.default_rng(3), 4000, 200, 0, 0
    for _ in range(runs):
        x = np.zeros(n)
        shocks = rng.normal(0, 1, n)
        for i in range(1, n):
            x[i] = 0.9 * x[i - 1] + shocks[i]
        low, high = median_interval(x)
        hits += low <= 0 <= high
        ordered = np.sort(x)
        rank = int(scipy.stats.binom.ppf(0.025, n, 0.5))
        naive += ordered[rank - 1] <= 0 <= ordered[-rank]
    assert hits >= 0.91 * runs
    assert naive < 0.6 * runs, "the stream is not correlated enough for this test to mean anything"


@given(st.integers(6, 31), st.sampled_from([0.9, 0.95, 0.99]))
def test_ranks_are_the_binomial_quantiles(n, confidence):
    low, high = median_interval(np.arange(n, dtype=float), confidence)
    rank = int(scipy.stats.binom.ppf((1 - confidence) / 2, n, 0.5))  # smallest k with CDF(k) >= tail
    if scipy.stats.binom.cdf(rank, n, 0.5) > (1 - confidence) / 2:
        rank -= 1
    expected = (rank, n - 1 - rank) if rank >= 0 else (-math.inf, math.inf)
    assert (low, high) == expected


@pytest.mark.parametrize("draw", ["standard_normal", "standard_cauchy", "laplace"])
@pytest.mark.parametrize("n", [12, 60, 1000])
def test_the_symmetric_interval_covers_as_often_as_it_says(draw, n):
    rng, runs, confidence = np.random.default_rng(11), 600, 0.95
    make = rng.laplace if draw == "laplace" else getattr(rng, draw)
    centres = [symmetric_centre(make(size=n), confidence) for _ in range(runs)]
    hits = sum(low <= 0 <= high for _, low, high in centres)
    assert hits / runs >= confidence - 3 * math.sqrt(confidence * (1 - confidence) / runs)
    assert all(low <= value <= high for value, low, high in centres)


@given(st.lists(st.floats(-10, 10), min_size=8, max_size=25, unique=True))
def test_the_symmetric_interval_is_where_the_signed_rank_test_turns(values):
    """Every centre inside is accepted by SciPy's exact signed-rank test, every centre just outside is rejected."""
    x = np.array(values)
    _, low, high = symmetric_centre(x, 0.95)

    def p_value(centre):
        return scipy.stats.wilcoxon(x - centre, method="exact").pvalue

    width = max(high - low, 1e-3)
    assert p_value(low - 1e-6 * width) <= 0.05 + 1e-9
    assert p_value(high + 1e-6 * width) <= 0.05 + 1e-9
    assert p_value((low + high) / 2) > 0.05 or len(set(np.round(x, 6))) < len(x)


def test_too_few_values_have_no_interval():
    assert median_interval(np.ones(5)) == (-math.inf, math.inf)
    assert median_interval(np.array([])) == (-math.inf, math.inf)
    assert symmetric_centre(np.ones(5))[1:] == (-math.inf, math.inf)


@given(st.integers(0, 400))
def test_blocks_are_odd_equal_and_keep_the_latest(n):
    values = np.arange(n, dtype=float)
    medians = block_medians(values)
    if n < 96:
        assert len(medians) == n
    else:
        size = int(medians[1] - medians[0])
        assert size % 2 == 1
        assert len(medians) >= 32
        assert medians[-1] == n - 1 - size // 2


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("slow", [(3, 10.0), (20, 2.0), (60, 1.3), (40, 0.7)])
def test_a_planted_warmup_is_dropped_whole_with_little_else(seed, slow):
    length, factor = slow
    values = noise(200, seed, 0.03)
    values[:length] *= factor
    # Leaving warm-up in biases the median; dropping a few samples too many costs only their number.
    assert length <= warmup_end(values) <= length + 0.1 * len(values)


def test_an_exponential_warmup_is_cut_where_it_is_lost_in_the_noise():
    values = noise(300, 1, 0.02) * (1 + 2 * np.exp(-np.arange(300) / 10))
    assert 30 <= warmup_end(values) <= 90


def test_a_steady_stream_has_no_warmup():
    found = [warmup_end(noise(200, seed, spread)) for seed in range(100) for spread in (0.01, 0.1, 0.3)]
    assert np.mean(np.array(found) > 0) < 0.03


def test_one_spike_is_not_a_warmup_phase():
    for position in (3, 20, 60):
        values = noise(200, position, 0.02)
        values[position] *= 50
        assert warmup_end(values) <= 1


@given(st.lists(st.floats(1e-9, 1e3), max_size=60))
def test_any_stream_is_cut_in_its_first_half_at_most(values):
    assert 0 <= warmup_end(np.array(values)) <= len(values) / 2


def test_trend_names_what_was_planted():
    n = 400
    ramp, step = np.linspace(1, 1.3, n), np.where(np.arange(n) < 250, 1.0, 1.3)
    for seed in range(20):
        base = noise(n, seed)
        assert trend(base) == "steady"
        assert trend(base * ramp) == "drifting"
        assert trend(base * ramp[::-1]) == "drifting"
        assert trend(base * step) == "stepped"


def test_a_bimodal_stream_without_order_is_steady():
    rng = np.random.default_rng(0)
    assert all(trend(rng.choice([1.0, 2.0], 400) * noise(400, seed)) == "steady" for seed in range(20))


def test_a_steady_stream_is_rarely_called_anything_else():
    calls = [trend(noise(60, seed, 0.2)) for seed in range(300)]
    assert calls.count("steady") >= 294


def test_outliers_are_counted_by_tukeys_far_fences():
    values = np.concatenate([np.linspace(1, 2, 101), [10, 11, -9]])
    assert outliers(values) == 3
    assert outliers(np.ones(10)) == 0
