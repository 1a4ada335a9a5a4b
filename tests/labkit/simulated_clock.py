"""A machine whose time is simulated."""

from __future__ import annotations

import random

import numpy as np

from mlsys_labkit.timing.bench import measure
from mlsys_labkit.timing.clock import SAMPLE_SECONDS
from mlsys_labkit.timing.compare import measure_pairs


class SimulatedClock:
    """A machine on which ``call()`` returns its cost in seconds and ``mood(t)`` says how slow the machine is at t."""

    cache, waits = "", False

    def __init__(self, mood=lambda t: 1.0, *, seed=0, spread=0.02, spikes=0.0, resolution=1e-9, device="cpu"):
        self.device, self.resolution_seconds, self.sample_seconds = device, resolution, SAMPLE_SECONDS
        self.mood, self.rng, self.spread, self.spikes = mood, np.random.default_rng(seed), spread, spikes
        self.seconds, self.why, self.overhead, self.busy = 0.0, "", None, None

    def time(self, call, calls):
        spent = call() * calls * self.mood(self.seconds) * self.rng.lognormal(0, self.spread)
        if self.rng.random() < self.spikes:
            spent += self.rng.exponential(3e-3)  # another process got the core
        self.seconds += spent
        return spent / calls

    def now(self):
        return self.seconds

    def throttled(self):
        return self.why

    def launch_overhead_seconds(self):
        return self.overhead

    def load(self):
        return self.busy


def run(clock, cost=1e-3, seconds=1.0, target=None):
    return measure(lambda: cost, clock, 0.5, seconds, target, "f")


def pair(clock, ratio, seconds=1.0, cost=50e-6, margin=0.05):
    return measure_pairs((lambda: cost, lambda: cost * ratio), clock, seconds, margin, ("a", "b"), random.Random(1))
