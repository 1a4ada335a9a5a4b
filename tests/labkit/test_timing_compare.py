"""compare on machines whose time is simulated: what it concludes, and how often it is right."""

from __future__ import annotations

import numpy as np
import pytest

from tests.labkit.simulated_clock import SimulatedClock, pair


def restless(seed):
    """Simulate a shared machine: slow phases of 5 to 80 ms, up to 2.5x, and a drift on top."""
    rng = np.random.default_rng(seed)
    ends = np.cumsum(rng.uniform(5e-3, 80e-3, 400))
    factors = rng.choice([1.0, 1.2, 1.7, 2.5], 400)
    return lambda t: factors[min(399, int(np.searchsorted(ends, t)))] * (1 + 0.3 * t)


MACHINES = {
    "quiet": lambda seed: SimulatedClock(seed=seed, spread=0.01),
    "noisy": lambda seed: SimulatedClock(seed=seed, spread=0.25),
    "interrupted": lambda seed: SimulatedClock(seed=seed, spread=0.05, spikes=0.1),
    "restless": lambda seed: SimulatedClock(restless(seed), seed=seed, spread=0.15, spikes=0.05),
}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("ratio", "verdict"), [(1.0, "same"), (1.1, "slower"), (1 / 1.1, "faster")])
def test_compare_is_right_95_times_in_100_on_simulated_machines(machine, ratio, verdict):
    verdicts = [pair(MACHINES[machine](seed), ratio).verdict for seed in range(100)]
    assert verdicts.count(verdict) >= 95
    assert set(verdicts) <= {verdict, "undecided"}, "unsure is allowed, wrong is not"


def test_the_interval_covers_the_true_ratio_as_often_as_it_says_although_it_was_looked_at_often():
    results = [pair(SimulatedClock(seed=seed, spread=0.4), 1.02, seconds=0.3) for seed in range(200)]
    assert sum(result.ci_low <= 1.02 <= result.ci_high for result in results) >= 186


def test_a_ratio_at_the_margin_is_undecided_or_nothing_worse():
    verdicts = [pair(SimulatedClock(seed=seed, spread=0.1), 1.05, seconds=0.3).verdict for seed in range(60)]
    assert verdicts.count("undecided") >= 54


def test_a_machine_too_noisy_for_the_budget_is_undecided_with_advice():
    result = pair(SimulatedClock(spread=1.5), 1.1, seconds=0.05)
    assert result.verdict == "undecided"
    assert "more seconds" in result.advice


def test_slow_functions_still_get_enough_pairs():
    result = pair(SimulatedClock(spread=0.01), 1.1, seconds=0.1, cost=1.0)
    assert result.pairs >= 10
    assert result.verdict == "slower"


def test_compare_uses_the_given_margin():
    assert pair(SimulatedClock(), 1.1, margin=0.25).verdict == "same"
    assert pair(SimulatedClock(), 1.02, margin=0.005).verdict == "slower"


def test_the_order_within_a_pair_is_random():
    """A machine that is slower for whoever runs second must not favour a or b."""

    class Second(SimulatedClock):
        count = 0

        def time(self, call, calls):
            Second.count += 1
            return super().time(call, calls) * (1.3 if Second.count % 2 else 1.0)

    verdicts = [pair(Second(seed=seed), 1.0).verdict for seed in range(10)]
    assert "faster" not in verdicts
    assert "slower" not in verdicts
